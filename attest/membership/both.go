package membership

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/internal/typednil"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Both returns an authorizer that admits what both admit: a list in front of trust on first
// use, for example. It vouches for what both vouch for: the provider ID if they agree on it
// (none if one of them vouches for none; two that differ are a refusal), the SANs that both
// have, the Machine UID that either names, and the earlier of the two ends. Where neither evidence nor
// inventory has a provider ID, trust on first use agrees to that of a [StaticList]. It asks first before
// second, and does not ask second if first refuses. Each is asked through its Authorize method, whatever its type. What it
// hands to Result.WhenAdmitted is written only after both, and anyone else who is asked, have
// admitted the machine.
//
// If one of them is a [StaticList] (or [With] or Both of one), the machines are those that it
// names, and the other need not mind that a machine may have several identities
// (attest.OpenRoad.ManyIdentities).
func Both(first, second attest.Authorizer) attest.Authorizer { return &both{first, second} }

type both [2]attest.Authorizer

// lists reports whether an authorizer admits only what a list names, and remembers whether it is
// trust on first use.
func lists(a attest.Authorizer) bool     { _, ok := a.(*StaticList); return ok }
func remembers(a attest.Authorizer) bool { _, ok := a.(*FirstUse); return ok }

// contains reports whether an authorizer is such a one, or asks one.
func contains(a attest.Authorizer, such func(attest.Authorizer) bool) bool {
	switch a := a.(type) {
	case *with:
		return contains(a.authorizer, such)
	case *both:
		return contains(a[0], such) || contains(a[1], such)
	}
	return such(a)
}

// named is what the two are asked about: where neither evidence nor inventory has a provider ID, both
// know the one that a list has.
func (b *both) named(r *attest.Result) *attest.Result {
	id := listedProviderID(b, r)
	if !contains(b, lists) || r.ManyIdentities == "" && (id == "" || r.Granted.ProviderID != "") {
		return r
	}
	named := *r
	named.ManyIdentities = ""
	named.Granted.ProviderID = cmp.Or(r.Granted.ProviderID, id)
	return &named
}

// listedProviderID is the provider ID that a list which is asked has for the machine as this node.
func listedProviderID(a attest.Authorizer, r *attest.Result) string {
	switch a := a.(type) {
	case *with:
		return listedProviderID(a.authorizer, r)
	case *both:
		return cmp.Or(listedProviderID(a[0], r), listedProviderID(a[1], r))
	case *StaticList:
		if a == nil {
			return ""
		}
		if m := a.machine[r.Machine]; m != nil && m.NodeName == r.NodeName {
			return names.KnownProviderID(m.ProviderID)
		}
	}
	return ""
}

// CheckAuthorizer checks both.
func (b *both) CheckAuthorizer(open attest.Opening) error {
	open.Roads = slices.Clone(open.Roads)
	for i := range open.Roads {
		if contains(b, lists) {
			open.Roads[i].ManyIdentities = ""
		}
	}
	for i, place := range [...]string{"first", "second"} {
		if err := attest.CheckAuthorizer(b[i], open); err != nil {
			return fmt.Errorf("%s of both: %w", place, err)
		}
	}
	return nil
}

// AuthorizeHello asks both.
func (b *both) AuthorizeHello(ctx context.Context, r *attest.Result) error {
	named := b.named(r)
	for _, a := range b {
		if err := named.AskAtHello(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// Authorize asks both.
func (b *both) Authorize(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
	named := b.named(r)
	var given [2]*attest.Authorization
	unknown := false // to trust on first use, which machine of the inventory it is
	for i, a := range b {
		var err error
		if given[i], err = ask(ctx, a, named); err != nil {
			return nil, err
		}
		unknown = unknown || given[i].MachineUID == "" && contains(a, remembers)
	}
	both, err := intersect(r, named, given[0], given[1])
	if err == nil && both.MachineUID != "" && inventoryOf(r).UID == "" && unknown {
		return nil, attest.NotMember("machine " + string(r.Machine) + " with the UID " + both.MachineUID + ", which trust on first use does not know: name it in FirstUseConfig.Slot")
	}
	for _, g := range given {
		if err == nil && g.Record != nil {
			err = named.WhenIssued(g.Record)
		}
	}
	return both, err
}

// ask asks one of the two, whatever it is.
func ask(ctx context.Context, a attest.Authorizer, r *attest.Result) (*attest.Authorization, error) {
	if typednil.Is(a) {
		return nil, attest.NotMember("machine " + string(r.Machine) + " (there is no authorizer to ask)")
	}
	authorization, err := a.Authorize(ctx, r)
	if err == nil && authorization == nil {
		return nil, attest.NotMember("machine " + string(r.Machine) + " (no authorization was given)")
	}
	return authorization, err
}

// intersect is what both vouch for.
func intersect(r, named *attest.Result, a, b *attest.Authorization) (*attest.Authorization, error) {
	name, other := a.For(named), b.For(named)
	if name == "" || name != other {
		return nil, attest.NotMember("machine " + string(r.Machine) + " as two nodes, " + refusal.OrNothing(name) + " and " + refusal.OrNothing(other))
	}
	both := r.Admit(name)
	both.NotAfter = earlier(a.NotAfter, b.NotAfter)
	same, one, another := oid.SameProviderID(a.ProviderID, b.ProviderID)
	switch {
	case same:
		both.ProviderID = a.ProviderID
	case a.ProviderID != "" && b.ProviderID != "":
		return nil, attest.NotMember("two provider IDs of one machine, " + one + " and " + another)
	}
	if both.MachineUID = cmp.Or(a.MachineUID, b.MachineUID); b.MachineUID != "" && b.MachineUID != both.MachineUID {
		return nil, attest.NotMember("machine " + string(r.Machine) + " with two UIDs, " + a.MachineUID + " and " + b.MachineUID)
	}
	for _, name := range a.DNSNames {
		if slices.ContainsFunc(b.DNSNames, func(other string) bool { return strings.EqualFold(other, name) }) {
			both.DNSNames = append(both.DNSNames, name)
		}
	}
	for _, ip := range a.IPAddresses {
		if slices.ContainsFunc(b.IPAddresses, func(other netip.Addr) bool { return other.Unmap() == ip.Unmap() }) {
			both.IPAddresses = append(both.IPAddresses, ip)
		}
	}
	return both, nil
}

// earlier returns the earlier of two ends, where the zero time means none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
