package tpm_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// Each of the two makes a kind that admits a machine by its issuer, refuses the same machine
// under another root, and opens no other road.
func TestTrust(t *testing.T) {
	strangers, err := tpmsim.NewCA(tpmsim.CAOptions{})
	testkit.NoError(t, err)
	aks := func(roots []*x509.Certificate) (*tpmkind.Kind, error) {
		return tpmkind.TrustAKs(roots, tpmcert.ProfileTCG())
	}
	ek := attesttest.NodeOptions{Road: attest.RoadEK, EK: tpmkind.EKP256()}
	for name, c := range map[string]struct {
		trust func([]*x509.Certificate) (*tpmkind.Kind, error)
		node  attesttest.NodeOptions
		road  attest.Road
	}{
		"AKs": {aks, attesttest.NodeOptions{}, attest.RoadAK},
		"EKs": {tpmkind.TrustEKs, ek, attest.RoadEK},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, c.node)
			verify := func(root *x509.Certificate) error {
				kind, err := c.trust([]*x509.Certificate{root})
				testkit.NoError(t, err)
				if roads := kind.Describe().Roads; len(roads) != 1 || roads[0].Road != c.road {
					t.Errorf("roads: got %v, want %s alone", roads, c.road)
				}
				config := s.plane.Config
				config.Kinds = []attest.Kind{kind}
				v, err := attest.NewVerifier(config)
				testkit.NoError(t, err)
				_, err = v.Verify(t.Context(), s.good)
				return err
			}
			if err := verify(s.node.TPM.CA().Root()); err != nil {
				t.Error(err)
			}
			if err := verify(strangers.Root()); !errors.Is(err, tpmcert.CheckCertificateChain) {
				t.Errorf("another root: got %v, want %s", err, tpmcert.CheckCertificateChain)
			}
			for _, roots := range [][]*x509.Certificate{nil, {nil}} {
				if kind, err := c.trust(roots); kind != nil || !errors.Is(err, refusal.CheckConfig) {
					t.Errorf("roots %v: got %v, %v, want nothing and %s", roots, kind, err, refusal.CheckConfig)
				}
			}
		})
	}
	if kind, err := tpmkind.TrustAKs([]*x509.Certificate{strangers.Root()}, tpmcert.Profile{}); kind != nil || !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no profile: got %v, %v, want nothing and %s", kind, err, refusal.CheckConfig)
	}
}

// The CA of a fleet's attestation keys, whose root an operator has in a file.
func ExampleTrustAKs() {
	ca, err := tpmsim.NewCA(tpmsim.CAOptions{}) // in place of the operator's
	if err != nil {
		log.Fatal(err)
	}
	kind, err := tpmkind.TrustAKs([]*x509.Certificate{ca.Root()}, tpmcert.ProfileTCG())
	if err != nil {
		log.Fatal(err)
	}
	road := kind.Describe().Roads[0]
	fmt.Println(road.Road, road.Identities[0].Kind, road.Residence)

	_, err = tpmkind.TrustAKs(nil, tpmcert.ProfileTCG())
	fmt.Println(err)
	// Output:
	// ak othername asserted
	// configuration: got an unusable issuer 0: no roots
}

// The roots of the vendors whose TPMs are in a fleet, from their own pages.
func ExampleTrustEKs() {
	vendor, err := tpmsim.NewCA(tpmsim.CAOptions{}) // in place of a vendor's
	if err != nil {
		log.Fatal(err)
	}
	kind, err := tpmkind.TrustEKs([]*x509.Certificate{vendor.Root()})
	if err != nil {
		log.Fatal(err)
	}
	road := kind.Describe().Roads[0]
	fmt.Println(road.Road, road.Identities[0].Kind, road.Residence)

	_, err = tpmkind.TrustEKs(nil)
	fmt.Println(err)
	// Output:
	// ek ek proven
	// configuration: got an unusable issuer 0: no roots
}
