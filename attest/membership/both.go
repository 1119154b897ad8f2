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
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Both returns an authorizer that admits a machine if two others both do, such as a list and trust on
// first use. Its grant has the provider ID if they agree on it (none if one of them has none; two that
// differ are a refusal), the SANs that both have, the Machine UID that either has, and the earlier of
// the two ends. If neither evidence nor inventory has a provider ID, trust on first use takes that of a
// [StaticList]. first is called before second, and second only if first admits the machine, each by its
// Authorize method, whatever its type. Their writes of Result.WhenAdmitted run only after all authorizers
// have admitted the machine.
//
// If one of them is a [StaticList] (or [With] or Both of one), only its machines are admitted, so the
// other accepts machines that may have several identities (attest.OpenRoad.ManyIdentities).
func Both(first, second attest.Authorizer) attest.Authorizer { return &both{first, second} }

type both [2]attest.Authorizer

// inside returns the authorizers of type T in a, which may be one itself.
func inside[T attest.Authorizer](a attest.Authorizer) []T {
	switch a := a.(type) {
	case T:
		return []T{a}
	case *with:
		return inside[T](a.authorizer)
	case *both:
		return append(inside[T](a[0]), inside[T](a[1])...)
	}
	return nil
}

// named returns the result for the two: if neither evidence nor inventory has a provider ID, with the
// list's.
func (b *both) named(ctx context.Context, r *attest.Result) *attest.Result {
	lists, id := inside[*StaticList](b), ""
	for _, list := range lists {
		if m, err := list.Machine(ctx, csr.Question{NodeName: r.NodeName}); err == nil && m.Identity == string(r.Machine) {
			id = cmp.Or(id, m.KnownProviderID())
		}
	}
	if len(lists) == 0 || r.ManyIdentities == "" && (id == "" || r.Granted.ProviderID != "") {
		return r
	}
	named := *r
	named.ManyIdentities = ""
	named.Granted.ProviderID = cmp.Or(r.Granted.ProviderID, id)
	return &named
}

// CheckAuthorizer checks both.
func (b *both) CheckAuthorizer(open attest.Opening) error {
	open.Roads = slices.Clone(open.Roads)
	for i := range open.Roads {
		if len(inside[*StaticList](b)) > 0 {
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
	named := b.named(ctx, r)
	for _, a := range b {
		if err := named.AskAtHello(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// Authorize asks both.
func (b *both) Authorize(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
	named := b.named(ctx, r)
	var given [2]*attest.Authorization
	unknown := false // trust on first use has no Machine UID
	for i, a := range b {
		var err error
		if given[i], err = a.Authorize(ctx, named); err != nil {
			return nil, err
		}
		if given[i] == nil {
			return nil, attest.NotMember("machine " + string(r.Machine) + " (no authorization was given)")
		}
		unknown = unknown || given[i].MachineUID == "" && len(inside[*FirstUse](a)) > 0
	}
	both, err := intersect(r, named, given[0], given[1])
	if err == nil && both.MachineUID != "" && inventoryOf(r).UID == "" && unknown {
		return nil, attest.NotMember("machine " + string(r.Machine) + " with the UID " + both.MachineUID +
			", which trust on first use does not know: return it in FirstUseConfig.Slot")
	}
	for _, g := range given {
		if err == nil && g.Record != nil {
			err = named.WhenIssued(g.Record)
		}
	}
	return both, err
}

// intersect returns the common part of two grants.
func intersect(r, named *attest.Result, a, b *attest.Authorization) (*attest.Authorization, error) {
	name, other := a.AdmittedAs(named), b.AdmittedAs(named)
	if name == "" || name != other {
		return nil, attest.NotMember("machine " + string(r.Machine) + " as two nodes, " + refusal.OrNothing(name) + " and " + refusal.OrNothing(other))
	}
	both := r.Admit(attest.KnownNode(name))
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

// earlier returns the earlier of two ends; the zero time means no end.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
