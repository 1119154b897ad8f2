package attest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkedAuthorizer is an AuthorizerChecker.
type checkedAuthorizer struct {
	err    error
	opened Opening
}

func (c *checkedAuthorizer) Authorize(context.Context, *Result) (*Authorization, error) {
	return nil, errors.New("not asked here")
}

func (c *checkedAuthorizer) CheckAuthorizer(open Opening) error {
	c.opened = open
	return c.err
}

// A checker gets the verifier's clusters and roads.
func TestCheckerLearnsTheRoads(t *testing.T) {
	a := &checkedAuthorizer{}
	config := fakeConfig(t, &fakeKind{describe: allRoads}, &fakeKind{describe: func(d *Description) { d.Provider = "fake-b" }})
	config.Policy.ClusterIDs, config.Authorizer = []string{"cluster-1", "cluster-2"}, a
	testkit.Must(NewVerifier(config))
	var roads []string
	for _, r := range a.opened.Roads {
		roads = append(roads, r.Provider+" "+r.Road.String())
	}
	if want := []string{"fake ak", "fake ek", "fake document", "fake-b document"}; !slices.Equal(roads, want) || !slices.Equal(a.opened.ClusterIDs, config.Policy.ClusterIDs) {
		t.Errorf("got %q, %q", roads, a.opened.ClusterIDs)
	}
}

// Pending writes run in order after every authorizer, and not at all for a machine that is not admitted.
func TestWhenAdmitted(t *testing.T) {
	broken := errors.New("disk full")
	yes := func(r *Result) (*Authorization, error) {
		a := r.InsecureAdmitAnyone()
		a.ProviderID = "p://1"
		return a, nil
	}
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
		{"another claim", yes, "p://2", nil, checkProviderID, nil},
		{"first write fails", yes, "p://1", broken, refusal.ErrRetry, []string{"first"}},
		{"first write refuses", yes, "p://1", NotMember("x"), CheckMembership, []string{"first"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var written []string
			a := AuthorizerFunc(func(_ context.Context, r *Result) (*Authorization, error) {
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
			r := &Result{Stage: StageAnswer, ClaimedProviderID: csr.NewClaimed(c.claimed)}
			err := AskMembership(t.Context(), a, r)
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) || !slices.Equal(written, c.written) {
				t.Errorf("got %v, written %v, want %v, %v", err, written, c.want, c.written)
			}
			if admitted := r.Granted.ProviderID != ""; admitted != (err == nil) {
				t.Errorf("the result was granted %+v after %v", r.Granted, err)
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
		_ = AskMembership(t.Context(), AuthorizerFunc(func(_ context.Context, r *Result) (*Authorization, error) {
			kept = r
			got = r.WhenAdmitted(write)
			return r.InsecureAdmitAnyone(), nil
		}), r)
		return got
	}
	var atHello error
	hello := helloFunc(func(_ context.Context, r *Result) error { atHello = r.WhenAdmitted(write); return nil })
	if err := AskMembership(t.Context(), hello, &Result{Stage: StageHello}); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		name      string
		got, want error
	}{
		{"of an answer", ask(&Result{Stage: StageAnswer}, write), nil},
		{"of a hello", atHello, errNotPending},
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

func TestMembershipInAContextThatIsOver(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, stage := range []Stage{StageHello, StageAnswer} {
		if err := AskMembership(over, &checkedAuthorizer{}, &Result{Stage: stage}); !errors.Is(err, context.Canceled) || !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("%v: got %v", stage, err)
		}
	}
}

// At the answer an authorizer must agree to the provider ID that is claimed, and a hello's
// claim is held against nothing.
func TestClaimedProviderID(t *testing.T) {
	for _, c := range []struct {
		stage            Stage
		claimed, vouched string
		want             error
	}{
		{StageHello, "p://1", "p://2", nil},
		{StageAnswer, "p://1", "", checkProviderID}, {StageAnswer, "p://1", "p://1", nil}, {StageAnswer, "p://1", "p://2", checkProviderID},
		{StageAnswer, "", "p://1", nil}, {StageAnswer, "", "", nil},
		{StageAnswer, "azure:///vm", "azure:///VM", nil}, {StageAnswer, "p://a", "p://A", checkProviderID},
	} {
		t.Run(fmt.Sprint(c.stage, " ", c.claimed, " ", c.vouched), func(t *testing.T) {
			a := AuthorizerFunc(func(_ context.Context, r *Result) (*Authorization, error) {
				a := r.InsecureAdmitAnyone()
				a.ProviderID = c.vouched
				return a, nil
			})
			err := AskMembership(context.Background(), a, &Result{Stage: c.stage, ClaimedProviderID: csr.NewClaimed(c.claimed)})
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%v, vouched %q: %v", c.stage, c.vouched, err)
			}
		})
	}
}

// A reading from the future is no reading, and a key that waits is enough.
func TestKeyRingEdges(t *testing.T) {
	ring := testkit.Must(newKeyRing([]RingKey{NewRingKey(ringTime.Add(-time.Hour))}, ringTime.Add(clockSkew)))
	if _, err := ring.newest(ringTime); err != nil {
		t.Errorf("a reading within the skew: %v", err)
	}
	if _, err := ring.newest(ringTime.Add(-time.Second)); !errors.Is(err, checkRingStale) || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("a reading from the future: %v", err)
	}
	keys := []RingKey{NewRingKey(ringTime)}
	for n := range 600 { // every minute for ten hours
		keys, _ = RotateKeys(keys, ringTime.Add(time.Duration(n)*time.Minute), 0)
	}
	data := testkit.Must(MarshalRingKeys(keys))
	if back, err := ParseRingKeys(data); err != nil || len(back) != len(keys) {
		t.Errorf("%d of %d keys, %v", len(back), len(keys), err)
	}
	early := NewRingKey(time.Unix(0, 1))
	if _, err := MarshalRingKeys([]RingKey{early}); err == nil {
		t.Error("a time that cannot be read again was written")
	}
}

// An error that wraps the check in any way is a refusal; any other is a retry.
func TestRefusalsOfAuthorizers(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want csr.Verdict
	}{
		"the constant":     {CheckMembership, csr.VerdictDeny},
		"wrapped":          {fmt.Errorf("board 7: %w", CheckMembership), csr.VerdictDeny},
		"joined":           {errors.Join(errors.New("gone"), CheckMembership), csr.VerdictDeny},
		"NotMember":        {NotMember("gone"), csr.VerdictDeny},
		"wrapped Error":    {fmt.Errorf("x: %w", NotMember("gone")), csr.VerdictDeny},
		"something else":   {errors.New("no connection"), csr.VerdictRetry},
		"both":             {errors.Join(CheckMembership, refusal.ErrRetry), csr.VerdictRetry},
		"a context's":      {context.DeadlineExceeded, csr.VerdictRetry},
		"nil and no error": {nil, csr.VerdictDeny},
	} {
		t.Run(name, func(t *testing.T) {
			a := AuthorizerFunc(func(context.Context, *Result) (*Authorization, error) { return nil, c.err })
			err := AskMembership(t.Context(), a, &Result{Stage: StageAnswer})
			if got := csr.Decide(err).Verdict; got != c.want {
				t.Errorf("%v, want %v (%v)", got, c.want, err)
			}
			if c.err == nil {
				return // which at a hello is no refusal
			}
			err = AskMembership(t.Context(), helloFunc(func(context.Context, *Result) error { return c.err }), &Result{Stage: StageHello})
			if got := csr.Decide(err).Verdict; got != c.want {
				t.Errorf("at the hello: %v, want %v (%v)", got, c.want, err)
			}
		})
	}
}
