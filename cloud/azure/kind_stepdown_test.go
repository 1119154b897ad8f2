package azure_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/cloud/azure"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// A machine that is listed by its TPM is refused with its document, and a document never proves
// that a key is in a TPM.
func TestStepDown(t *testing.T) {
	m := listed(t)
	id := string(m.ID)
	m.StepDown(t, [2]attest.Identity{attest.Identity(strings.Replace(id, "b1", "b2", 1)), attest.Identity(strings.Replace(id, "b1", "ff", 1))}, "nitro")
}

// listed is a machine that a list has as node-1.
func listed(t *testing.T) *kindtest.Machine {
	cloud := cloudtest.NewAzure(t, cloudtest.AzureOptions{})
	machine := cloudtest.AzureMachine{SubscriptionID: "8A205152-B25A-417F-A676-80465535A6C9", VMID: "B1310A36-D400-46F6-82CB-6217DF846586"}
	server := cloud.Serve(machine)
	t.Cleanup(server.Close)
	return &kindtest.Machine{Provider: azure.Provider, ID: attest.Identity("azure:" + strings.ToLower(machine.SubscriptionID+"/"+machine.VMID)),
		Config: func() attest.VerifierConfig { return verifierConfig(cloud, machine) },
		Join:   func(v *attest.Verifier) error { return joinAt(v, server.URL) }}
}

// The machines of the operator's subscriptions can be trusted on first use: the first one is
// the node from then on, and a bootstrap token gets no second key for it. A machine of another
// subscription is refused.
func TestFirstUse(t *testing.T) {
	cloud := cloudtest.NewAzure(t, cloudtest.AzureOptions{})
	machine := cloudtest.AzureMachine{SubscriptionID: "8a205152-b25a-417f-a676-80465535a6c9", VMID: "b1310a36-d400-46f6-82cb-6217df846586"}
	server := cloud.Serve(machine)
	defer server.Close()
	stranger := machine
	stranger.SubscriptionID = "00000000-0000-0000-0000-000000000001"
	other := cloud.Serve(stranger)
	defer other.Close()
	config := verifierConfig(cloud, machine)
	registry := must(membership.NewMemoryRegistry(membership.Scope{Cluster: "cluster-1", Provider: azure.Provider, Road: attest.RoadDocument}, membership.RegistryOptions{}))
	config.Authorizer = must(membership.NewFirstUse(membership.FirstUseConfig{Registry: registry, MaxLifetime: time.Hour,
		NodeExists: func(context.Context, string) (bool, error) { return false, nil }}))
	v := must(attest.NewVerifier(config))
	if err := joinAt(v, other.URL); !errors.Is(err, refusal.Check("azure-subscription")) {
		t.Errorf("another subscription: %v", err)
	}
	if err := joinAt(v, server.URL); err != nil {
		t.Errorf("the first machine: %v", err)
	}
	if err := joinAt(v, server.URL); !errors.Is(err, attest.CheckMembership) {
		t.Errorf("a second key: %v", err)
	}
}

// otherAgent is an honest agent of another product on a machine: its server names the nonces,
// and the agent hands out the documents. The operator of that server reaches no metadata server
// of the machine.
type otherAgent struct {
	machine attest.Identity
	ask     func(value []byte) ([]byte, error)
}

func (a otherAgent) Machine(context.Context) (attest.Identity, error) { return a.machine, nil }

func (a otherAgent) Document(_ context.Context, value []byte) ([]byte, error) { return a.ask(value) }

// A document over a nonce that another product's server named, in that product's form, does
// not admit that server as the machine's node.
func TestNonceOfAnotherProtocol(t *testing.T) {
	cloud := cloudtest.NewAzure(t, cloudtest.AzureOptions{})
	machine := cloudtest.AzureMachine{SubscriptionID: "8a205152-b25a-417f-a676-80465535a6c9", VMID: "b1310a36-d400-46f6-82cb-6217df846586"}
	id := must(azure.Identity(machine.SubscriptionID, machine.VMID))
	v := must(attest.NewVerifier(verifierConfig(cloud, machine)))
	for name, nonce := range map[string]func(value []byte) string{
		"32 hexadecimal digits": func(value []byte) string { return hex.EncodeToString(value[:16]) },
		"base64":                func(value []byte) string { return base64.StdEncoding.EncodeToString(value[:16]) },
		"the whole value, cut":  func(value []byte) string { return base64.RawURLEncoding.EncodeToString(value)[:32] },
	} {
		t.Run(name, func(t *testing.T) {
			prover := must(document.NewProver(azure.Provider, 2, otherAgent{id, func(value []byte) ([]byte, error) { return cloud.Document(machine, nonce(value)) }}))
			if err := joinBy(v, prover); !errors.Is(err, refusal.Check("azure-document-nonce")) {
				t.Errorf("got %v, want azure-document-nonce", err)
			}
		})
	}
}

// A node that writes the former version of the format is refused for that, and so are its
// nonces.
func TestFormerVersion(t *testing.T) {
	cloud := cloudtest.NewAzure(t, cloudtest.AzureOptions{})
	machine := cloudtest.AzureMachine{SubscriptionID: "8a205152-b25a-417f-a676-80465535a6c9", VMID: "b1310a36-d400-46f6-82cb-6217df846586"}
	server := cloud.Serve(machine)
	defer server.Close()
	v := must(attest.NewVerifier(verifierConfig(cloud, machine)))
	source := must(azure.NewSource(azure.SourceOptions{URL: server.URL}))
	for version, want := range map[int]error{1: csr.CheckProviderVersion, 2: nil, 3: csr.CheckProviderVersion} {
		prover := must(document.NewProver(azure.Provider, version, source))
		if err := joinBy(v, prover); !errors.Is(err, want) {
			t.Errorf("version %d: %v, want %v", version, err, want)
		}
	}
}

// joinAt is a join of node-1 with the documents of the machine that has the server.
func joinAt(v *attest.Verifier, url string) error {
	return joinBy(v, must(azure.NewProver(azure.SourceOptions{URL: url})))
}

func joinBy(v *attest.Verifier, prover attest.Prover) error {
	_, err := join(v, prover, "")
	return err
}

// The inventory's provider ID of the machine is compared with its document.
func TestInventory(t *testing.T) {
	const vm = "/resourceGroups/MC_group/providers/Microsoft.Compute/virtualMachineScaleSets/pool-1/virtualMachines/0"
	listed(t).Inventory(t, map[string]refusal.Check{
		"": "",
		"azure:///subscriptions/8a205152-b25a-417f-a676-80465535a6c9" + vm:                  "",
		strings.ToLower("azure:///subscriptions/8A205152-b25a-417f-a676-80465535a6c9" + vm): "",
		"azure:///subscriptions/8A205152-B25A-417F-A676-80465535A6C9" + vm:                  "",
		"metal3://namespace/host/machine":                                                   "", // of which Azure knows nothing
		"azure:///subscriptions/00000000-0000-0000-0000-000000000001" + vm:                  "provider-id-evidence",
		"azure:///subscriptions/8a205152-b25a-417f-a676-80465535a6c9":                       "provider-id-evidence",
		"azure:///subscriptions/8a205152-b25a-417f-a676-80465535a6c90" + vm:                 "provider-id-evidence",
		"azure://8a205152-b25a-417f-a676-80465535a6c9" + vm:                                 "provider-id-evidence",
		"azure://": "provider-id-evidence",
		"gce://example-project/europe-west1-b/vm-1": "provider-id-evidence",
		"aws:///us-east-2a/i-0123456789abcdef0":     "provider-id-evidence",
	})
}

// Node, inventory and list spell one machine in the ways that they got it from: the cloud provider of
// Kubernetes, Cluster API and Azure's interface. Another machine of the same scale set is refused, and
// the error shows the difference.
func TestProviderIDsOfOneMachine(t *testing.T) {
	cloud := cloudtest.NewAzure(t, cloudtest.AzureOptions{})
	machine := cloudtest.AzureMachine{SubscriptionID: "8a205152-b25a-417f-a676-80465535a6c9", VMID: "b1310a36-d400-46f6-82cb-6217df846586"}
	server := cloud.Serve(machine)
	defer server.Close()
	identity := must(azure.Identity(machine.SubscriptionID, machine.VMID))
	prover := must(azure.NewProver(azure.SourceOptions{URL: server.URL}))
	const prefix, set = "azure:///subscriptions/8a205152-b25a-417f-a676-80465535a6c9/resourceGroups/", "/providers/Microsoft.Compute/virtualMachineScaleSets/aks-pool-1-vmss/virtualMachines/"
	const interfaces, kubelets = prefix + "MC_Example-RG_aks_eastus" + set + "0", prefix + "mc_example-rg_aks_eastus" + set + "0"
	lower, other := strings.ToLower(interfaces), strings.TrimSuffix(interfaces, "0")+"1"
	for name, c := range map[string]struct {
		claimed, inventory, list string
		ok                       bool
	}{
		"the node's group in lower case": {kubelets, interfaces, "", true},
		"the inventory in lower case":    {kubelets, lower, "", true},
		"the list as by the interface":   {kubelets, "", interfaces, true},
		"each in its own way":            {kubelets, lower, interfaces, true},
		"no claim":                       {"", kubelets, interfaces, true},
		"another machine is claimed":     {other, interfaces, "", false},
		"another one in lower case":      {strings.ToLower(other), interfaces, "", false},
		"another machine is listed":      {"", interfaces, other, false},
		"claimed against the list":       {other, "", interfaces, false},
	} {
		t.Run(name, func(t *testing.T) {
			config := verifierConfig(cloud, machine)
			config.Policy.Machines = func(_ context.Context, q csr.Question) (*csr.Machine, error) {
				return &csr.Machine{Name: "vm-1", NodeName: q.NodeName, BootstrapReady: true, ProviderID: c.inventory}, nil
			}
			config.Authorizer = must(membership.NewStaticList([]membership.Member{{Machine: identity, NodeName: "node-1", Provider: azure.Provider, ProviderID: c.list}}))
			v := must(attest.NewVerifier(config))
			_, err := join(v, prover, c.claimed)
			if c.ok && err == nil {
				return
			}
			if text := strings.ToLower(fmt.Sprint(err)); c.ok || errors.Is(err, refusal.ErrRetry) || !strings.Contains(text, "virtualmachines/0") || !strings.Contains(text, "virtualmachines/1") {
				t.Errorf("got %v", err)
			}
		})
	}
}
