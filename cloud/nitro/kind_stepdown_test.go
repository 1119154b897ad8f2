package nitro_test

import (
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/refusal"
)

// A machine that is listed by its TPM is refused with its document, a key in a TPM is never
// shown by one, and no machine is trusted on first use.
func TestStepDown(t *testing.T) {
	m := listed(t)
	m.StepDown(t, [2]attest.Identity{"aws:aws/us-east-2/i-1123456789abcdef0", "aws:aws/us-east-2/i-f123456789abcdef0"}, "azure")
	// No document names an account: no machine is trusted on first use.
	kindtest.NoFirstUse(t, nitro.Provider, m.Config())
}

// The inventory's provider ID of the machine is compared with its document.
func TestInventory(t *testing.T) {
	listed(t).Inventory(t, map[string]refusal.Check{
		"":                                      "",
		"aws:///us-east-2a/i-0123456789abcdef0": "",
		"aws:///us-east-2-chi-1a/i-0123456789abcdef0":         "", // a local zone
		"aws:////i-0123456789abcdef0":                         "",
		"metal3://namespace/host/machine":                     "", // of which AWS knows nothing
		"aws:///us-east-2a/i-0fedcba9876543210":               "provider-id-evidence",
		"aws:///us-east-1a/i-0123456789abcdef0":               "provider-id-evidence",
		"aws:///us-east-2a/i-0123456789abcdef01":              "provider-id-evidence",
		"aws:///us-east-2a/i-0123456789abcdef0/i-1":           "provider-id-evidence",
		"aws:///i-0123456789abcdef0":                          "",
		"aws://us-east-2a/i-0123456789abcdef0":                "",
		"aws://":                                              "provider-id-evidence",
		"aws:///us-east-2a":                                   "provider-id-evidence",
		"aws:///us-east-2a/x/i-0123456789abcdef0":             "provider-id-evidence",
		"AWS:///us-east-2a/i-0fedcba9876543210":               "provider-id-evidence",
		"Azure://8a205152":                                    "provider-id-evidence",
		"gce://example-project/europe-west1-b/vm-1":           "provider-id-evidence",
		"azure:///subscriptions/8a205152-b25a-417f-a676-8046": "provider-id-evidence",
	})
}

// listed is an instance that a list has as node-1.
func listed(t *testing.T) *kindtest.Machine {
	platform := cloudtest.NewNitro(t)
	machine := cloudtest.NitroMachine{InstanceID: "i-0123456789abcdef0", Region: "us-east-2", PCRs: map[int][]byte{4: image(1)}}
	prover := must(nitro.NewProver(nitro.SourceConfig{Ask: platform.Asker(machine)}))
	return &kindtest.Machine{Provider: nitro.Provider, ID: "aws:aws/us-east-2/i-0123456789abcdef0",
		Config: func() attest.VerifierConfig { return verifierConfig(platform, machine) },
		Join: func(v *attest.Verifier) error {
			_, err := join(v, prover)
			return err
		}}
}
