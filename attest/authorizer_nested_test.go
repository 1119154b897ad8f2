package attest

import (
	"context"
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// An authorizer that asks another through Membership, and so decides inside a decision, admits
// nobody, whatever it makes of the answer; nothing of the inner one is written.
func TestMembershipInsideAuthorize(t *testing.T) {
	for name, nested := range map[string]func(ctx context.Context, inner Authorizer, r *Result) (*Authorization, error){
		"passed on": func(ctx context.Context, inner Authorizer, r *Result) (*Authorization, error) {
			return r.Admit(r.NodeName), Membership(ctx, inner, r)
		},
		"on a copy": func(ctx context.Context, inner Authorizer, r *Result) (*Authorization, error) {
			again := *r
			return r.Admit(r.NodeName), Membership(ctx, inner, &again)
		},
		"refused after all": func(ctx context.Context, inner Authorizer, r *Result) (*Authorization, error) {
			if err := Membership(ctx, inner, r); err != nil {
				return nil, err
			}
			return nil, NotMember("x")
		},
		"the outer one again": func(ctx context.Context, inner Authorizer, r *Result) (*Authorization, error) {
			return r.Admit(r.NodeName), Membership(ctx, AuthorizerFunc(inner.Authorize), r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			written := 0
			inner := AuthorizerFunc(func(_ context.Context, r *Result) (*Authorization, error) {
				return r.Admit(r.NodeName), errors.Join(r.WhenAdmitted(func(context.Context) error { written++; return nil }),
					r.WhenIssued(func(context.Context, csr.IssuedRecord) error { written++; return nil }))
			})
			config := fakeConfig(t, &fakeKind{})
			config.Authorizer = AuthorizerFunc(func(ctx context.Context, r *Result) (*Authorization, error) {
				a, err := nested(ctx, inner, r)
				if r.Attested() != nil {
					t.Error("something can be issued before the decision")
				}
				return a, err
			})
			v, err := NewVerifier(config)
			if err != nil {
				t.Fatal(err)
			}
			r, err := joinFake(t, v, newFakeNode(t, newFakeProver()))
			if r != nil || !errors.Is(err, refusal.ErrRetry) || written != 0 {
				t.Errorf("got %v, %v, written %d times", r, err, written)
			}
		})
	}
	// The very same authorizer, asked by its method, is admitted.
	r := &Result{Stage: StageAnswer}
	if err := Membership(t.Context(), AuthorizerFunc(AuthorizerFunc(admitAll).Authorize), r); err != nil {
		t.Error(err)
	}
	if err := Membership(t.Context(), AuthorizerFunc(admitAll), r); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("decided twice: %v", err)
	}
}

// Without a result, a context or an authorizer there is no membership.
func TestMembershipOfNothing(t *testing.T) {
	good := AuthorizerFunc(admitAll)
	for name, err := range map[string]error{
		"no result":     Membership(t.Context(), good, nil),
		"no context":    Membership(nil, good, &Result{Stage: StageAnswer}), //nolint:staticcheck // the mistake
		"no authorizer": Membership(t.Context(), nil, &Result{Stage: StageAnswer}),
		"no stage":      Membership(t.Context(), good, &Result{}),
	} {
		if !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
