package attest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// A machine that the inventory knows by one kind of evidence is refused by another, and so is
// another machine than the one that it has for the node, by every authorizer: at the hello, and at the
// answer if the inventory has changed since.
func TestInventoryNamesTheMachine(t *testing.T) {
	node := attesttest.NewNode(t, attesttest.NodeOptions{})
	plane := attesttest.NewControlPlane(t, node)
	answer := testkit.Must(plane.Evidence(t.Context(), node))
	hello := testkit.Must(node.Hello(t.Context(), plane.Now()))
	result := testkit.Must(plane.Verifier.Verify(t.Context(), answer))
	own := string(result.Machine)
	for name, row := range map[string]struct {
		provider, identity string
		want               error
	}{
		"nothing": {"", "", nil}, "its kind": {"tpm", "", nil}, "its identity": {"", own, nil}, "both": {"tpm", own, nil},
		"another kind": {"gce", "", attest.CheckMembership}, "a kind in upper case": {"TPM", "", attest.CheckMembership}, "another kind with its identity": {"gce", own, attest.CheckMembership},
		"another identity": {"", "ek:sha256:" + strings.Repeat("0", 64), attest.CheckMembership}, "a longer one": {"tpm", own + "0", attest.CheckMembership}, "an identity in upper case": {"", strings.ToUpper(own), attest.CheckMembership},
	} {
		t.Run(name, func(t *testing.T) {
			want := row.want
			config := plane.Config
			config.Policy = config.Policy.Clone()
			config.Policy.Machines = func(context.Context, csr.Question) (*csr.Machine, error) {
				return &csr.Machine{Name: node.Name, NodeName: node.Name, Provider: row.provider, Identity: row.identity, ProviderID: node.ProviderID, BootstrapReady: true}, nil
			}
			verifier := testkit.Must(attest.NewVerifier(config))
			if _, err := verifier.Challenge(t.Context(), hello); !errors.Is(err, want) {
				t.Errorf("hello: %v, want %v", err, want)
			}
			if _, err := verifier.Verify(t.Context(), answer); !errors.Is(err, want) {
				t.Errorf("answer: %v, want %v", err, want)
			}
		})
	}
}
