package attest

import (
	"context"

	"slices"

	"testing"
)

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
	return r.Admit(r.NodeName), nil
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
				v, err := NewVerifier(config)
				if err != nil {
					t.Fatal(err)
				}
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
				v, err := NewVerifier(config)
				if err != nil {
					t.Fatal(err)
				}
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
