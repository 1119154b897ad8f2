package nitro_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/refusal"
)

// A machine that is listed by its TPM is refused with its document, a key in a TPM is never
// shown by one, and no machine is trusted on first use.
func TestStepDown(t *testing.T) {
	platform := cloudtest.NewNitro(t)
	machine := cloudtest.NitroMachine{InstanceID: "i-0123456789abcdef0", Region: "us-east-2", PCRs: map[int][]byte{4: image(1)}}
	prover, err := nitro.NewProver(nitro.SourceConfig{Ask: platform.Asker(machine)})
	if err != nil {
		t.Fatal(err)
	}
	const id = attest.Identity("aws:aws/us-east-2/i-0123456789abcdef0")
	for name, c := range map[string]struct {
		member membership.Member
		change func(*attest.VerifierConfig)
		want   refusal.Check
	}{
		"listed by its document": {membership.Member{Machine: id, NodeName: "node-1", Provider: nitro.Provider}, nil, ""},
		"listed by its TPM":      {membership.Member{Machine: id, NodeName: "node-1"}, nil, attest.CheckMembership},
		"listed by another kind": {membership.Member{Machine: id, NodeName: "node-1", Provider: "azure"}, nil, attest.CheckMembership},
		"another node's":         {membership.Member{Machine: id, NodeName: "node-2", Provider: nitro.Provider}, nil, attest.CheckMembership},
		"another machine":        {membership.Member{Machine: attest.Identity(strings.Replace(string(id), "i-0", "i-1", 1)), NodeName: "node-1", Provider: nitro.Provider}, nil, attest.CheckMembership},
		"a key in a TPM": {membership.Member{Machine: id, NodeName: "node-1", Provider: nitro.Provider},
			func(c *attest.VerifierConfig) { c.RequireTPMResident = true }, refusal.Check("key-not-resident")},
	} {
		t.Run(name, func(t *testing.T) {
			members, err := membership.NewStaticList([]membership.Member{c.member,
				{Machine: attest.Identity(strings.Replace(string(id), "i-0", "i-f", 1)), NodeName: "node-9", Provider: nitro.Provider}})
			if err != nil {
				t.Fatal(err)
			}
			config, err := verifierConfig(platform, machine)
			if err != nil {
				t.Fatal(err)
			}
			config.Authorizer = attest.AuthorizerFunc(members.Authorize) // of kinds that are not open here, too
			if c.change != nil {
				c.change(&config)
			}
			v, err := attest.NewVerifier(config)
			if err == nil {
				_, err = join(context.Background(), v, prover)
			}
			if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	// No document names an account: no machine is trusted on first use.
	config, err := verifierConfig(platform, machine)
	if err != nil {
		t.Fatal(err)
	}
	kindtest.NoFirstUse(t, nitro.Provider, config)
}

// The inventory's provider ID of the machine is compared with its document.
func TestInventory(t *testing.T) {
	platform := cloudtest.NewNitro(t)
	machine := cloudtest.NitroMachine{InstanceID: "i-0123456789abcdef0", Region: "us-east-2", PCRs: map[int][]byte{4: image(1)}}
	prover, err := nitro.NewProver(nitro.SourceConfig{Ask: platform.Asker(machine)})
	if err != nil {
		t.Fatal(err)
	}
	kindtest.Inventory(t, map[string]refusal.Check{
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
	}, func(machines kindtest.Machines) error {
		config, err := verifierConfig(platform, machine)
		if err != nil {
			return err
		}
		config.Policy.Machines = machines
		v, err := attest.NewVerifier(config)
		if err != nil {
			return err
		}
		_, err = join(context.Background(), v, prover)
		return err
	})
}
