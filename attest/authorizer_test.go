package attest

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// An authorization is of the very result that is decided about, for its node.
func TestAuthorizations(t *testing.T) {
	var atHello *Authorization
	var hello *Result
	another := &Result{Stage: StageAnswer, NodeName: "node-1"}
	for name, c := range map[string]struct {
		admit func(r *Result) *Authorization
		good  bool
	}{
		"of this result for its node": {func(r *Result) *Authorization { return r.Admit("node-1") }, true},
		"a copy of that":              {func(r *Result) *Authorization { a := *r.Admit("node-1"); return &a }, true},
		"the second of two":           {func(r *Result) *Authorization { r.Admit("node-2"); return r.Admit("node-1") }, true},
		"nil":                         {func(*Result) *Authorization { return nil }, false},
		"a literal":                   {func(*Result) *Authorization { return &Authorization{} }, false},
		"a literal with a grant": {func(*Result) *Authorization {
			return &Authorization{Grant: csr.Grant{ProviderID: "p://1"}}
		}, false},
		"of another result":        {func(*Result) *Authorization { return another.Admit("node-1") }, false},
		"of a copy of this result": {func(r *Result) *Authorization { again := *r; return again.Admit("node-1") }, false},
		"of the hello's result":    {func(*Result) *Authorization { return atHello }, false},
		"for another node":         {func(r *Result) *Authorization { return r.Admit("node-2") }, false},
		"for a longer name":        {func(r *Result) *Authorization { return r.Admit("node-11") }, false},
		"for the name in capitals": {func(r *Result) *Authorization { return r.Admit("NODE-1") }, false},
		"for no node":              {func(r *Result) *Authorization { return r.Admit("") }, false},
		"with a UID that the inventory contradicts": {func(r *Result) *Authorization {
			a := r.Admit("node-1")
			a.MachineUID = "another"
			return a
		}, false},
		"for the node that it asked": {func(r *Result) *Authorization { r.NodeName = "node-2"; return r.Admit("node-1") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			written := false
			config := fakeConfig(t, &fakeKind{describe: allRoads})
			known := config.Policy.Machines
			config.Policy.Machines = func(ctx context.Context, q csr.Question) (*csr.Machine, error) {
				m, err := known(ctx, q)
				if m != nil {
					m.UID = "uid-1"
				}
				return m, err
			}
			config.Authorizer = &twoStages{func(r *Result) { atHello, hello = r.InsecureAdmitAnyone(), r }, func(r *Result) (*Authorization, error) {
				return c.admit(r), r.WhenAdmitted(func(context.Context) error { written = true; return nil })
			}}
			v := testkit.Must(NewVerifier(config))
			p := newFakeProver()
			p.road = RoadAK
			r, err := joinFake(t, v, newFakeNode(t, p))
			if atHello.AdmittedAs(hello) != "node-1" || atHello.AdmittedAs(r) != "" || atHello.AdmittedAs(nil) != "" {
				t.Fatalf("the hello was for %q, the answer for %q", atHello.AdmittedAs(hello), atHello.AdmittedAs(r))
			}
			if c.good {
				if err != nil || r.Attested() == nil || !written {
					t.Errorf("got %v, written: %t", err, written)
				}
				return
			}
			expectRefusal(t, err, CheckMembership)
			if r != nil || written || csr.Decide(err).Verdict != csr.VerdictDeny {
				t.Errorf("got %v, written: %t", r, written)
			}
		})
	}
}

// twoStages is an authorizer of two functions.
type twoStages struct {
	hello  func(*Result)
	answer func(*Result) (*Authorization, error)
}

func (s *twoStages) AuthorizeHello(_ context.Context, r *Result) error { s.hello(r); return nil }

func (s *twoStages) Authorize(_ context.Context, r *Result) (*Authorization, error) {
	return s.answer(r)
}

// A grant is a copy: later changes by the authorizer, or to the Result, do not reach the certificate.
func TestGrantsAreCopies(t *testing.T) {
	var given *Authorization
	config := fakeConfig(t, &fakeKind{})
	config.Authorizer = AuthorizerFunc(func(_ context.Context, r *Result) (*Authorization, error) {
		given = r.InsecureAdmitAnyone()
		given.ProviderID, given.DNSNames, given.IPAddresses = "p://1", []string{"a.example"}, []netip.Addr{netip.MustParseAddr("192.0.2.1")}
		return given, nil
	})
	v := testkit.Must(NewVerifier(config))
	r := testkit.Must(joinFake(t, v, newFakeNode(t, newFakeProver())))
	change := func(g *csr.Grant) {
		g.ProviderID, g.DNSNames[0], g.IPAddresses[0] = "p://2", "b.example", netip.MustParseAddr("192.0.2.2")
	}
	change(&given.Grant)
	if g := r.Granted; g.ProviderID != "p://1" || g.DNSNames[0] != "a.example" || g.IPAddresses[0].String() != "192.0.2.1" {
		t.Errorf("the authorizer changed the result: %+v", g)
	}
	change(&r.Granted)
	r.Machine, r.NodeName = "fake:m2", "node-2"
	a := r.Attested()
	if g := a.Grant(); g.ProviderID != "p://1" || g.DNSNames[0] != "a.example" || g.IPAddresses[0].String() != "192.0.2.1" {
		t.Errorf("the result changed the grant: %+v", g)
	}
	if a.Machine() != "fake:m1" || a.Checked().NodeName() != "node-1" || a.Details() != any(r) {
		t.Errorf("it is machine %s as node %s", a.Machine(), a.Checked().NodeName())
	}
}

// An authorizer that drops the error of WhenAdmitted admits no machine; its own refusal is unchanged.
func TestDroppedErrorsOfWrites(t *testing.T) {
	refused := NotMember("x")
	for name, c := range map[string]struct {
		handIn func(*Result)
		err    error
		want   error // nil for admitted
	}{
		"nothing is wrong": {func(*Result) {}, nil, nil},
		"a nil write":      {func(r *Result) { _ = r.WhenAdmitted(nil) }, nil, refusal.ErrRetry},
		"a nil record":     {func(r *Result) { _ = r.WhenIssued(nil) }, nil, refusal.ErrRetry},
		"by a copy":        {func(r *Result) { again := *r; _ = again.WhenAdmitted(nil) }, nil, refusal.ErrRetry},
		"and a refusal":    {func(r *Result) { _ = r.WhenAdmitted(nil) }, refused, CheckMembership},
		"of another's":     {func(*Result) { _ = new(Result).WhenAdmitted(nil) }, nil, nil},
		"after good writes": {func(r *Result) {
			_ = r.WhenAdmitted(func(context.Context) error { return nil })
			_ = r.WhenAdmitted(nil)
		}, nil, refusal.ErrRetry},
		"and then a refusal": {func(r *Result) { _ = r.WhenIssued(nil) }, errors.New("db"), refusal.ErrRetry},
	} {
		t.Run(name, func(t *testing.T) {
			written := 0
			a := AuthorizerFunc(func(_ context.Context, r *Result) (*Authorization, error) {
				c.handIn(r)
				if err := r.WhenAdmitted(func(context.Context) error { written++; return nil }); err != nil {
					t.Error(err)
				}
				return r.InsecureAdmitAnyone(), c.err
			})
			err := AskMembership(t.Context(), a, &Result{Stage: StageAnswer})
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) || written != map[bool]int{true: 1}[c.want == nil] {
				t.Errorf("got %v, written %d times, want %v", err, written, c.want)
			}
			if retry := errors.Is(err, refusal.ErrRetry); retry != (c.want == refusal.ErrRetry) { //nolint:errorlint // the very one
				t.Errorf("%v: to be tried again: %t", err, retry)
			}
		})
	}
}

// An authorizer that writes in Authorize is not led to it by hellos, which prove nothing.
func TestHellosWriteNothing(t *testing.T) {
	bound := map[string]Identity{}
	config := fakeConfig(t, &fakeKind{describe: allRoads})
	config.Authorizer = AuthorizerFunc(func(_ context.Context, r *Result) (*Authorization, error) {
		bound[r.NodeName] = r.Machine
		return r.InsecureAdmitAnyone(), nil
	})
	v := testkit.Must(NewVerifier(config))
	for _, road := range []Road{RoadAK, RoadEK, RoadDocument} {
		p := newFakeProver()
		p.road = road
		n := newFakeNode(t, p)
		challenge, err := v.Challenge(t.Context(), n.hello(t))
		if err != nil || len(bound) != 0 {
			t.Errorf("%v: a hello bound %v, %v", road, bound, err)
		}
		if _, err := v.Verify(t.Context(), n.answer(t, challenge)); err != nil || bound["node-1"] != "fake:m1" {
			t.Errorf("%v: an answer bound %v, %v", road, bound, err)
		}
		clear(bound)
	}
}

// CheckAuthorizer refuses a nil authorizer, and one that does not fit.
func TestCheckAuthorizer(t *testing.T) {
	never := errors.New("never fits")
	open := Opening{ClusterIDs: []string{"c"}, Roads: []OpenRoad{{Provider: "fake", Road: RoadEK}}}
	for name, c := range map[string]struct {
		authorizer Authorizer
		want       error // nil for a good one
	}{
		"a function":          {AuthorizerFunc(admitAll), nil},
		"one that fits":       {&checkedAuthorizer{}, nil},
		"nil":                 {nil, errNoAuthorizer},
		"one that never fits": {&checkedAuthorizer{err: never}, never},
	} {
		t.Run(name, func(t *testing.T) {
			if err := CheckAuthorizer(c.authorizer, open); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			config := fakeConfig(t, &fakeKind{})
			config.Authorizer = c.authorizer
			v, err := NewVerifier(config)
			if !errors.Is(err, c.want) || (v != nil) != (c.want == nil) || c.want != nil && !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("NewVerifier: got %v, %v", v, err)
			}
			if c.want == errNoAuthorizer { //nolint:errorlint // the very one
				r := &Result{Stage: StageAnswer}
				if err := AskMembership(t.Context(), c.authorizer, r); !errors.Is(err, refusal.ErrRetry) || r.Attested() != nil {
					t.Errorf("AskMembership: got %v", err)
				}
			}
		})
	}
	inner := &checkedAuthorizer{}
	if err := CheckAuthorizer(inner, open); err != nil || !slices.Equal(inner.opened.ClusterIDs, open.ClusterIDs) || len(inner.opened.Roads) != 1 {
		t.Errorf("the inner one was told %+v, %v", inner.opened, err)
	}
}

// An authorizer that calls AskMembership inside Authorize admits no machine, whatever it does with the
// result, and no write of the inner authorizer runs.
func TestMembershipInsideAuthorize(t *testing.T) {
	for name, nested := range map[string]func(ctx context.Context, inner Authorizer, r *Result) (*Authorization, error){
		"passed on": func(ctx context.Context, inner Authorizer, r *Result) (*Authorization, error) {
			return r.InsecureAdmitAnyone(), AskMembership(ctx, inner, r)
		},
		"on a copy": func(ctx context.Context, inner Authorizer, r *Result) (*Authorization, error) {
			again := *r
			return r.InsecureAdmitAnyone(), AskMembership(ctx, inner, &again)
		},
		"refused after all": func(ctx context.Context, inner Authorizer, r *Result) (*Authorization, error) {
			if err := AskMembership(ctx, inner, r); err != nil {
				return nil, err
			}
			return nil, NotMember("x")
		},
		"the outer one again": func(ctx context.Context, inner Authorizer, r *Result) (*Authorization, error) {
			return r.InsecureAdmitAnyone(), AskMembership(ctx, AuthorizerFunc(inner.Authorize), r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			written := 0
			inner := AuthorizerFunc(func(_ context.Context, r *Result) (*Authorization, error) {
				return r.InsecureAdmitAnyone(), errors.Join(r.WhenAdmitted(func(context.Context) error { written++; return nil }),
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
			v := testkit.Must(NewVerifier(config))
			r, err := joinFake(t, v, newFakeNode(t, newFakeProver()))
			if r != nil || !errors.Is(err, refusal.ErrRetry) || written != 0 {
				t.Errorf("got %v, %v, written %d times", r, err, written)
			}
		})
	}
	// The very same authorizer, asked by its method, is admitted.
	r := &Result{Stage: StageAnswer}
	if err := AskMembership(t.Context(), AuthorizerFunc(AuthorizerFunc(admitAll).Authorize), r); err != nil {
		t.Error(err)
	}
	if err := AskMembership(t.Context(), AuthorizerFunc(admitAll), r); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("decided twice: %v", err)
	}
}

// Without a result, a context or an authorizer there is no membership.
func TestMembershipOfNothing(t *testing.T) {
	good := AuthorizerFunc(admitAll)
	for name, err := range map[string]error{
		"no result":     AskMembership(t.Context(), good, nil),
		"no context":    AskMembership(nil, good, &Result{Stage: StageAnswer}), //nolint:staticcheck // the mistake
		"no authorizer": AskMembership(t.Context(), nil, &Result{Stage: StageAnswer}),
		"no stage":      AskMembership(t.Context(), good, &Result{}),
	} {
		if !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// countingAuthorizer is asked at hellos too, and refuses at one stage.
type countingAuthorizer struct {
	asked   []Stage
	refuses Stage
}

func (c *countingAuthorizer) AuthorizeHello(_ context.Context, r *Result) error {
	if c.asked = append(c.asked, r.Stage); c.refuses == StageHello {
		return NotMember("x")
	}
	return nil
}

func (c *countingAuthorizer) Authorize(_ context.Context, r *Result) (*Authorization, error) {
	if c.asked = append(c.asked, r.Stage); c.refuses == StageAnswer {
		return nil, NotMember("x")
	}
	return r.InsecureAdmitAnyone(), nil
}

// A panic of a kind or of an authorizer is the caller's own, and costs the verifier nothing: the next
// machine is admitted.
func TestPanicsOfKindsAndAuthorizers(t *testing.T) {
	var panics string
	fault := func(who string) {
		if who == panics {
			panic("a bug of the " + who)
		}
	}
	kind := &fakeKind{find: func(_ Stage, _ *Inquiry, f *Findings) *Findings { fault("kind"); return f }}
	config := fakeConfig(t, kind)
	config.Authorizer = AuthorizerFunc(func(_ context.Context, r *Result) (*Authorization, error) {
		fault("authorizer")
		return r.InsecureAdmitAnyone(), nil
	})
	v := testkit.Must(NewVerifier(config))
	for _, panics = range []string{"kind", "authorizer", ""} {
		var result *Result
		var err error
		var caught any
		func() {
			defer func() { caught = recover() }()
			result, err = joinFake(t, v, newFakeNode(t, newFakeProver()))
		}()
		if (caught != nil) != (panics != "") || (result != nil) != (panics == "") || err != nil {
			t.Errorf("%q panics: caught %v, result %v, %v", panics, caught, result, err)
		}
	}
}

// Membership is checked at the answer, and also at the hello if the authorizer has
// AuthorizeHello. For a document it is checked only at the answer.
func TestWhenMembershipIsAsked(t *testing.T) {
	both, answer := []Stage{StageHello, StageAnswer}, []Stage{StageAnswer}
	counting := &countingAuthorizer{}
	for name, c := range map[string]struct {
		authorizer Authorizer
		want       map[Road][]Stage
	}{
		"asked at hellos": {counting, map[Road][]Stage{RoadAK: both, RoadEK: both, RoadDocument: answer}},
		"asked only at the answer": {AuthorizerFunc(counting.Authorize),
			map[Road][]Stage{RoadAK: answer, RoadEK: answer, RoadDocument: answer}},
	} {
		for road, want := range c.want {
			t.Run(name+" on "+road.String(), func(t *testing.T) {
				counting.asked = nil
				config := fakeConfig(t, &fakeKind{describe: allRoads})
				config.Authorizer = c.authorizer
				v := testkit.Must(NewVerifier(config))
				p := newFakeProver()
				p.road = road
				if _, err := joinFake(t, v, newFakeNode(t, p)); err != nil || !slices.Equal(counting.asked, want) {
					t.Errorf("asked at %v, want %v, %v", counting.asked, want, err)
				}
			})
		}
	}
}

// A machine that is refused at the hello gets no challenge. With a document, or with an
// authorizer that is asked only at the answer, it is refused at the answer.
func TestMembershipRefusesHellos(t *testing.T) {
	hello := map[Road]Check{RoadAK: CheckMembership, RoadEK: CheckMembership, RoadDocument: ""}
	later := map[Road]Check{}
	for name, c := range map[string]struct {
		authorizer Authorizer
		want       map[Road]Check
	}{
		"at hellos":          {helloFunc(func(context.Context, *Result) error { return &Error{Check: CheckMembership, Want: "a member"} }), hello},
		"only at the answer": {&countingAuthorizer{refuses: StageAnswer}, later},
		"by a function":      {AuthorizerFunc((&countingAuthorizer{refuses: StageAnswer}).Authorize), later},
	} {
		for _, road := range []Road{RoadAK, RoadEK, RoadDocument} {
			t.Run(name+" on "+road.String(), func(t *testing.T) {
				want, k := c.want[road], &fakeKind{describe: allRoads}
				config := fakeConfig(t, k)
				config.Authorizer = c.authorizer
				v := testkit.Must(NewVerifier(config))
				p := newFakeProver()
				p.road = road
				n := newFakeNode(t, p)
				challenge, err := v.Challenge(t.Context(), n.hello(t))
				expectRefusal(t, err, want)
				if (challenge != nil) != (want == "") || slices.Contains(k.asked, "Seal") != (want == "") {
					t.Errorf("a challenge of %d bytes, asked for %q", len(challenge), k.asked)
				}
				if challenge != nil {
					r, err := v.Verify(t.Context(), n.answer(t, challenge))
					expectRefusal(t, err, CheckMembership)
					if r != nil {
						t.Error("a result")
					}
				}
			})
		}
	}
}
