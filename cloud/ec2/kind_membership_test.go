package ec2_test

import (
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/ec2"
	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/refusal"
)

const id = attest.Identity("aws:aws/us-east-2/i-0123456789abcdef0")

var machine = cloudtest.EC2Machine{AccountID: "123456789012", Region: "us-east-2", InstanceID: "i-0123456789abcdef0", Role: "node"}

// A machine joins by the kind by which it is listed. It has the same name by its NitroTPM, and is
// not let in by less than that.
func TestStepDown(t *testing.T) {
	cloud := cloudtest.NewEC2(t, "us-east-2")
	for name, c := range map[string]struct {
		member membership.Member
		want   refusal.Check
	}{
		"listed by this kind":     {membership.Member{Machine: id, NodeName: "node-1", Provider: ec2.Provider}, ""},
		"listed by its NitroTPM":  {membership.Member{Machine: id, NodeName: "node-1", Provider: nitro.Provider}, attest.CheckMembership},
		"listed by a TPM":         {membership.Member{Machine: id, NodeName: "node-1"}, attest.CheckMembership},
		"another node's":          {membership.Member{Machine: id, NodeName: "node-2", Provider: ec2.Provider}, attest.CheckMembership},
		"the instance of another": {membership.Member{Machine: "aws:aws/us-west-2/i-0123456789abcdef0", NodeName: "node-1", Provider: ec2.Provider}, attest.CheckMembership},
	} {
		t.Run(name, func(t *testing.T) {
			members, err := membership.NewStaticList([]membership.Member{c.member,
				{Machine: "aws:aws/us-east-2/i-0123456789abcdeff", NodeName: "node-9", Provider: ec2.Provider}})
			if err != nil {
				t.Fatal(err)
			}
			config, err := verifierConfig(cloud)
			if err != nil {
				t.Fatal(err)
			}
			config.Authorizer = attest.AuthorizerFunc(members.Authorize) // of kinds that are not open here, too
			v, err := attest.NewVerifier(config)
			if err == nil {
				_, err = join(t.Context(), v, cloud, machine)
			}
			if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A principal that may assume a role chooses the machine: no machine is trusted on first use.
func TestFirstUse(t *testing.T) {
	config, err := verifierConfig(cloudtest.NewEC2(t, "us-east-2"))
	if err != nil {
		t.Fatal(err)
	}
	kindtest.NoFirstUse(t, ec2.Provider, config)
}

// The inventory's provider ID of the machine is compared with its document.
func TestInventory(t *testing.T) {
	cloud := cloudtest.NewEC2(t, "us-east-2")
	kindtest.Inventory(t, map[string]refusal.Check{
		"":                                          "",
		"aws:///us-east-2a/i-0123456789abcdef0":     "",
		"aws:////i-0123456789abcdef0":               "",
		"metal3://namespace/host/machine":           "",
		"aws:///us-east-2a/i-0fedcba9876543210":     "provider-id-evidence",
		"aws:///us-east-1a/i-0123456789abcdef0":     "provider-id-evidence",
		"gce://example-project/europe-west1-b/vm-1": "provider-id-evidence",
	}, func(machines kindtest.Machines) error {
		config, err := verifierConfig(cloud)
		if err != nil {
			return err
		}
		config.Policy.Machines = machines
		v, err := attest.NewVerifier(config)
		if err != nil {
			return err
		}
		_, err = join(t.Context(), v, cloud, machine)
		return err
	})
}
