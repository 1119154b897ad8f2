package attest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
)

// A machine that the inventory knows by one kind of evidence is refused by another, whoever
// decides about membership: at the hello, and where the inventory has changed since, at the
// answer.
func TestInventoryNamesTheKind(t *testing.T) {
	node := attesttest.NewNode(t, attesttest.NodeOptions{})
	plane := attesttest.NewControlPlane(t, node)
	answer, err := plane.Evidence(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	hello, err := node.Hello(t.Context(), plane.Now())
	if err != nil {
		t.Fatal(err)
	}
	for provider, want := range map[string]error{"": nil, "tpm": nil, "gce": attest.CheckMembership, "TPM": attest.CheckMembership} {
		t.Run("by "+provider, func(t *testing.T) {
			config := plane.Config
			config.Policy = config.Policy.Clone()
			config.Policy.Machines = func(context.Context, csr.Question) (*csr.Machine, error) {
				return &csr.Machine{Name: node.Name, NodeName: node.Name, Provider: provider, ProviderID: node.ProviderID, BootstrapReady: true}, nil
			}
			verifier, err := attest.NewVerifier(config)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := verifier.Challenge(t.Context(), hello); !errors.Is(err, want) {
				t.Errorf("hello: %v, want %v", err, want)
			}
			if _, err := verifier.Verify(t.Context(), answer); !errors.Is(err, want) {
				t.Errorf("answer: %v, want %v", err, want)
			}
		})
	}
}
