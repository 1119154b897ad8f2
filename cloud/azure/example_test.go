package azure_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
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
	cloud := must(cloudtest.OpenAzure(cloudtest.AzureOptions{}))
	machine := cloudtest.AzureMachine{SubscriptionID: "8A205152-B25A-417F-A676-80465535A6C9", VMID: "B1310A36-D400-46F6-82CB-6217DF846586"}
	server := cloud.Serve(machine)
	defer server.Close()

	verifier := must(attest.NewVerifier(verifierConfig(cloud, machine)))
	prover := must(azure.NewProver(azure.SourceOptions{URL: server.URL}))
	result := must(join(verifier, prover, ""))
	fmt.Println(result.NodeName, "is", result.Machine)
	fmt.Println("signed by", result.Details.(*azure.Document).Name)
	// Output:
	// node-1 is azure:8a205152-b25a-417f-a676-80465535a6c9/b1310a36-d400-46f6-82cb-6217df846586
	// signed by metadata.azure.com
}

const signerName = "cluster.x-k8s.io/kube-apiserver-client-kubelet-azure"

// join is hello, challenge and answer of a node that claims a provider ID, "" for none.
func join(verifier *attest.Verifier, prover attest.Prover, providerID string) (*attest.Result, error) {
	ctx := context.Background()
	attester := must(attest.NewAttester(prover))
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	request := must(csr.Create(csr.PurposeClient, key, "node-1", csr.CreateOptions{ProviderID: providerID}))
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

// verifierConfig is a control plane that knows one machine, as node-1.
func verifierConfig(cloud *cloudtest.Azure, machine cloudtest.AzureMachine) attest.VerifierConfig {
	documents := must(azure.NewVerifier(azure.VerifierConfig{Roots: []*x509.Certificate{cloud.Root()}, Intermediates: []*x509.Certificate{cloud.Intermediate()}}))
	kind := must(azure.NewKind(azure.KindConfig{Verifier: documents, Subscriptions: []string{machine.SubscriptionID}}))
	id := must(azure.Identity(machine.SubscriptionID, machine.VMID))
	list := must(membership.NewStaticList([]membership.Member{{Machine: id, NodeName: "node-1", Provider: azure.Provider}}))
	// A pod may ask for documents too: behind the list, the first key is remembered, here in memory,
	// otherwise in a file (membership.OpenFileRegistry).
	scope := membership.Scope{Cluster: "cluster-1", Provider: azure.Provider, Road: attest.RoadDocument}
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
				return &csr.Machine{Name: "vm-1", NodeName: q.NodeName, BootstrapReady: true}, nil
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

// The service may keep a document for hours, whatever nonce it is asked for.
func ExampleSource_Document() {
	cloud := must(cloudtest.OpenAzure(cloudtest.AzureOptions{}))
	cloud.Cached = 6 * time.Hour
	server := cloud.Serve(cloudtest.AzureMachine{SubscriptionID: "8a205152-b25a-417f-a676-80465535a6c9", VMID: "b1310a36-d400-46f6-82cb-6217df846586"})
	defer server.Close()
	source := must(azure.NewSource(azure.SourceOptions{URL: server.URL, Sleep: func(context.Context, time.Duration) error { return nil }}))
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
