package attesttest

import (
	"context"

	"github.com/nodeattest/nodeattest/csr"
)

// insecureNull makes the proposal's null attestor (Cluster API kubelet
// authentication, "New Components"), the provider that stamps everything: it holds
// requests against a policy and reads no evidence. It vouches for whatever a request
// asks for.
func insecureNull(policy *csr.Policy) csr.Provider { return null{policy} }

type null struct{ policy *csr.Policy }

func (n null) stamp(ctx context.Context, request *csr.Parsed) (*csr.Attested, error) {
	checked, err := n.policy.Check(ctx, request)
	if err != nil {
		return nil, err
	}
	grant := csr.Grant{ProviderID: checked.ClaimedProviderID().Unproven(), DNSNames: checked.DNSNames(), IPAddresses: checked.IPAddresses()}
	return checked.Vouch("null:"+checked.NodeName(), grant, nil), nil
}

// VerifyClientAttestationData verifies nothing.
func (n null) VerifyClientAttestationData(ctx context.Context, request *csr.Parsed) (*csr.Attested, error) {
	return n.stamp(ctx, request)
}

// VerifyServingAttestationData verifies nothing.
func (n null) VerifyServingAttestationData(ctx context.Context, request *csr.Parsed) (*csr.Attested, error) {
	return n.stamp(ctx, request)
}

// MachineName is the name in the policy's inventory.
func (null) MachineName(_ context.Context, attested *csr.Attested) (string, error) {
	return attested.InventoryName()
}
