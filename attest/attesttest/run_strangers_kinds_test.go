package attesttest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// platformThat is a kind whose platform verifies documents in its own way.
func platformThat(verify func(context.Context, *Platform, *platformDocument, []byte, *attest.Inquiry) (*document.Claims, error)) func(*Platform) (attest.Kind, error) {
	return kindOf(func(p *Platform) document.Platform {
		return &weakPlatform{p, func(ctx context.Context, d *platformDocument, data []byte, q *attest.Inquiry) (*document.Claims, error) {
			return verify(ctx, p, d, data, q)
		}}
	})
}

// TestStrangersKinds prints the runner's report on a stranger's kind of documents, or his verifier,
// and holds that it names each weakness by an attack on it.
func TestStrangersKinds(t *testing.T) {
	strict := func(_ *testing.T, w *World) {}
	for _, c := range []struct {
		name   string
		kind   func(*Platform) (attest.Kind, error)
		weaken func(*testing.T, *World)
		want   string
	}{
		{"as it should be", strictKind, strict, ""},
		{"the budget is never asked", platformThat(func(_ context.Context, p *Platform, _ *platformDocument, data []byte, q *attest.Inquiry) (*document.Claims, error) {
			return p.Verify(context.Background(), data, &attest.Inquiry{Now: q.Now, Budget: attest.NewBudget(1)})
		}), strict, "budget-spent"},
		{"no signature is verified", platformThat(func(ctx context.Context, p *Platform, d *platformDocument, _ []byte, q *attest.Inquiry) (*document.Claims, error) {
			return d.claims(), q.Budget.Signature(ctx)
		}), strict, "document-forged"},
		{"a document without a signature", platformThat(func(ctx context.Context, p *Platform, d *platformDocument, data []byte, q *attest.Inquiry) (*document.Claims, error) {
			if len(d.Signature) == 0 {
				return d.claims(), q.Budget.Signature(ctx)
			}
			return p.Verify(ctx, data, q)
		}), strict, "document-field-missing"},
		{"a signature of zeros", platformThat(func(ctx context.Context, p *Platform, d *platformDocument, data []byte, q *attest.Inquiry) (*document.Claims, error) {
			if strings.Trim(string(d.Signature), "\x00") == "" && len(d.Signature) == 64 {
				return d.claims(), q.Budget.Signature(ctx)
			}
			return p.Verify(ctx, data, q)
		}), strict, "document-field-of-one-repeated-byte"},
		{"documents of any age", platformThat(func(ctx context.Context, p *Platform, d *platformDocument, data []byte, q *attest.Inquiry) (*document.Claims, error) {
			return p.Verify(ctx, data, &attest.Inquiry{Now: time.Unix(d.Time, 0), Budget: q.Budget})
		}), strict, "document-of-yesterday"},
		{"every machine is admitted", strictKind, func(_ *testing.T, w *World) {
			w.Config.Authorizer = attest.AuthorizerFunc(func(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
				a, m := r.InsecureAdmitAnyone(), r.Checked().Machine()
				a.ProviderID, a.DNSNames, a.IPAddresses = m.ProviderID, m.DNSNames, m.IPAddresses
				return a, nil
			})
		}, "stranger"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := NewWorld(t, WorldOptions{Documents: toyDocuments(t, c.kind)})
			c.weaken(t, w)
			outcomes := Try(t.Context(), realProvider(t, w.Config), w)
			got := GotIn(outcomes)
			for _, o := range outcomes {
				if o.Name == c.want {
					t.Logf("%s → %s: %s (and %d others)", t.Name(), o.Name, o.Fault, len(got)-1)
				}
			}
			if c.want == "" && len(got) > 0 || c.want != "" && !slices.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestAttacksThatEndEarly: an attack of an author that ends before the provider verifies it is reported
// with the check that stopped it, unless it says that this check may.
func TestAttacksThatEndEarly(t *testing.T) {
	for name, c := range map[string]struct {
		filed time.Duration // before now, of the hello
		want  []refusal.Check
		fault string // a part of it
	}{
		"a clock two days behind":         {48 * time.Hour, nil, "ended before the provider was asked to verify it, by check hello-expired"},
		"which another check may refuse":  {48 * time.Hour, []refusal.Check{attest.CheckMembership}, "by check hello-expired"},
		"which this check may refuse":     {48 * time.Hour, []refusal.Check{attest.CheckHelloExpired, attest.CheckMembership}, ""},
		"a clock that is right":           {0, nil, ""},
		"refused by the check that it is": {0, []refusal.Check{attest.CheckMembership}, ""},
		"refused by another":              {0, []refusal.Check{attest.CheckBudget}, `refused by check not-a-member, want ["work-budget"]`},
	} {
		t.Run(name, func(t *testing.T) {
			var w *World
			documents := toyDocuments(t, strictKind)
			attack := Attack{Name: "own", Class: classBinding, Description: "A stranger joins.", Want: c.want,
				Prove: func(ctx context.Context, p csr.Provider, a *Applicant) (*csr.Bundle, error) {
					a.Machine = Stranger
					a.Object.Metadata.CreationTimestamp = a.Object.Metadata.CreationTimestamp.Add(-c.filed)
					return documents.join(ctx, &attempt{World: w, provider: p}, a)
				}}
			w = NewWorld(t, WorldOptions{Documents: documents, Attacks: []Attack{attack}})
			outcomes := Try(t.Context(), realProvider(t, w.Config), w)
			last := outcomes[len(outcomes)-1]
			if last.Issued || (c.fault == "") != (last.Fault == "") || !strings.Contains(last.Fault, c.fault) {
				t.Errorf("got %q (%v), want %q", last.Fault, last.Err, c.fault)
			}
			if rest := GotIn(outcomes[:len(outcomes)-1]); len(rest) > 0 {
				t.Errorf("got %q", rest)
			}
		})
	}
}
