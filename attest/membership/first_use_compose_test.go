package membership_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// closed and closedValue are authorizers that embed trust on first use and refuse every machine.
type closed struct {
	*membership.FirstUse
	asked int
}

func (c *closed) Authorize(context.Context, *attest.Result) (*attest.Authorization, error) {
	c.asked++
	return nil, attest.NotMember("joining is closed")
}

type closedValue struct {
	membership.FirstUse
	asked *int
}

func (c closedValue) Authorize(context.Context, *attest.Result) (*attest.Authorization, error) {
	*c.asked++
	return nil, attest.NotMember("joining is closed")
}

// closedAny embeds the interface.
type closedAny struct {
	attest.Authorizer
	asked *int
}

func (c closedAny) Authorize(context.Context, *attest.Result) (*attest.Authorization, error) {
	*c.asked++
	return nil, attest.NotMember("joining is closed")
}

// renamed admits the same machines as the embedded authorizer, with an authorization of its own.
type renamed struct{ *membership.FirstUse }

func (n renamed) Authorize(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
	if _, err := n.FirstUse.Authorize(ctx, r); err != nil {
		return nil, err
	}
	a := r.InsecureAdmitAnyone()
	a.ProviderID = "test://1"
	return a, nil
}

// newcomer is an answer of a machine without a record, with a bootstrap token.
func newcomer(t testing.TB) *attest.Result {
	t.Helper()
	r := membership.AnswerOf(t, "node-1", "gce:p/1")
	return r
}

func firstUse(t testing.TB) (*membership.FirstUse, membership.Registry) {
	t.Helper()
	registry := testkit.Must(membership.NewMemoryRegistry(membership.Scope{Cluster: attesttest.ClusterID}, membership.RegistryOptions{}))
	f := testkit.Must(membership.NewFirstUse(membership.FirstUseConfig{Registry: registry, MaxLifetime: time.Hour,
		NodeExists: func(context.Context, string) (bool, error) { return false, nil }}))
	return f, registry
}

func recorded(t testing.TB, registry membership.Registry) bool {
	t.Helper()
	r := testkit.Must(registry.Lookup(t.Context(), "node-1"))
	return r != nil
}

// If a type embeds a FirstUse and has its own Authorize, that one is called in every combination, and a
// machine that it refuses is not recorded.
func TestEmbeddedAuthorizeIsCalled(t *testing.T) {
	for name, c := range map[string]func(f *membership.FirstUse, n *int) attest.Authorizer{
		"pointer":          func(f *membership.FirstUse, n *int) attest.Authorizer { return &counted{closed{FirstUse: f}, n} },
		"value":            func(f *membership.FirstUse, n *int) attest.Authorizer { return closedValue{*f, n} },
		"pointer to value": func(f *membership.FirstUse, n *int) attest.Authorizer { return &closedValue{*f, n} },
		"interface":        func(f *membership.FirstUse, n *int) attest.Authorizer { return closedAny{f, n} },
		"both embedded":    func(f *membership.FirstUse, n *int) attest.Authorizer { return closedAny{membership.Both(f, f), n} },
	} {
		for where, in := range map[string]func(a, open attest.Authorizer) attest.Authorizer{
			"alone":  func(a, _ attest.Authorizer) attest.Authorizer { return a },
			"first":  membership.Both,
			"second": func(a, open attest.Authorizer) attest.Authorizer { return membership.Both(open, a) },
			"both of both": func(a, open attest.Authorizer) attest.Authorizer {
				return membership.Both(open, membership.Both(open, a))
			},
			"in a function": func(a, open attest.Authorizer) attest.Authorizer {
				return membership.Both(open, attest.AuthorizerFunc(a.Authorize))
			},
		} {
			t.Run(name+" "+where, func(t *testing.T) {
				f, registry := firstUse(t)
				asked := 0
				err := attest.AskMembership(t.Context(), in(c(f, &asked), f), newcomer(t))
				if !errors.Is(err, attest.CheckMembership) || asked != 1 {
					t.Errorf("got %v after %d questions, want a refusal after one", err, asked)
				}
				if recorded(t, registry) {
					t.Error("the machine was recorded")
				}
			})
		}
	}
}

// counted passes the count on.
type counted struct {
	closed
	n *int
}

func (c *counted) Authorize(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
	*c.n++
	return c.closed.Authorize(ctx, r)
}

// Whatever a wrapper makes of the answer, who is admitted is recorded.
func TestWrappedFirstUseRecords(t *testing.T) {
	for name, with := range map[string]func(f *membership.FirstUse) attest.Authorizer{
		"alone":         func(f *membership.FirstUse) attest.Authorizer { return f },
		"in a function": func(f *membership.FirstUse) attest.Authorizer { return attest.AuthorizerFunc(f.Authorize) },
		"new answer":    func(f *membership.FirstUse) attest.Authorizer { return renamed{f} },
		"new answer in both": func(f *membership.FirstUse) attest.Authorizer {
			return membership.Both(renamed{f}, renamed{f})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, registry := firstUse(t)
			if err := attest.AskMembership(t.Context(), with(f), newcomer(t)); err != nil || !recorded(t, registry) {
				t.Errorf("got %v, recorded %t", err, recorded(t, registry))
			}
		})
	}
}

// Two registries under one Both: both record, and a refusal of one is no record in the
// other.
func TestTwoFirstUses(t *testing.T) {
	one, first := firstUse(t)
	two, second := firstUse(t)
	if err := attest.AskMembership(t.Context(), membership.Both(one, two), newcomer(t)); err != nil || !recorded(t, first) || !recorded(t, second) {
		t.Errorf("got %v", err)
	}
	three, third := firstUse(t)
	other := membership.AnswerOf(t, "node-1", "gce:p/2")
	if err := attest.AskMembership(t.Context(), membership.Both(three, one), other); !errors.Is(err, attest.Check("registry-name")) || recorded(t, third) {
		t.Errorf("got %v, recorded %t", err, recorded(t, third))
	}
}

// FirstUse called outside a decision cannot add its write, and admits no machine.
func TestFirstUseOutsideADecision(t *testing.T) {
	f, registry := firstUse(t)
	if a, err := f.Authorize(t.Context(), newcomer(t)); a != nil || err == nil || recorded(t, registry) {
		t.Errorf("got %+v, %v", a, err)
	}
}
