package ec2_test

import (
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/ec2"
	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/refusal"
)

// listed is an instance that a list has as node-1.
func listed(t *testing.T) *kindtest.Machine {
	cloud := cloudtest.NewEC2(t, "us-east-2")
	machine := cloudtest.EC2Machine{AccountID: "123456789012", Region: "us-east-2", InstanceID: "i-0123456789abcdef0", Role: "node"}
	return &kindtest.Machine{Provider: ec2.Provider, ID: "aws:aws/us-east-2/i-0123456789abcdef0",
		Config: func() attest.VerifierConfig { return verifierConfig(cloud) },
		Join: func(v *attest.Verifier) error {
			_, err := joinAs(v, cloud, machine)
			return err
		}}
}

// A machine joins by the kind by which it is listed. It has the same name by its NitroTPM, and is
// not let in by less than that.
func TestStepDown(t *testing.T) {
	listed(t).StepDown(t, [2]attest.Identity{"aws:aws/us-west-2/i-0123456789abcdef0", "aws:aws/us-east-2/i-0123456789abcdeff"}, nitro.Provider)
}

// A principal that may assume a role chooses the machine: no machine is trusted on first use.
func TestFirstUse(t *testing.T) {
	kindtest.NoFirstUse(t, ec2.Provider, listed(t).Config())
}

// The inventory's provider ID of the machine is compared with its document.
func TestInventory(t *testing.T) {
	listed(t).Inventory(t, map[string]refusal.Check{
		"":                                          "",
		"aws:///us-east-2a/i-0123456789abcdef0":     "",
		"aws:////i-0123456789abcdef0":               "",
		"metal3://namespace/host/machine":           "",
		"aws:///us-east-2a/i-0fedcba9876543210":     "provider-id-evidence",
		"aws:///us-east-1a/i-0123456789abcdef0":     "provider-id-evidence",
		"gce://example-project/europe-west1-b/vm-1": "provider-id-evidence",
	})
}
