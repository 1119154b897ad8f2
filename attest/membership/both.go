package membership

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/authorizer"
	"github.com/nodeattest/nodeattest/internal/typednil"
)

// Both returns an authorizer that admits what both admit: a list in front of trust
// on first use, for example. It vouches for what both vouch for: the provider ID
// if they agree on it (none if one of them vouches for none; two that differ are a
// refusal), the SANs that both have, the earlier of the two ends. Neither is asked
// for more once one has refused, the first one first. Each is asked by its Authorize,
// whatever type it is, and what it hands to Result.WhenAdmitted is written only after
// both have admitted the machine, and whoever else is asked.
func Both(first, second attest.Authorizer) attest.Authorizer { return &both{first, second} }

type both struct{ first, second attest.Authorizer }

// CheckAuthorizer checks both.
func (b *both) CheckAuthorizer(open []attest.OpenRoad) error {
	if err := authorizer.Check(b.first, open); err != nil {
		return fmt.Errorf("first of both: %w", err)
	}
	if err := authorizer.Check(b.second, open); err != nil {
		return fmt.Errorf("second of both: %w", err)
	}
	return nil
}

// Authorize asks both.
func (b *both) Authorize(ctx context.Context, r *attest.Result, request *csr.Request) (*attest.Authorization, error) {
	first, err := ask(ctx, b.first, r, request)
	if err != nil {
		return nil, err
	}
	second, err := ask(ctx, b.second, r, request)
	if err != nil {
		return nil, err
	}
	return intersect(r, first, second)
}

// ask asks one of the two, whatever it is.
func ask(ctx context.Context, a attest.Authorizer, r *attest.Result, request *csr.Request) (*attest.Authorization, error) {
	if typednil.Is(a) {
		return nil, attest.NotMember("machine " + string(r.Machine) + " (there is no authorizer to ask)")
	}
	authorization, err := a.Authorize(ctx, r, request)
	if err == nil && authorization == nil {
		err = attest.NotMember("machine " + string(r.Machine) + " (no authorization was given)")
	}
	if err != nil {
		return nil, err
	}
	return authorization, nil
}

// intersect is what both vouch for.
func intersect(r *attest.Result, a, b *attest.Authorization) (*attest.Authorization, error) {
	both := &attest.Authorization{NotAfter: earlier(a.NotAfter, b.NotAfter)}
	switch {
	case a.ProviderID == b.ProviderID:
		both.ProviderID = a.ProviderID
	case a.ProviderID != "" && b.ProviderID != "":
		return nil, attest.NotMember("machine " + string(r.Machine) + " with two provider IDs, " + a.ProviderID + " and " + b.ProviderID)
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

// earlier returns the earlier of two ends, where the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// inventoryOf is what the policy found for the node's name.
func inventoryOf(r *attest.Result) *csr.Machine {
	if checked := r.Checked(); checked != nil && checked.Machine() != nil {
		return checked.Machine()
	}
	return &csr.Machine{}
}

func requesterOf(r *attest.Result) csr.RequesterClass {
	if r.Checked() == nil {
		return 0
	}
	return r.Checked().Requester().Class
}

// vouch vouches for what the inventory has, with this provider ID, which is empty
// where the inventory's is to count.
func vouch(r *attest.Result, providerID string) (*attest.Authorization, error) {
	m := inventoryOf(r)
	switch {
	case providerID == "":
		providerID = m.ProviderID
	case m.ProviderID != "" && m.ProviderID != providerID:
		return nil, attest.NotMember("machine " + string(r.Machine) + " with provider ID " + providerID + ", which the inventory has as " + m.ProviderID)
	}
	return &attest.Authorization{ProviderID: providerID, DNSNames: m.DNSNames, IPAddresses: m.IPAddresses}, nil
}
