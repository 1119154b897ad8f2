package attest

import (
	"context"
	"errors"
	"fmt"
	"github.com/nodeattest/nodeattest/refusal"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/authorizer"
)

// checkedAuthorizer is an AuthorizerChecker.
type checkedAuthorizer struct {
	err   error
	roads []OpenRoad
}

func (c *checkedAuthorizer) Authorize(context.Context, *Result, *csr.Request) (*Authorization, error) {
	return nil, errors.New("not asked here")
}

func (c *checkedAuthorizer) CheckAuthorizer(roads []OpenRoad) error {
	c.roads = roads
	return c.err
}

// A checker learns which roads are open.
func TestCheckerLearnsTheRoads(t *testing.T) {
	a := &checkedAuthorizer{}
	open := []OpenRoad{{Provider: "tpm", Road: RoadEK}}
	if err := authorizer.Check(a, open); err != nil || len(a.roads) != 1 || a.roads[0].Road != RoadEK {
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
		_ = Admit(t.Context(), AuthorizerFunc(func(_ context.Context, r *Result) (*Authorization, error) {
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
	if err := Admit(over, &checkedAuthorizer{}, &Result{}, nil); !errors.Is(err, context.Canceled) || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("got %v", err)
	}
}

// At the hello an authorizer need not know the provider ID yet; at the answer it
// must agree.
func TestProviderIDAtTheHello(t *testing.T) {
	for _, c := range []struct {
		stage   Stage
		vouched string
		want    error
	}{
		{StageHello, "", nil}, {StageHello, "p://1", nil}, {StageHello, "p://2", CheckProviderID},
		{StageAnswer, "", CheckProviderID}, {StageAnswer, "p://1", nil}, {StageAnswer, "p://2", CheckProviderID},
	} {
		t.Run(fmt.Sprint(c.stage), func(t *testing.T) {
			a := AuthorizerFunc(func(context.Context, *Result, *csr.Request) (*Authorization, error) {
				return &Authorization{ProviderID: c.vouched}, nil
			})
			err := Admit(context.Background(), a, &Result{Stage: c.stage, ClaimedProviderID: "p://1"}, &csr.Request{})
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%v, vouched %q: %v", c.stage, c.vouched, err)
			}
		})
	}
}

// A reading from the future is no reading, and a key that waits is enough.
func TestKeyRingEdges(t *testing.T) {
	ring, err := NewKeyRing([]RingKey{NewRingKey(ringTime.Add(-time.Hour))}, ringTime.Add(clockSkew))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ring.newest(ringTime); err != nil {
		t.Errorf("a reading within the skew: %v", err)
	}
	if _, err := ring.newest(ringTime.Add(-time.Second)); !errors.Is(err, CheckRingStale) || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("a reading from the future: %v", err)
	}
	keys := []RingKey{NewRingKey(ringTime)}
	for n := range 600 { // every minute for ten hours
		keys = RotateKeys(keys, ringTime.Add(time.Duration(n)*time.Minute))
	}
	data, err := MarshalRingKeys(keys)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := ParseRingKeys(data); err != nil || len(back) != len(keys) {
		t.Errorf("%d of %d keys, %v", len(back), len(keys), err)
	}
	early := NewRingKey(time.Unix(0, 1))
	if _, err := MarshalRingKeys([]RingKey{early}); err == nil {
		t.Error("a time that cannot be read again was written")
	}
}

// However an authorizer wraps the check, it is a refusal; anything else is none.
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
			a := AuthorizerFunc(func(context.Context, *Result, *csr.Request) (*Authorization, error) { return nil, c.err })
			err := Admit(t.Context(), a, &Result{}, &csr.Request{})
			if got := csr.Decide(err).Verdict; got != c.want {
				t.Errorf("%s: %v, want %v (%v)", name, got, c.want, err)
			}
		})
	}
}
