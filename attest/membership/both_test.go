package membership

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// says admits with a grant, or not; without one it says nothing.
func says(g *csr.Grant, err error, asked *int) attest.Authorizer {
	return attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
		*asked++
		if g == nil {
			return nil, err
		}
		a := r.InsecureAdmitAnyone()
		a.Grant = *g
		return a, err
	})
}

func TestBothIntersects(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	ip, mapped, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::ffff:192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for name, c := range map[string]struct{ a, b, want csr.Grant }{
		"nothing":           {},
		"same provider ID":  {csr.Grant{ProviderID: "p"}, csr.Grant{ProviderID: "p"}, csr.Grant{ProviderID: "p"}},
		"the first's case":  {csr.Grant{ProviderID: "azure:///A"}, csr.Grant{ProviderID: "azure:///a"}, csr.Grant{ProviderID: "azure:///A"}},
		"one provider ID":   {csr.Grant{ProviderID: "p"}, csr.Grant{}, csr.Grant{}},
		"other provider ID": {csr.Grant{}, csr.Grant{ProviderID: "p"}, csr.Grant{}},
		"names": {csr.Grant{DNSNames: []string{"A.example", "b.example"}}, csr.Grant{DNSNames: []string{"c.example", "a.example"}},
			csr.Grant{DNSNames: []string{"A.example"}}},
		"addresses": {csr.Grant{IPAddresses: []netip.Addr{ip, other}}, csr.Grant{IPAddresses: []netip.Addr{mapped}},
			csr.Grant{IPAddresses: []netip.Addr{ip}}},
		"a slot by one":  {csr.Grant{MachineUID: "s"}, csr.Grant{}, csr.Grant{MachineUID: "s"}},
		"by the other":   {csr.Grant{}, csr.Grant{MachineUID: "s"}, csr.Grant{MachineUID: "s"}},
		"a slot by both": {csr.Grant{MachineUID: "s"}, csr.Grant{MachineUID: "s"}, csr.Grant{MachineUID: "s"}},
		"one end":        {csr.Grant{NotAfter: at}, csr.Grant{}, csr.Grant{NotAfter: at}},
		"other end":      {csr.Grant{}, csr.Grant{NotAfter: at}, csr.Grant{NotAfter: at}},
		"earlier end":    {csr.Grant{NotAfter: at.Add(1)}, csr.Grant{NotAfter: at}, csr.Grant{NotAfter: at}},
	} {
		t.Run(name, func(t *testing.T) {
			asked, r := 0, &attest.Result{Stage: attest.StageAnswer, NodeName: "node-1"}
			got, err := Both(says(&c.a, nil, &asked), says(&c.b, nil, &asked)).Authorize(context.Background(), r)
			if err != nil || got.AdmittedAs(r) != "node-1" || !reflect.DeepEqual(got.Grant, c.want) || asked != 2 {
				t.Errorf("%s: got %+v, %v after %d questions, want %+v", name, got, err, asked, c.want)
			}
		})
	}
}

func TestBothRefuses(t *testing.T) {
	broken := errors.New("database away")
	yes, p, q := &csr.Grant{}, &csr.Grant{ProviderID: "p"}, &csr.Grant{ProviderID: "q"}
	asked := 0
	other := func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
		asked++
		return r.Admit("node-2"), nil
	}
	for name, c := range map[string]struct {
		a, b  attest.Authorizer
		asked int
		want  error
	}{
		"first refuses":       {says(nil, attest.NotMember("x"), &asked), says(yes, nil, &asked), 1, attest.CheckMembership},
		"second refuses":      {says(yes, nil, &asked), says(nil, attest.NotMember("x"), &asked), 2, attest.CheckMembership},
		"first fails":         {says(nil, broken, &asked), says(yes, nil, &asked), 1, broken},
		"second fails":        {says(yes, nil, &asked), says(nil, broken, &asked), 2, broken},
		"first says nothing":  {says(nil, nil, &asked), says(yes, nil, &asked), 1, attest.CheckMembership},
		"second says nothing": {says(yes, nil, &asked), says(nil, nil, &asked), 2, attest.CheckMembership},
		"two provider IDs":    {says(p, nil, &asked), says(q, nil, &asked), 2, attest.CheckMembership},
		"two slots":           {says(&csr.Grant{MachineUID: "s"}, nil, &asked), says(&csr.Grant{MachineUID: "t"}, nil, &asked), 2, attest.CheckMembership},
		"two nodes":           {says(p, nil, &asked), attest.AuthorizerFunc(other), 2, attest.CheckMembership},
	} {
		t.Run(name, func(t *testing.T) {
			asked = 0
			got, err := Both(c.a, c.b).Authorize(context.Background(), &attest.Result{Stage: attest.StageAnswer, NodeName: "node-1"})
			if got != nil || !errors.Is(err, c.want) || asked != c.asked {
				t.Errorf("%s: got %+v, %v after %d questions, want %v after %d", name, got, err, asked, c.want, c.asked)
			}
		})
	}
}

// refusesHello also refuses at a hello.
type refusesHello struct{ attest.Authorizer }

func (refusesHello) AuthorizeHello(context.Context, *attest.Result) error {
	return attest.NotMember("x")
}

// In any order, trust on first use records no machine that the other authorizer or the claimed provider ID
// refuses.
func TestBothWritesLast(t *testing.T) {
	count := 0
	no, yes := refusesHello{says(nil, attest.NotMember("x"), &count)}, says(&csr.Grant{ProviderID: "test://1"}, nil, &count)
	other := says(&csr.Grant{}, nil, &count)
	for name, c := range map[string]struct {
		with  func(f attest.Authorizer) attest.Authorizer
		claim string
		joins bool // and is challenged, but where no provider ID is known yet
	}{
		"refused after":        {func(f attest.Authorizer) attest.Authorizer { return Both(f, no) }, "", false},
		"refused before":       {func(f attest.Authorizer) attest.Authorizer { return Both(no, f) }, "", false},
		"refused at depth":     {func(f attest.Authorizer) attest.Authorizer { return Both(Both(yes, f), Both(yes, no)) }, "", false},
		"claim not vouched":    {func(f attest.Authorizer) attest.Authorizer { return Both(f, other) }, "test://1", false},
		"admitted":             {func(f attest.Authorizer) attest.Authorizer { return Both(f, yes) }, "test://1", true},
		"admitted at depth":    {func(f attest.Authorizer) attest.Authorizer { return Both(Both(yes, f), yes) }, "", true},
		"admitted with other":  {func(f attest.Authorizer) attest.Authorizer { return Both(other, f) }, "", true},
		"asked twice":          {func(f attest.Authorizer) attest.Authorizer { return Both(f, f) }, "", true},
		"asked twice, refused": {func(f attest.Authorizer) attest.Authorizer { return Both(Both(f, f), no) }, "", false},
		"in a function": {func(f attest.Authorizer) attest.Authorizer {
			return Both(attest.AuthorizerFunc(f.Authorize), no)
		}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFirstUse(t, Scope{})
			r := answerOf(t, "node-1", "gce:p/1")
			r.ClaimedProviderID = csr.NewClaimed(c.claim)
			_, err := asked(t, c.with(f.FirstUse), r)
			if n := len(recordsOf(t, f.registry)); (err == nil) != c.joins || (n == 1) != c.joins {
				t.Errorf("got %v and %d records, want joined %t", err, n, c.joins)
			}
			if err != nil && !errors.Is(err, attest.CheckMembership) && !errors.Is(err, refusal.Check("provider-id")) {
				t.Errorf("got %v, want a refusal", err)
			}
			r.Stage = attest.StageHello
			f = newFirstUse(t, Scope{})
			if _, err := asked(t, c.with(f.FirstUse), r); (err == nil) != (c.joins || name == "claim not vouched") {
				t.Errorf("hello: got %v", err)
			}
			if len(recordsOf(t, f.registry)) != 0 {
				t.Error("a hello was recorded")
			}
		})
	}
}

// An error of the write refuses the machine.
func TestBothWriteFails(t *testing.T) {
	f := newFirstUse(t, Scope{})
	broken, count := errors.New("disk full"), 0
	f.c.Registry = stubRegistry{Registry: f.registry, bind: func() error { return broken }}
	yes := says(&csr.Grant{}, nil, &count)
	if a, err := asked(t, Both(yes, f.FirstUse), answerOf(t, "node-1", "gce:p/1")); a != nil || !errors.Is(err, broken) || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("got %+v, %v, want %v to be tried again", a, err, broken)
	}
}

// TestBothOfAnotherResult: Both refuses an authorization of another machine's result.
func TestBothOfAnotherResult(t *testing.T) {
	kept := (&attest.Result{Stage: attest.StageAnswer, NodeName: "node-1", Machine: "gce:p/1"}).Admit("node-1")
	cache := attest.AuthorizerFunc(func(context.Context, *attest.Result) (*attest.Authorization, error) { return kept, nil })
	asked := 0
	for name, b := range map[string]attest.Authorizer{
		"first": Both(cache, says(&csr.Grant{}, nil, &asked)), "second": Both(says(&csr.Grant{}, nil, &asked), cache), "both": Both(cache, cache),
	} {
		thief := &attest.Result{Stage: attest.StageAnswer, NodeName: "node-1", Machine: "gce:p/2"}
		if err := attest.AskMembership(t.Context(), b, thief); err == nil {
			t.Errorf("%s: the thief is admitted", name)
		}
	}
}

// TestBothSlotOfFirstUse: trust on first use does not learn of a slot that another authorizer
// names, so such a machine is refused before anything is written.
func TestBothSlotOfFirstUse(t *testing.T) {
	asked := 0
	b := Both(says(&csr.Grant{MachineUID: "slot-1"}, nil, &asked), says(&csr.Grant{}, nil, &asked)).(*both)
	withFirstUse := Both(b, &FirstUse{})
	if inside[*FirstUse](b) != nil || inside[*FirstUse](withFirstUse) == nil ||
		inside[*StaticList](withFirstUse) != nil || inside[*StaticList](Both(b, &StaticList{})) == nil {
		t.Error("who is asked is not seen")
	}
}

// What each of them has to record with a certificate is recorded in turn, up to the first error.
func TestBothRecord(t *testing.T) {
	away := errors.New("registry away")
	for fails, want := range map[string][]string{"": {"first", "second"}, "first": {"first"}, "second": {"first", "second"}} {
		var done []string
		records := func(name string) attest.Authorizer {
			return says(&csr.Grant{Record: func(context.Context, csr.IssuedRecord) error {
				done = append(done, name)
				if name == fails {
					return away
				}
				return nil
			}}, nil, new(int))
		}
		r := inventoried(t, answerOf(t, "node-1", "gce:p/1"), csr.RequesterBootstrap, csr.Machine{})
		if err := attest.AskMembership(t.Context(), Both(records("first"), records("second")), r); err != nil || done != nil {
			t.Fatalf("got %v, recorded %q", err, done)
		}
		err := r.Attested().Grant().Record(t.Context(), csr.IssuedRecord{})
		if errors.Is(err, away) != (fails != "") || !slices.Equal(done, want) {
			t.Errorf("%q fails: got %v, recorded %q, want %q", fails, err, done, want)
		}
	}
}
