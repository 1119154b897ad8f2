package membership_test

import (
	"context"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/csr"
)

// certificates finds the record of a node's client certificate in a registry, for
// claims.HandlerOptions.FindRecord.
type certificates struct{ registry membership.Registry }

func (c certificates) find(ctx context.Context, nodeName, credentialID string) (*claims.CertificateRecord, error) {
	record, err := c.registry.Lookup(ctx, nodeName)
	if err != nil {
		return nil, err
	}
	if record != nil && record.State == membership.StateBound {
		for _, r := range record.Issued {
			if r.ClientOf(nodeName, credentialID) {
				return &claims.CertificateRecord{CredentialID: r.CredentialID, NodeName: r.NodeName, NodeUID: r.NodeUID,
					Machine: r.Machine, MachineUID: r.MachineUID, ProviderID: r.ProviderID}, nil
			}
		}
	}
	return nil, claims.ErrNotFound
}

// A service that serves pods on attested machines asks which machine a connection's certificate was
// issued to.
func ExampleRecord() {
	ctx := context.Background()
	registry, err := membership.NewMemoryRegistry(membership.Scope{Cluster: "shop-eu-1", Road: attest.RoadEK, IdentityClass: "P-256"}, membership.RegistryOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	end := time.Now().Add(24 * time.Hour)
	claim := membership.Claim{NodeName: "node-1", Machine: "ek:sha256:ab12", MachineUID: "6f2b"}
	record, err := registry.Reserve(ctx, claim, time.Now().Add(time.Minute))
	if err == nil { // as trust on first use does for the certificate of a join
		_, err = registry.Bind(ctx, record, end, &csr.IssuedRecord{CredentialID: "X509SHA256=0a1b", NodeName: "node-1", SignerName: csr.SignerClientTPM,
			Machine: "ek:sha256:ab12", MachineUID: "6f2b", NotAfter: end})
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, id := range []string{"X509SHA256=0a1b", "X509SHA256=2c3d"} {
		found, err := certificates{registry}.find(ctx, "node-1", id)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(found.Machine, "is", found.NodeName)
	}
	// Output:
	// ek:sha256:ab12 is node-1
	// object not found
}
