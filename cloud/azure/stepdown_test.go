package azure_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/cloud/azure"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// A machine that is listed by its TPM is refused with its document, and a key in a TPM is
// never shown by one.
func TestStepDown(t *testing.T) {
	cloud := cloudtest.NewAzure(t, cloudtest.AzureOptions{})
	machine := cloudtest.AzureMachine{SubscriptionID: "8A205152-B25A-417F-A676-80465535A6C9", VMID: "B1310A36-D400-46F6-82CB-6217DF846586"}
	server := cloud.Serve(machine)
	defer server.Close()
	id := attest.Identity("azure:" + strings.ToLower(machine.SubscriptionID+"/"+machine.VMID))
	for name, c := range map[string]struct {
		member membership.Member
		change func(*attest.VerifierConfig)
		want   refusal.Check
	}{
		"listed by its document": {membership.Member{Machine: id, NodeName: "node-1", Provider: azure.Provider}, nil, ""},
		"listed by its TPM":      {membership.Member{Machine: id, NodeName: "node-1"}, nil, attest.CheckMembership},
		"listed by another kind": {membership.Member{Machine: id, NodeName: "node-1", Provider: "nitro"}, nil, attest.CheckMembership},
		"another node's":         {membership.Member{Machine: id, NodeName: "node-2", Provider: azure.Provider}, nil, attest.CheckMembership},
		"another machine":        {membership.Member{Machine: attest.Identity(strings.Replace(string(id), "b1", "b2", 1)), NodeName: "node-1", Provider: azure.Provider}, nil, attest.CheckMembership},
		"a key in a TPM": {membership.Member{Machine: id, NodeName: "node-1", Provider: azure.Provider},
			func(c *attest.VerifierConfig) { c.RequireTPMResident = true }, refusal.Check("key-not-resident")},
	} {
		t.Run(name, func(t *testing.T) {
			members, err := membership.NewStaticList([]membership.Member{c.member,
				{Machine: attest.Identity(strings.Replace(string(id), "b1", "ff", 1)), NodeName: "node-9", Provider: azure.Provider}})
			if err != nil {
				t.Fatal(err)
			}
			config, err := verifierConfig(cloud, machine)
			if err != nil {
				t.Fatal(err)
			}
			config.Authorizer = attest.AuthorizerFunc(members.Authorize) // of kinds that are not open here, too
			if c.change != nil {
				c.change(&config)
			}
			v, err := attest.NewVerifier(config)
			if err == nil {
				err = join(v, server.URL)
			}
			if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// The machines of the operator's subscriptions can be trusted on first use: the first one is
// the node from then on, and a bootstrap token gets no second key for it. Of another
// subscription there is none.
func TestFirstUse(t *testing.T) {
	cloud := cloudtest.NewAzure(t, cloudtest.AzureOptions{})
	machine := cloudtest.AzureMachine{SubscriptionID: "8a205152-b25a-417f-a676-80465535a6c9", VMID: "b1310a36-d400-46f6-82cb-6217df846586"}
	server := cloud.Serve(machine)
	defer server.Close()
	stranger := machine
	stranger.SubscriptionID = "00000000-0000-0000-0000-000000000001"
	other := cloud.Serve(stranger)
	defer other.Close()
	config, err := verifierConfig(cloud, machine)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := membership.NewMemoryRegistry(membership.Scope{Cluster: "cluster-1", Provider: azure.Provider, Road: attest.RoadDocument}, membership.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if config.Authorizer, err = membership.NewFirstUse(membership.FirstUseConfig{Registry: registry, MaxLifetime: time.Hour,
		NodeExists: func(context.Context, string) (bool, error) { return false, nil }}); err != nil {
		t.Fatal(err)
	}
	v, err := attest.NewVerifier(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := join(v, other.URL); !errors.Is(err, refusal.Check("azure-subscription")) {
		t.Errorf("another subscription: %v", err)
	}
	if err := join(v, server.URL); err != nil {
		t.Errorf("the first machine: %v", err)
	}
	if err := join(v, server.URL); !errors.Is(err, attest.CheckMembership) {
		t.Errorf("a second key: %v", err)
	}
}

// join is a join of node-1 with the documents of the machine that has the server.
func join(v *attest.Verifier, url string) error {
	ctx := context.Background()
	prover, err := azure.NewProver(azure.SourceOptions{URL: url})
	if err != nil {
		return err
	}
	attester, err := attest.NewAttester(prover)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	request, err := csr.Create(csr.PurposeClient, key, "node-1", csr.CreateOptions{})
	if err != nil {
		return err
	}
	subject := attest.Subject{Request: request, SignerName: signerName, ClusterID: "cluster-1"}
	hello, err := attester.Hello(ctx, subject)
	if err != nil {
		return err
	}
	challenge, err := v.Challenge(ctx, filed(hello))
	if err != nil {
		return err
	}
	answer, err := attester.Answer(ctx, challenge, key, subject)
	if err != nil {
		return err
	}
	_, err = v.Verify(ctx, filed(answer))
	return err
}
