package join_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log"
	"math/big"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/join"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A cluster that trusts a cloud's TPMs, and a list of two machines. A machine joins as its own
// node, and not as the other.
func Example() {
	ctx := context.Background()
	cloud := must(tpmsim.NewCA(tpmsim.CAOptions{})) // stands in for the cloud and its machine
	machine := must(tpmsim.Open(tpmsim.Options{CA: cloud, Instance: tpmsim.DefaultInstance()}))
	defer func() { _ = machine.Close() }()
	caCert, caKey := clusterCA()

	plane := must(join.NewPlane(join.Config{
		Chain: []*x509.Certificate{caCert}, Key: caKey,
		Kinds: []attest.Kind{must(tpm.TrustAKs([]*x509.Certificate{cloud.Root()}, tpmcert.ProfileGoogle()))},
		Members: must(membership.ParseStaticList([]byte(
			"gce:tpmsim-project/4242424242424242424 node-1 metal://rack-1/7\n" +
				"gce:tpmsim-project/1 node-2\n"))),
	}))

	node := join.Node{
		Name: "node-1", ClusterID: must(attest.ClusterID(caCert)), ProviderID: "metal://rack-1/7", Key: newKey(),
		Prover: must(tpm.NewProver(machine, tpm.GCERSA(), tpm.ProverOptions{Intermediates: [][]byte{cloud.AKIntermediate().Raw}})),
	}
	file := join.InMemory(plane, bootstrapper)
	pem, err := node.Join(ctx, file)
	fmt.Println(len(pem) > 0, err)

	node.Name, node.ProviderID = "node-2", ""
	_, err = node.Join(ctx, file)
	fmt.Println(err)
	// Output:
	// true <nil>
	// no-challenge: got Denied: NotAMember: not-a-member; the log and the Event of the controller say more, want AttestationChallenge
}

// bootstrapper is the user of a bootstrap token.
var bootstrapper = csr.User{Username: csr.BootstrapUserPrefix + "abcdef", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}

func newKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func clusterCA() (*x509.Certificate, *ecdsa.PrivateKey) {
	key, now := newKey(), time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "cluster"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(48 * time.Hour), KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true}
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)))), key
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
