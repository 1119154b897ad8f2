package membership

import (
	"context"
	"errors"
	"github.com/nodeattest/nodeattest/refusal"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
)

func says(a *attest.Authorization, err error, asked *int) attest.Authorizer {
	return attest.AuthorizerFunc(func(context.Context, *attest.Result) (*attest.Authorization, error) {
		*asked++
		return a, err
	})
}

func TestBothIntersects(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	ip, mapped, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::ffff:192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for name, c := range map[string]struct{ a, b, want attest.Authorization }{
		"nothing":           {},
		"same provider ID":  {attest.Authorization{ProviderID: "p"}, attest.Authorization{ProviderID: "p"}, attest.Authorization{ProviderID: "p"}},
		"one provider ID":   {attest.Authorization{ProviderID: "p"}, attest.Authorization{}, attest.Authorization{}},
		"other provider ID": {attest.Authorization{}, attest.Authorization{ProviderID: "p"}, attest.Authorization{}},
		"names": {attest.Authorization{DNSNames: []string{"A.example", "b.example"}}, attest.Authorization{DNSNames: []string{"c.example", "a.example"}},
			attest.Authorization{DNSNames: []string{"A.example"}}},
		"addresses": {attest.Authorization{IPAddresses: []netip.Addr{ip, other}}, attest.Authorization{IPAddresses: []netip.Addr{mapped}},
			attest.Authorization{IPAddresses: []netip.Addr{ip}}},
		"one end":     {attest.Authorization{NotAfter: at}, attest.Authorization{}, attest.Authorization{NotAfter: at}},
		"other end":   {attest.Authorization{}, attest.Authorization{NotAfter: at}, attest.Authorization{NotAfter: at}},
		"earlier end": {attest.Authorization{NotAfter: at.Add(1)}, attest.Authorization{NotAfter: at}, attest.Authorization{NotAfter: at}},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			got, err := Both(says(&c.a, nil, &asked), says(&c.b, nil, &asked)).Authorize(context.Background(), &attest.Result{Stage: attest.StageAnswer}, nil)
			if err != nil || !reflect.DeepEqual(*got, c.want) || asked != 2 {
				t.Errorf("%s: got %+v, %v after %d questions, want %+v", name, got, err, asked, c.want)
			}
		})
	}
}

func TestBothRefuses(t *testing.T) {
	broken := errors.New("database away")
	yes, p, q := &attest.Authorization{}, &attest.Authorization{ProviderID: "p"}, &attest.Authorization{ProviderID: "q"}
	asked := 0
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
		"no first":            {nil, says(yes, nil, &asked), 0, attest.CheckMembership},
		"no second":           {says(yes, nil, &asked), nil, 1, attest.CheckMembership},
		"two provider IDs":    {says(p, nil, &asked), says(q, nil, &asked), 2, attest.CheckMembership},
	} {
		t.Run(name, func(t *testing.T) {
			asked = 0
			got, err := Both(c.a, c.b).Authorize(context.Background(), &attest.Result{Stage: attest.StageAnswer}, nil)
			if got != nil || !errors.Is(err, c.want) || asked != c.asked {
				t.Errorf("%s: got %+v, %v after %d questions, want %v after %d", name, got, err, asked, c.want, c.asked)
			}
		})
	}
}

// Whoever stands where, trust on first use records nothing that another one or the
// claim refuses.
func TestBothWritesLast(t *testing.T) {
	count := 0
	no, yes := says(nil, attest.NotMember("x"), &count), says(&attest.Authorization{ProviderID: "test://1"}, nil, &count)
	other := says(&attest.Authorization{}, nil, &count)
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
			r.ClaimedProviderID = c.claim
			_, err := asked(t, c.with(f.FirstUse), r)
			if n := len(recordsOf(t, f.registry)); (err == nil) != c.joins || (n == 1) != c.joins {
				t.Errorf("got %v and %d records, want joined %t", err, n, c.joins)
			}
			if err != nil && !errors.Is(err, attest.CheckMembership) && !errors.Is(err, attest.CheckProviderID) {
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

// An error while the record is written admits nobody.
func TestBothWriteFails(t *testing.T) {
	f := newFirstUse(t, Scope{})
	broken, count := errors.New("disk full"), 0
	f.c.Registry = stubRegistry{Registry: f.registry, bind: func() error { return broken }}
	yes := says(&attest.Authorization{}, nil, &count)
	if a, err := asked(t, Both(yes, f.FirstUse), answerOf(t, "node-1", "gce:p/1")); a != nil || !errors.Is(err, broken) || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("got %+v, %v, want %v to be tried again", a, err, broken)
	}
}
