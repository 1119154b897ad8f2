package azure_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/cloud/azure"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// A machine of a subscription joins as the node that a list has for it. The cloud is a fake:
// with the real one the roots come from a file, and the prover needs no options.
func Example() {
	ctx := context.Background()
	cloud, err := cloudtest.OpenAzure(cloudtest.AzureOptions{})
	if err != nil {
		log.Fatal(err)
	}
	machine := cloudtest.AzureMachine{SubscriptionID: "8A205152-B25A-417F-A676-80465535A6C9", VMID: "B1310A36-D400-46F6-82CB-6217DF846586"}
	server := cloud.Serve(machine)
	defer server.Close()

	verifier, err := newVerifier(cloud, machine)
	if err != nil {
		log.Fatal(err)
	}

	prover, err := azure.NewProver(azure.SourceOptions{URL: server.URL})
	if err != nil {
		log.Fatal(err)
	}
	attester, err := attest.NewAttester(prover)
	if err != nil {
		log.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	request, err := csr.Create(csr.PurposeClient, key, "node-1", csr.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	subject := attest.Subject{Request: request, SignerName: signerName, ClusterID: "cluster-1"}
	hello, err := attester.Hello(ctx, subject)
	if err != nil {
		log.Fatal(err)
	}
	challenge, err := verifier.Challenge(ctx, filed(hello))
	if err != nil {
		log.Fatal(err)
	}
	answer, err := attester.Answer(ctx, challenge, key, subject)
	if err != nil {
		log.Fatal(err)
	}
	result, err := verifier.Verify(ctx, filed(answer))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.NodeName, "is", result.Machine)
	fmt.Println("signed by", result.Details.(*azure.Document).Name)
	// Output:
	// node-1 is azure:8a205152-b25a-417f-a676-80465535a6c9/b1310a36-d400-46f6-82cb-6217df846586
	// signed by metadata.azure.com
}

const signerName = "cluster.x-k8s.io/kube-apiserver-client-kubelet-azure"

// newVerifier is a control plane that knows one machine, as node-1.
func newVerifier(cloud *cloudtest.Azure, machine cloudtest.AzureMachine) (*attest.Verifier, error) {
	config, err := verifierConfig(cloud, machine)
	if err != nil {
		return nil, err
	}
	return attest.NewVerifier(config)
}

func verifierConfig(cloud *cloudtest.Azure, machine cloudtest.AzureMachine) (c attest.VerifierConfig, err error) {
	documents, err := azure.NewVerifier(azure.VerifierConfig{
		Roots: []*x509.Certificate{cloud.Root()}, Intermediates: []*x509.Certificate{cloud.Intermediate()}})
	if err != nil {
		return c, err
	}
	kind, err := azure.NewKind(azure.KindConfig{Verifier: documents, Subscriptions: []string{machine.SubscriptionID}})
	if err != nil {
		return c, err
	}
	id, err := azure.Identity(machine.SubscriptionID, machine.VMID)
	if err != nil {
		return c, err
	}
	list, err := membership.NewStaticList([]membership.Member{{Machine: id, NodeName: "node-1", Provider: azure.Provider}})
	if err != nil {
		return c, err
	}
	// A pod may ask for documents too: behind the list, the first key is remembered, here in memory,
	// otherwise in a file (boltregistry).
	registry, err := membership.NewMemoryRegistry(membership.Scope{Cluster: "cluster-1", Provider: azure.Provider, Road: attest.RoadDocument}, membership.RegistryOptions{})
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
				return &csr.Machine{Name: "vm-1", NodeName: name, BootstrapReady: true}, nil
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

// The service may keep a document for hours, whatever nonce it is asked for.
func ExampleSource_Document() {
	cloud, err := cloudtest.OpenAzure(cloudtest.AzureOptions{})
	if err != nil {
		log.Fatal(err)
	}
	cloud.Cached = 6 * time.Hour
	server := cloud.Serve(cloudtest.AzureMachine{SubscriptionID: "8a205152-b25a-417f-a676-80465535a6c9", VMID: "b1310a36-d400-46f6-82cb-6217df846586"})
	defer server.Close()
	source, err := azure.NewSource(azure.SourceOptions{URL: server.URL, Sleep: func(context.Context, time.Duration) error { return nil }})
	if err != nil {
		log.Fatal(err)
	}
	for n := range 2 {
		value := make([]byte, 32)
		value[0] = byte(n)
		_, err := source.Document(context.Background(), value)
		fmt.Println(err == nil, errors.Is(err, refusal.Check("azure-document-cached")))
	}
	// Output:
	// true false
	// false true
}
