package tpm_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// as admits a machine as the node that it wants to be, with a provider ID.
func as(providerID string) func(*attest.Result) *attest.Authorization {
	return func(r *attest.Result) *attest.Authorization {
		a := r.InsecureAdmitAnyone()
		a.ProviderID = providerID
		return a
	}
}

// A Result is good for a certificate after the authorizer has decided, never inside of
// it, and never at all where it refuses.
func TestVerifiedAfterTheDecision(t *testing.T) {
	s := newStage(t, plainNode)
	for name, c := range map[string]struct {
		authorize func(*attest.Result) *attest.Authorization
		err       error
		want      error
	}{
		"admitted":            {as(s.node.ProviderID), nil, nil},
		"refused":             {nil, attest.NotMember("no"), attest.CheckMembership},
		"not decided":         {nil, errors.New("directory down"), refusal.ErrRetry},
		"nothing said":        {nil, nil, attest.CheckMembership},
		"another provider ID": {as("sim://other"), nil, refusal.Check("provider-id")},
	} {
		t.Run(name, func(t *testing.T) {
			var seen *attest.Result
			config := s.plane.Config
			config.Authorizer = attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
				seen = r
				if v := r.Attested(); v != nil {
					t.Errorf("inside the authorizer: %+v", v)
				}
				if c.authorize == nil {
					return nil, c.err
				}
				return c.authorize(r), c.err
			})
			r, err := newVerifier(t, &config).Verify(t.Context(), s.good)
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if c.want != nil {
				if v := seen.Attested(); v != nil {
					t.Errorf("after the refusal: %+v", v)
				}
				return
			}
			if r.Attested() == nil {
				t.Fatal("nothing, after the decision")
			}
		})
	}
}

// A change to a Result changes nothing in the certificate that may be issued.
func TestVerifiedIsACopy(t *testing.T) {
	s := newStage(t, plainNode)
	end := time.Now().Add(10 * time.Minute).Truncate(time.Second)
	var given *attest.Authorization
	config := s.plane.Config
	config.Authorizer = attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
		given = as(s.node.ProviderID)(r)
		given.DNSNames, given.NotAfter = []string{"a.example"}, end
		return given, nil
	})
	r, err := newVerifier(t, &config).Verify(t.Context(), s.good)
	testkit.NoError(t, err)
	given.DNSNames[0] = "changed"
	given.NotAfter = time.Time{}
	r.Granted.NotAfter, r.Granted.ProviderID, r.NodeName, r.Machine = time.Time{}, "changed", "changed", "changed"
	r.Attested().Grant().DNSNames[0] = "changed"
	v := r.Attested()
	g := v.Grant()
	if g.ProviderID != s.node.ProviderID || g.DNSNames[0] != "a.example" || !g.NotAfter.Equal(end) || v.Checked().NodeName() == "changed" || v.Machine() == "changed" {
		t.Errorf("got %+v", v)
	}
	issued, err := s.plane.CA.Issue(t.Context(), v)
	testkit.NoError(t, err)
	if issued.Certificate.NotAfter.After(end) {
		t.Errorf("the certificate ends at %s, its authorization at %s", issued.Certificate.NotAfter, end)
	}
}

// atHellos is asked the same at hellos.
type atHellos struct{ attest.AuthorizerFunc }

func (a *atHellos) AuthorizeHello(ctx context.Context, r *attest.Result) error {
	_, err := a.Authorize(ctx, r)
	if err == nil && r.Stage != attest.StageHello {
		return errors.New("no hello")
	}
	return err
}

// At the hello nothing may be issued, though the authorizer agrees.
func TestNothingIsVerifiedAtTheHello(t *testing.T) {
	s := newStage(t, plainNode)
	var seen *attest.Result
	config := s.plane.Config
	config.Authorizer = &atHellos{AuthorizerFunc: func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
		seen = r
		return as(s.node.ProviderID)(r), nil
	}}
	hello, err := s.node.Hello(t.Context(), s.plane.Now())
	testkit.NoError(t, err)
	if _, err := newVerifier(t, &config).Challenge(t.Context(), hello); err != nil {
		t.Fatal(err)
	}
	if v := seen.Attested(); v != nil {
		t.Errorf("got %+v", v)
	}
}
