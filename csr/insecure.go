package csr

import (
	"context"
	"fmt"

	"github.com/nodeattest/nodeattest/refusal"
)

// insecureProvider attests nothing.
type insecureProvider struct{ policy *Policy }

// NewInsecureProvider makes the provider that always allows: whoever has a bootstrap
// token may be any machine that the policy knows, as in clusters without attestation
// (Cluster API kubelet authentication, "Insecure providers"). It is for
// infrastructures where machines have no way to prove anything.
//
// It serves [SignerClientInsecure] and no other signer, so policy.SignerNames must be
// that one name. It does not renew certificates (the policy refuses requesters that
// are nodes already), has no serving certificates, and stands on a CA of its own
// ([ProvidersConfig], [CAOptions]). It vouches for the provider ID that the request
// claims, which the policy holds against the inventory's where that is known. The
// machine's identity is "insecure:" and the node's name: nothing has shown it.
func NewInsecureProvider(policy *Policy) (Provider, error) {
	if err := policy.Validate(); err != nil {
		return nil, err
	}
	if len(policy.SignerNames) != 1 || policy.SignerNames[0] != SignerClientInsecure {
		return nil, fmt.Errorf("%w: SignerNames of the insecure provider is not %s alone", ErrPolicy, SignerClientInsecure)
	}
	return insecureProvider{policy}, nil
}

func isInsecure(p Provider) bool {
	_, ok := p.(insecureProvider)
	return ok
}

// VerifyClientAttestationData holds the request against the policy, and that is all.
func (p insecureProvider) VerifyClientAttestationData(ctx context.Context, request *Request) (*Attested, error) {
	checked, err := p.policy.Check(ctx, request)
	if err != nil {
		return nil, err
	}
	v := checked.Vouch(ProviderInsecure + ":" + checked.nodeName)
	v.ProviderID = checked.ClaimedProviderID()
	return &Attested{Checked: checked, Verified: v}, nil
}

// VerifyServingAttestationData refuses: an insecure provider has no serving
// certificates.
func (insecureProvider) VerifyServingAttestationData(_ context.Context, request *Request) (*Attested, error) {
	return nil, &Violation{Check: RuleSignerName, Got: refusal.Quote(request.signerName()),
		Want: SignerClientInsecure + ": the insecure provider has no serving certificates"}
}

// MachineName is the name in the policy's inventory.
func (insecureProvider) MachineName(_ context.Context, attested *Attested) (string, error) {
	return attested.InventoryName()
}
