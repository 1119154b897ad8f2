package attest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
)

// checkedAuthorizer is an AuthorizerChecker.
type checkedAuthorizer struct {
	err   error
	roads *OpenRoads
}

func (c *checkedAuthorizer) Authorize(context.Context, *Result, *csr.Request) (*Authorization, error) {
	return nil, errors.New("not asked here")
}

func (c *checkedAuthorizer) CheckAuthorizer(roads *OpenRoads) error {
	c.roads = roads
	return c.err
}

// A checker learns which roads are open, and gets profiles that are its own.
func TestCheckerLearnsTheRoads(t *testing.T) {
	c := VerifierConfig{Issuers: []Issuer{{Profile: ProfileTCG()}, {Profile: ProfileGoogle()}}}
	a := &checkedAuthorizer{}
	if err := CheckAuthorizer(a, c.openRoads()); err != nil || len(a.roads.AK) != 2 || a.roads.AK[1].Name != ProfileGoogle().Name || a.roads.EK {
		t.Errorf("got %+v, %v", a.roads, err)
	}
	a.roads.AK[0].Identity[0] = nil
	if c.Issuers[0].Profile.Identity[0] == nil {
		t.Error("the checker changed the configuration")
	}
	c = VerifierConfig{EKs: &EKVerifier{}}
	if err := CheckAuthorizer(a, c.openRoads()); err != nil || len(a.roads.AK) != 0 || !a.roads.EK {
		t.Errorf("got %+v, %v", a.roads, err)
	}
}

// What authorizers hand in is written in its order after everything has been asked, and
// not at all where the machine is not admitted.
func TestWhenAdmitted(t *testing.T) {
	broken := errors.New("disk full")
	yes := func(*Result) (*Authorization, error) { return &Authorization{ProviderID: "p://1"}, nil }
	for _, c := range []struct {
		name    string
		answer  func(*Result) (*Authorization, error)
		claimed string
		fails   error // of the first write
		want    error
		written []string
	}{
		{"admitted", yes, "p://1", nil, nil, []string{"first", "second"}},
		{"refused", func(*Result) (*Authorization, error) { return nil, NotMember("x") }, "", nil, CheckMembership, nil},
		{"undecided", func(*Result) (*Authorization, error) { return nil, broken }, "", nil, broken, nil},
		{"no authorization", func(*Result) (*Authorization, error) { return nil, nil }, "", nil, CheckMembership, nil},
		{"another claim", yes, "p://2", nil, CheckProviderID, nil},
		{"first write fails", yes, "p://1", broken, csr.ErrRetry, []string{"first"}},
		{"first write refuses", yes, "p://1", NotMember("x"), CheckMembership, []string{"first"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var written []string
			a := AuthorizerFunc(func(_ context.Context, r *Result, _ *csr.Request) (*Authorization, error) {
				err1 := r.WhenAdmitted(func(context.Context) error { written = append(written, "first"); return c.fails })
				err2 := r.WhenAdmitted(func(context.Context) error { written = append(written, "second"); return nil })
				if err := errors.Join(err1, err2); err != nil {
					return nil, err
				}
				if written != nil {
					t.Error("written before the answer")
				}
				return c.answer(r)
			})
			r := &Result{Stage: StageAnswer, ClaimedProviderID: c.claimed}
			err := Admit(t.Context(), a, r, nil)
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) || !slices.Equal(written, c.written) {
				t.Errorf("got %v, written %v, want %v, %v", err, written, c.want, c.written)
			}
			if admitted := r.Authorization.ProviderID != ""; admitted != (err == nil) {
				t.Errorf("the result has authorization %+v after %v", r.Authorization, err)
			}
		})
	}
}

// A write has a decision that it belongs to, or is an error.
func TestWhenAdmittedRefuses(t *testing.T) {
	write := func(context.Context) error { return nil }
	var kept *Result
	ask := func(r *Result, write func(context.Context) error) error {
		var got error
		_ = Admit(t.Context(), AuthorizerFunc(func(_ context.Context, r *Result, _ *csr.Request) (*Authorization, error) {
			kept = r
			got = r.WhenAdmitted(write)
			return &Authorization{}, nil
		}), r, nil)
		return got
	}
	for _, c := range []struct {
		name      string
		got, want error
	}{
		{"of an answer", ask(&Result{Stage: StageAnswer}, write), nil},
		{"of a hello", ask(&Result{Stage: StageHello}, write), errNoWrites},
		{"of no stage", ask(&Result{}, write), errNoWrites},
		{"nil", ask(&Result{Stage: StageAnswer}, nil), errNilWrite},
		{"outside a decision", (&Result{Stage: StageAnswer}).WhenAdmitted(write), errNotPending},
		{"after the decision", kept.WhenAdmitted(write), errNotPending},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !errors.Is(c.got, c.want) {
				t.Errorf("got %v, want %v", c.got, c.want)
			}
		})
	}
}

func TestAdmitInAContextThatIsOver(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Admit(over, &checkedAuthorizer{}, &Result{}, nil); !errors.Is(err, context.Canceled) || !errors.Is(err, csr.ErrRetry) {
		t.Errorf("got %v", err)
	}
}
