package tpm

import (
	"context"
	"errors"
	"slices"

	"github.com/nodeattest/nodeattest/refusal"

	"github.com/nodeattest/nodeattest/csr"
)

// Verified returns what the issuer of the certificate needs to know: all that the
// authorization vouches for, its end included, bound to the request that was checked
// and to the machine. Every provider makes its csr.Verified here, so that none forgets a
// part. checked must not be nil.
func (a *Authorization) Verified(checked *csr.Checked, machine Identity) *csr.Verified {
	v := checked.Vouch(string(machine))
	v.ProviderID = a.ProviderID
	v.DNSNames = slices.Clone(a.DNSNames)
	v.IPAddresses = slices.Clone(a.IPAddresses)
	v.NotAfter = a.NotAfter
	return v
}

// membership is one question to an authorizer, for every provider.
type membership struct {
	machine Identity
	claimed string // the provider ID in the request, "" for none
	// early: at the hello a machine that claims a provider ID may be one whose provider
	// ID the authorizer learns until the answer.
	early bool
}

// decide asks, and holds the request's claim against the answer. The error is a refusal
// with [CheckMembership] or [CheckProviderID], or wraps [csr.ErrRetry].
func (m *membership) decide(ctx context.Context, ask func(context.Context) (*Authorization, error)) (*Authorization, error) {
	if err := ctx.Err(); err != nil {
		return nil, csr.Retry(err)
	}
	a, err := ask(ctx)
	switch {
	case errors.Is(err, CheckMembership):
		return nil, asMembership(err)
	case err != nil:
		return nil, csr.Retry(err)
	case a == nil:
		return nil, NotMember("machine " + string(m.machine) + " (no authorization was given)")
	}
	if err := m.checkClaim(a); err != nil {
		return nil, err
	}
	given := *a
	given.DNSNames, given.IPAddresses = slices.Clone(a.DNSNames), slices.Clone(a.IPAddresses)
	return &given, nil
}

func (m *membership) checkClaim(a *Authorization) error {
	unknown := a.ProviderID == "" && m.early
	if m.claimed != "" && m.claimed != a.ProviderID && !unknown {
		return &Error{Check: CheckProviderID, Got: m.claimed, Want: refusal.OrNothing(a.ProviderID)}
	}
	return nil
}
