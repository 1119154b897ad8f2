package attest

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
)

func says(a *Authorization, err error, asked *int) Authorizer {
	return AuthorizerFunc(func(context.Context, *Result, *csr.Request) (*Authorization, error) {
		*asked++
		return a, err
	})
}

func TestBothIntersects(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	ip, mapped, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::ffff:192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for name, c := range map[string]struct{ a, b, want Authorization }{
		"nothing":           {},
		"same provider ID":  {Authorization{ProviderID: "p"}, Authorization{ProviderID: "p"}, Authorization{ProviderID: "p"}},
		"one provider ID":   {Authorization{ProviderID: "p"}, Authorization{}, Authorization{}},
		"other provider ID": {Authorization{}, Authorization{ProviderID: "p"}, Authorization{}},
		"names": {Authorization{DNSNames: []string{"A.example", "b.example"}}, Authorization{DNSNames: []string{"c.example", "a.example"}},
			Authorization{DNSNames: []string{"A.example"}}},
		"addresses": {Authorization{IPAddresses: []netip.Addr{ip, other}}, Authorization{IPAddresses: []netip.Addr{mapped}},
			Authorization{IPAddresses: []netip.Addr{ip}}},
		"one end":     {Authorization{NotAfter: at}, Authorization{}, Authorization{NotAfter: at}},
		"other end":   {Authorization{}, Authorization{NotAfter: at}, Authorization{NotAfter: at}},
		"earlier end": {Authorization{NotAfter: at.Add(1)}, Authorization{NotAfter: at}, Authorization{NotAfter: at}},
	} {
		asked := 0
		got, err := Both(says(&c.a, nil, &asked), says(&c.b, nil, &asked)).Authorize(context.Background(), &Result{Stage: StageAnswer}, nil)
		if err != nil || !reflect.DeepEqual(*got, c.want) || asked != 2 {
			t.Errorf("%s: got %+v, %v after %d questions, want %+v", name, got, err, asked, c.want)
		}
	}
}

func TestBothRefuses(t *testing.T) {
	broken := errors.New("database away")
	yes, p, q := &Authorization{}, &Authorization{ProviderID: "p"}, &Authorization{ProviderID: "q"}
	asked := 0
	for name, c := range map[string]struct {
		a, b  Authorizer
		asked int
		want  error
	}{
		"first refuses":       {says(nil, NotMember("x"), &asked), says(yes, nil, &asked), 1, CheckMembership},
		"second refuses":      {says(yes, nil, &asked), says(nil, NotMember("x"), &asked), 2, CheckMembership},
		"first fails":         {says(nil, broken, &asked), says(yes, nil, &asked), 1, broken},
		"second fails":        {says(yes, nil, &asked), says(nil, broken, &asked), 2, broken},
		"first says nothing":  {says(nil, nil, &asked), says(yes, nil, &asked), 1, CheckMembership},
		"second says nothing": {says(yes, nil, &asked), says(nil, nil, &asked), 2, CheckMembership},
		"no first":            {nil, says(yes, nil, &asked), 0, CheckMembership},
		"no second":           {says(yes, nil, &asked), nil, 1, CheckMembership},
		"two provider IDs":    {says(p, nil, &asked), says(q, nil, &asked), 2, CheckMembership},
	} {
		asked = 0
		got, err := Both(c.a, c.b).Authorize(context.Background(), &Result{Stage: StageAnswer}, nil)
		if got != nil || !errors.Is(err, c.want) || asked != c.asked {
			t.Errorf("%s: got %+v, %v after %d questions, want %v after %d", name, got, err, asked, c.want, c.asked)
		}
	}
}

// Whoever stands where, trust on first use records nothing that another one or the
// claim refuses.
func TestBothWritesLast(t *testing.T) {
	ctx := context.Background()
	asked := 0
	no, yes := says(nil, NotMember("x"), &asked), says(&Authorization{ProviderID: "test://1"}, nil, &asked)
	other := says(&Authorization{}, nil, &asked)
	for name, c := range map[string]struct {
		with  func(f Authorizer) Authorizer
		claim string
		joins bool // and is challenged, but where no provider ID is known yet
	}{
		"refused behind":      {func(f Authorizer) Authorizer { return Both(f, no) }, "", false},
		"refused in front":    {func(f Authorizer) Authorizer { return Both(no, f) }, "", false},
		"refused at depth":    {func(f Authorizer) Authorizer { return Both(Both(yes, f), Both(yes, no)) }, "", false},
		"claim not vouched":   {func(f Authorizer) Authorizer { return Both(f, other) }, "test://1", false},
		"admitted":            {func(f Authorizer) Authorizer { return Both(f, yes) }, "test://1", true},
		"admitted at depth":   {func(f Authorizer) Authorizer { return Both(Both(yes, f), yes) }, "", true},
		"admitted with other": {func(f Authorizer) Authorizer { return Both(other, f) }, "", true},
	} {
		f := newFirstUse(t, RegistryScope{})
		r := answerOf(t, "node-1", "gce:p/1")
		r.ClaimedProviderID = c.claim
		_, err := c.with(f.FirstUse).Authorize(ctx, r, nil)
		records, _ := f.registry.Records(ctx)
		if (err == nil) != c.joins || (len(records) == 1) != c.joins {
			t.Errorf("%s: got %v and %d records, want joined %t", name, err, len(records), c.joins)
		}
		if err != nil && !errors.Is(err, CheckMembership) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
		r.Stage = StageHello
		f = newFirstUse(t, RegistryScope{})
		if _, err := c.with(f.FirstUse).Authorize(ctx, r, nil); (err == nil) != (c.joins || name == "claim not vouched") {
			t.Errorf("%s, hello: got %v", name, err)
		}
		if records, _ := f.registry.Records(ctx); len(records) != 0 {
			t.Errorf("%s: a hello was recorded", name)
		}
	}
	// An error while the record is written admits nobody.
	f := newFirstUse(t, RegistryScope{})
	broken := errors.New("disk full")
	f.c.Registry = stubRegistry{Registry: f.registry, raise: func() error { return broken }}
	if a, err := Both(yes, f.FirstUse).Authorize(ctx, answerOf(t, "node-1", "gce:p/1"), nil); a != nil || !errors.Is(err, broken) {
		t.Errorf("got %+v, %v, want %v", a, err, broken)
	}
}
