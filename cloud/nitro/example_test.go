package nitro_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"log"
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
	ctx := context.Background()
	platform, err := cloudtest.OpenNitro()
	if err != nil {
		log.Fatal(err)
	}
	machine := cloudtest.NitroMachine{InstanceID: "i-0123456789abcdef0", Region: "us-east-2", PCRs: map[int][]byte{4: image(1)}}
	verifier, err := newVerifier(platform, machine)
	if err != nil {
		log.Fatal(err)
	}

	prover, err := nitro.NewProver(nitro.SourceConfig{Ask: platform.Asker(machine)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(join(ctx, verifier, prover))
	machine.PCRs[4] = image(2)
	fmt.Println(join(ctx, verifier, prover))
	// Output:
	// node-1 is aws:aws/us-east-2/i-0123456789abcdef0 <nil>
	//  nitro-pcrs: got PCR 4 000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000002, want the values of a good set
}

// image is the PCR of an image.
func image(n byte) []byte { return append(make([]byte, 47), n) }

const signerName = "cluster.x-k8s.io/kube-apiserver-client-kubelet-nitro"

// join is hello, challenge and answer, and says who joined.
func join(ctx context.Context, verifier *attest.Verifier, prover attest.Prover) (string, error) {
	attester, err := attest.NewAttester(prover)
	if err != nil {
		return "", err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	request, err := csr.Create(csr.PurposeClient, key, "node-1", csr.CreateOptions{})
	if err != nil {
		return "", err
	}
	subject := attest.Subject{Request: request, SignerName: signerName, ClusterID: "cluster-1"}
	hello, err := attester.Hello(ctx, subject)
	if err != nil {
		return "", err
	}
	challenge, err := verifier.Challenge(ctx, filed(hello))
	if err != nil {
		return "", err
	}
	answer, err := attester.Answer(ctx, challenge, key, subject)
	if err != nil {
		return "", err
	}
	result, err := verifier.Verify(ctx, filed(answer))
	if err != nil {
		return "", err
	}
	return result.NodeName + " is " + string(result.Machine), nil
}

// newVerifier is a control plane that knows one instance, as node-1, and one image.
func newVerifier(platform *cloudtest.Nitro, machine cloudtest.NitroMachine) (*attest.Verifier, error) {
	config, err := verifierConfig(platform, machine)
	if err != nil {
		return nil, err
	}
	return attest.NewVerifier(config)
}

func verifierConfig(platform *cloudtest.Nitro, machine cloudtest.NitroMachine) (c attest.VerifierConfig, err error) {
	documents, err := nitro.NewVerifier(nitro.VerifierConfig{Roots: []*x509.Certificate{platform.Root()}})
	if err != nil {
		return c, err
	}
	kind, err := nitro.NewKind(nitro.KindConfig{Verifier: documents, GoodPCRs: []map[int][]byte{{4: image(1)}}})
	if err != nil {
		return c, err
	}
	id, err := nitro.Identity(machine.Region, machine.InstanceID)
	if err != nil {
		return c, err
	}
	list, err := membership.NewStaticList([]membership.Member{{Machine: id, NodeName: "node-1", Provider: nitro.Provider}})
	if err != nil {
		return c, err
	}
	// A pod may ask for documents too: behind the list, the first key is remembered, here in memory,
	// otherwise in a file (boltregistry).
	registry, err := membership.NewMemoryRegistry(membership.Scope{Cluster: "cluster-1", Provider: nitro.Provider, Road: attest.RoadDocument}, membership.RegistryOptions{})
	if err != nil {
		return c, err
	}
	keys, err := membership.NewFirstUse(membership.FirstUseConfig{Registry: registry, MaxLifetime: 24 * time.Hour,
		NodeExists: func(context.Context, string) (bool, error) { return false, nil }}) // ask the API server
	if err != nil {
		return c, err
	}
	ring, err := attest.NewStaticKeyRing(attest.NewRingKey(time.Now()))
	if err != nil {
		return c, err
	}
	return attest.VerifierConfig{
		KeyRing: ring,
		Kinds:   []attest.Kind{kind},
		Policy: &csr.Policy{
			ClusterIDs:  []string{"cluster-1"},
			SignerNames: []string{signerName},
			Machines: func(_ context.Context, q csr.Question) (*csr.Machine, error) {
				name := q.NodeName
				return &csr.Machine{Name: "instance-1", NodeName: name, BootstrapReady: true}, nil
			},
		},
		Authorizer: membership.Both(list, keys),
	}, nil
}

// filed is a node's spec as a server stores it: the user is from the server's own
// authentication, here of a bootstrap token.
func filed(spec *csr.Spec) *csr.Request {
	return csr.Filed(spec, csr.User{Username: csr.BootstrapUserPrefix + "abcdef", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}, time.Now())
}
