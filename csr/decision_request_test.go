package csr_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// outcomes are the results of a verification, by the verdict on a request that no approver has
// approved.
func outcomes(t *testing.T) map[csr.Verdict]csr.UnplacedDecision {
	t.Helper()
	return map[csr.Verdict]csr.UnplacedDecision{
		csr.VerdictApprove: goodVerified(goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).mustCheck(t)).Decision(),
		csr.VerdictDeny:    csr.Decide(&csr.Error{Check: csr.CheckUsages}),
		csr.VerdictRetry:   csr.Decide(refusal.Retry(errors.New("no answer"))),
		csr.VerdictIgnore:  csr.Decide(fmt.Errorf("%w: x", csr.ErrOtherSigner)),
	}
}

func TestDecisionFor(t *testing.T) {
	deleted := time.Unix(0, 0)
	condition := func(types ...string) func(*csr.Request) {
		return func(r *csr.Request) {
			for _, c := range types {
				r.Status.Conditions = append(r.Status.Conditions, csr.Condition{Type: c, Status: "True"})
			}
		}
	}
	type verdicts = map[csr.Verdict]csr.Verdict
	asFound := verdicts{}
	approved := verdicts{csr.VerdictDeny: csr.VerdictFail}
	closed := verdicts{csr.VerdictApprove: csr.VerdictIgnore, csr.VerdictDeny: csr.VerdictIgnore, csr.VerdictRetry: csr.VerdictIgnore}
	for name, c := range map[string]struct {
		change func(*csr.Request)
		want   verdicts // that differ from those on an open request
	}{
		"open":                        {func(*csr.Request) {}, asFound},
		"foreign condition":           {condition("example.com/Seen"), asFound},
		"annotated as approved":       {func(r *csr.Request) { r.Metadata.Annotations = map[string]string{"Approved": "True"} }, asFound},
		"approved":                    {condition(csr.ConditionApproved), approved},
		"approved, foreign condition": {condition("example.com/Seen", csr.ConditionApproved), approved},
		"approved, issued":            {func(r *csr.Request) { condition(csr.ConditionApproved)(r); r.Status.Certificate = []byte("x") }, closed},
		"issued":                      {func(r *csr.Request) { r.Status.Certificate = []byte("x") }, closed},
		"denied":                      {condition(csr.ConditionDenied), closed},
		"failed":                      {condition(csr.ConditionFailed), closed},
		"approved, failed":            {condition(csr.ConditionApproved, csr.ConditionFailed), closed},
		"being deleted":               {func(r *csr.Request) { r.Metadata.DeletionTimestamp = &deleted }, closed},
		"approved, being deleted":     {func(r *csr.Request) { condition(csr.ConditionApproved)(r); r.Metadata.DeletionTimestamp = &deleted }, closed},
		"denied with the status Unknown": {func(r *csr.Request) {
			r.Status.Conditions = []csr.Condition{{Type: csr.ConditionDenied, Status: "Unknown"}}
		}, closed},
	} {
		t.Run(name, func(t *testing.T) {
			for found, decision := range outcomes(t) {
				t.Run(name+", "+found.String(), func(t *testing.T) {
					r := &csr.Request{Metadata: csr.Metadata{UID: "u", ResourceVersion: "7"}}
					c.change(r)
					want, ok := c.want[found]
					if !ok {
						want = found
					}
					d := decision.For(r)
					if d.Verdict != want {
						t.Errorf("got %v, want %v", d.Verdict, want)
					}
					if d.UID != "u" || d.ResourceVersion != "7" {
						t.Errorf("got a decision about object %q at %q", d.UID, d.ResourceVersion)
					}
					checkPlace(t, d, r)
				})
			}
		})
	}
}

// checkPlace compares the condition of a decision with the rules of an API server.
func checkPlace(t *testing.T, d csr.Decision, r *csr.Request) {
	t.Helper()
	want := map[csr.Verdict][2]string{
		csr.VerdictApprove: {csr.ConditionApproved, csr.SubresourceApproval},
		csr.VerdictDeny:    {csr.ConditionDenied, csr.SubresourceApproval},
		csr.VerdictFail:    {csr.ConditionFailed, csr.SubresourceStatus},
	}[d.Verdict]
	if d.Verdict == csr.VerdictApprove && r.HasCondition(csr.ConditionApproved) {
		want = [2]string{}
	}
	if got := [2]string{d.Condition, d.Subresource}; got != want {
		t.Errorf("%v is written as %q, want %q", d.Verdict, got, want)
	}
	if d.Condition != "" && r.HasCondition(d.Condition) {
		t.Errorf("a second condition %s", d.Condition)
	}
	if d.Reason == "" || d.Message == "" {
		t.Errorf("got reason %q, message %q", d.Reason, d.Message)
	}
}

// TestDecisionWithoutAnObject: for no request nothing is decided, and only an approval is for one object.
func TestDecisionWithoutAnObject(t *testing.T) {
	another := &csr.Request{Metadata: csr.Metadata{UID: "another"}}
	for verdict, unplaced := range outcomes(t) {
		t.Run(verdict.String(), func(t *testing.T) {
			if unplaced.Verdict != verdict {
				t.Errorf("got %+v", unplaced)
			}
			for _, r := range []*csr.Request{nil, another} {
				want, d := verdict, unplaced.For(r)
				if r == nil || verdict == csr.VerdictApprove {
					want = csr.VerdictRetry
				}
				if d.Verdict != want {
					t.Errorf("for %v: got %v, want %v", r, d.Verdict, want)
				}
				checkPlace(t, d, &csr.Request{})
			}
		})
	}
}

// TestUnplacedDecision: a decision that was not made for an object has nothing to write, nowhere to write
// it, and no object to write it to. That is its type's to say.
func TestUnplacedDecision(t *testing.T) {
	unplaced, placed := reflect.TypeFor[csr.UnplacedDecision](), reflect.TypeFor[csr.Decision]()
	for _, name := range []string{"Condition", "Subresource", "UID", "ResourceVersion"} {
		if _, ok := unplaced.FieldByName(name); ok {
			t.Errorf("an UnplacedDecision has a %s", name)
		}
		if _, ok := placed.FieldByName(name); !ok {
			t.Errorf("a Decision has no %s", name)
		}
	}
	if unplaced.ConvertibleTo(placed) || placed.NumMethod() > 0 {
		t.Error("a Decision can be made of an UnplacedDecision in another way than For")
	}
}

// TestClaimedIsNoString: no assignment and no conversion makes a provider ID of a claim.
func TestClaimedIsNoString(t *testing.T) {
	claimed := reflect.TypeFor[csr.Claimed]()
	if claimed.ConvertibleTo(reflect.TypeFor[string]()) || reflect.TypeFor[string]().ConvertibleTo(claimed) {
		t.Error("a claim can be converted")
	}
	if got := csr.NewClaimed("test://1").Unproven(); got != "test://1" || csr.NewClaimed("") != (csr.Claimed{}) {
		t.Errorf("got %q", got)
	}
}

// TestPolicyOnFinishedRequests: a controller is called once more after its own write, and
// must write nothing then, whatever else is wrong with the request.
func TestPolicyOnFinishedRequests(t *testing.T) {
	for name, finish := range map[string]func(*csr.Request){
		"issued": func(r *csr.Request) {
			r.Status = csr.Status{Conditions: []csr.Condition{{Type: csr.ConditionApproved, Status: "True"}}, Certificate: []byte("x")}
		},
		"denied": func(r *csr.Request) {
			r.Status.Conditions = []csr.Condition{{Type: csr.ConditionDenied, Status: "True"}}
		},
		"failed": func(r *csr.Request) {
			r.Status.Conditions = []csr.Condition{{Type: csr.ConditionFailed, Status: "True"}}
		},
		"being deleted": func(r *csr.Request) { r.Metadata.DeletionTimestamp = &issueTime },
	} {
		t.Run(name, func(t *testing.T) {
			for _, broken := range []bool{false, true} {
				f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
				finish(f.request)
				if broken {
					f.request.Spec.Usages = nil
				}
				_, err := f.check(t)
				if !errors.Is(err, csr.CheckRequestClosed) || errors.Is(err, csr.CheckUsages) != broken {
					t.Errorf("got %v", err)
				}
				if d := csr.Decide(err); d.Verdict != csr.VerdictIgnore {
					t.Errorf("got %+v, want nothing to write", d)
				}
				if d := csr.Decide(err).For(f.request); d.Verdict != csr.VerdictIgnore || d.Condition != "" || d.Subresource != "" {
					t.Errorf("got %+v, want nothing to write", d)
				}
			}
		})
	}
}

// TestPolicyOnApprovedRequests: who else can approve is no reason to deny or to accept.
func TestPolicyOnApprovedRequests(t *testing.T) {
	f := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap)
	f.request.Status.Conditions = []csr.Condition{{Type: csr.ConditionApproved, Status: "True", Reason: "BySomebodyElse"}}
	if d := goodVerified(f.mustCheck(t)).Decision().For(f.request); d.Verdict != csr.VerdictApprove || d.Condition != "" {
		t.Errorf("a good request: got %+v", d)
	}
	f.request.Spec.Usages = nil
	_, err := f.check(t)
	if d := csr.Decide(err).For(f.request); d.Verdict != csr.VerdictFail || d.Condition != csr.ConditionFailed || d.Subresource != csr.SubresourceStatus || d.Reason != "Usages" {
		t.Errorf("a bad request: got %+v (%v)", d, err)
	}
}
