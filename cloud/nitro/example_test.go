package nitro_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/csr"
)

// An instance that booted the right image joins as the node that a list has for it. The
// platform is a fake: with the real one the root comes from a file, and Ask is nitro.Tool("").
func Example() {
	platform := must(cloudtest.OpenNitro())
	machine := cloudtest.NitroMachine{InstanceID: "i-0123456789abcdef0", Region: "us-east-2", PCRs: map[int][]byte{4: image(1)}}
	verifier := must(attest.NewVerifier(verifierConfig(platform, machine)))
	prover := must(nitro.NewProver(nitro.SourceConfig{Ask: platform.Asker(machine)}))
	result := must(join(verifier, prover))
	fmt.Println(result.NodeName, "is", result.Machine)
	machine.PCRs[4] = image(2)
	_, err := join(verifier, prover)
	fmt.Println(err)
	// Output:
	// node-1 is aws:aws/us-east-2/i-0123456789abcdef0
	// nitro-pcrs: got PCR 4 000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000002, want the values of a good set
}

// image is the PCR of an image.
func image(n byte) []byte { return append(make([]byte, 47), n) }

const signerName = "cluster.x-k8s.io/kube-apiserver-client-kubelet-nitro"

// join is hello, challenge and answer.
func join(verifier *attest.Verifier, prover attest.Prover) (*attest.Result, error) {
	ctx := context.Background()
	attester := must(attest.NewAttester(prover))
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	request := must(csr.Create(csr.PurposeClient, key, "node-1", csr.CreateOptions{}))
	subject := attest.Subject{Request: request, SignerName: signerName, ClusterID: "cluster-1"}
	hello, err := attester.Hello(ctx, subject)
	if err != nil {
		return nil, err
	}
	challenge, err := verifier.Challenge(ctx, filed(hello))
	if err != nil {
		return nil, err
	}
	answer, err := attester.Answer(ctx, challenge, key, subject)
	if err != nil {
		return nil, err
	}
	return verifier.Verify(ctx, filed(answer))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// verifierConfig is a control plane that knows one instance, as node-1, and one image.
func verifierConfig(platform *cloudtest.Nitro, machine cloudtest.NitroMachine) attest.VerifierConfig {
	documents := must(nitro.NewVerifier(nitro.VerifierConfig{Roots: []*x509.Certificate{platform.Root()}}))
	kind := must(nitro.NewKind(nitro.KindConfig{Verifier: documents, GoodPCRs: []map[int][]byte{{4: image(1)}}}))
	id := must(nitro.Identity(machine.Region, machine.InstanceID))
	list := must(membership.NewStaticList([]membership.Member{{Machine: id, NodeName: "node-1", Provider: nitro.Provider}}))
	// A pod may ask for documents too: behind the list, the first key is remembered, here in memory,
	// otherwise in a file (membership.OpenFileRegistry).
	scope := membership.Scope{Cluster: "cluster-1", Provider: nitro.Provider, Road: attest.RoadDocument}
	keys := must(membership.NewFirstUse(membership.FirstUseConfig{
		Registry: must(membership.NewMemoryRegistry(scope, membership.RegistryOptions{})), MaxLifetime: 24 * time.Hour,
		NodeExists: func(context.Context, string) (bool, error) { return false, nil }})) // ask the API server
	return attest.VerifierConfig{
		KeyRing: must(attest.NewStaticKeyRing(attest.NewRingKey(time.Now()))),
		Kinds:   []attest.Kind{kind},
		Policy: &csr.Policy{
			ClusterIDs:  []string{"cluster-1"},
			SignerNames: []string{signerName},
			Machines: func(_ context.Context, q csr.Question) (*csr.Machine, error) {
				return &csr.Machine{Name: "instance-1", NodeName: q.NodeName, BootstrapReady: true}, nil
			},
		},
		Authorizer: membership.Both(list, keys),
	}
}

// filed is a node's spec as a server stores it: the user is from the server's own
// authentication, here of a bootstrap token.
func filed(spec *csr.Spec) *csr.Request {
	return csr.Filed(spec, csr.User{Username: csr.BootstrapUserPrefix + "abcdef", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}, time.Now())
}
