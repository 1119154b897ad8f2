package attest

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/csr"
)

// Both returns an authorizer that admits what both admit: a list in front of trust
// on first use, for example. It vouches for what both vouch for: the provider ID
// if they agree on it (none if one of them vouches for none; two that differ are a
// refusal), the SANs that both have, the earlier of the two ends. Neither is asked
// for more once one has refused, the first one first, and a [FirstUse] among them,
// at any depth, writes only after the others have admitted the machine.
func Both(first, second Authorizer) Authorizer { return &both{first, second} }

type both struct{ first, second Authorizer }

// Authorize asks both.
func (b *both) Authorize(ctx context.Context, r *Result, request *csr.Request) (*Authorization, error) {
	return decide(ctx, b, r, request)
}

// considerer is an Authorizer in two steps: consider changes nothing, and returns
// what has to be done, which may be nil, once everybody else agrees.
type considerer interface {
	consider(ctx context.Context, r *Result, request *csr.Request) (*Authorization, func(context.Context) error, error)
}

// decide is Authorize for a considerer.
func decide(ctx context.Context, c considerer, r *Result, request *csr.Request) (*Authorization, error) {
	a, commit, err := c.consider(ctx, r, request)
	if err != nil {
		return nil, err
	}
	if err := checkClaimedProviderID(r, a); err != nil {
		return nil, refuseClaim(err)
	}
	if r.Stage == StageAnswer && commit != nil {
		if err := commit(ctx); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// refuseClaim makes the verifier take a wrong claim for a refusal.
func refuseClaim(err error) error { return &Error{Check: CheckMembership, Err: err} }

func (b *both) consider(ctx context.Context, r *Result, request *csr.Request) (*Authorization, func(context.Context) error, error) {
	a1, commit1, err := considerOne(ctx, b.first, r, request)
	if err != nil {
		return nil, nil, err
	}
	a2, commit2, err := considerOne(ctx, b.second, r, request)
	if err != nil {
		return nil, nil, err
	}
	a, err := intersect(r, a1, a2)
	if err != nil {
		return nil, nil, err
	}
	return a, func(ctx context.Context) error {
		for _, commit := range []func(context.Context) error{commit1, commit2} {
			if commit == nil {
				continue
			}
			if err := commit(ctx); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// considerOne asks one of the two, whatever it is.
func considerOne(ctx context.Context, a Authorizer, r *Result, request *csr.Request) (*Authorization, func(context.Context) error, error) {
	if c, ok := a.(considerer); ok {
		return c.consider(ctx, r, request)
	}
	if a == nil {
		return nil, nil, NotMember("machine " + string(r.Machine) + " (there is no authorizer to ask)")
	}
	authorization, err := a.Authorize(ctx, r, request)
	if err == nil && authorization == nil {
		err = NotMember("machine " + string(r.Machine) + " (no authorization was given)")
	}
	return authorization, nil, err
}

// intersect is what both vouch for.
func intersect(r *Result, a, b *Authorization) (*Authorization, error) {
	both := &Authorization{NotAfter: earlier(a.NotAfter, b.NotAfter)}
	switch {
	case a.ProviderID == b.ProviderID:
		both.ProviderID = a.ProviderID
	case a.ProviderID != "" && b.ProviderID != "":
		return nil, NotMember("machine " + string(r.Machine) + " with two provider IDs, " + a.ProviderID + " and " + b.ProviderID)
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
