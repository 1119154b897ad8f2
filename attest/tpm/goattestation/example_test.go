package goattestation_test

import (
	"context"
	"crypto/x509"
	"fmt"

	goattest "github.com/google/go-attestation/attest"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/join"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/goattestation"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A machine whose AK and key go-attestation made joins a cluster. The control plane trusts the maker
// of its TPM and lists its EK, which go-attestation has read.
func Example() {
	machine := must(tpmsim.Open(tpmsim.Options{}))
	defer func() { _ = machine.Close() }()
	device := tpmkey.Share(machine) // on a machine: of tpm.OpenTPM("/dev/tpmrm0")
	channel := must(goattestation.NewChannel(device, nil))
	client := must(goattest.OpenTPM(&goattest.OpenConfig{CommandChannel: channel}))
	defer func() { _ = client.Close() }()

	// The machine's AK, and its key: their blobs, which a program stores.
	ak := must(client.NewAK(nil))
	key := must(client.NewKey(ak, &goattest.KeyConfig{Algorithm: goattest.ECDSA, Size: 256}))
	source := must(goattestation.AKSource(must(ak.Marshal()), nil))
	file := must(goattestation.KeyFile(must(key.Marshal()), nil))
	check(key.Close())
	check(ak.Close(client))

	// The control plane.
	ek := must(goattestation.EKCertificate(must(client.EKs())[0]))
	maker, caCert, caKey := machine.CA(), must(x509.ParseCertificate(clusterCA)), clusterKey
	plane := must(join.NewPlane(join.Config{
		Chain: []*x509.Certificate{caCert}, Key: caKey,
		Kinds:   []attest.Kind{must(tpm.TrustEKs([]*x509.Certificate{maker.Root()}))},
		Members: must(membership.ParseStaticList(fmt.Appendf(nil, "%s node-1\n", ek.Identity()))),
	}))

	// The node: the secret comes back, the AK certifies the key over the challenge.
	origin := tpm.EKRSA2048()
	options := tpm.ProverOptions{EK: &origin, Intermediates: [][]byte{maker.EKIntermediate().Raw}}
	node := join.Node{Name: "node-1", ClusterID: must(attest.ClusterID(caCert)), Prover: must(tpm.NewProver(device, source, options)),
		Key: must(tpmkey.Load(context.Background(), device, file, tpmkey.LoadOptions{}))}
	pem, err := node.Join(context.Background(), join.InMemory(plane, bootstrapper))
	fmt.Println("certificate:", len(pem) > 0, err)
	// Output:
	// certificate: true <nil>
}
