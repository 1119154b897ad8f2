package oid

import (
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/refusal"
)

const vm = "azure:///subscriptions/8a205152-b25a-417f-a676-80465535a6c9/resourceGroups/MC_Example-RG_aks_eastus" +
	"/providers/Microsoft.Compute/virtualMachineScaleSets/aks-pool-1-vmss/virtualMachines/0"

func TestSameProviderID(t *testing.T) {
	for name, c := range map[string]struct {
		a, b string
		want bool
	}{
		"the same":                     {vm, vm, true},
		"the group in lower case":      {vm, strings.Replace(vm, "MC_Example-RG", "mc_example-rg", 1), true},
		"all in lower case":            {vm, strings.ToLower(vm), true},
		"the scheme in capitals":       {vm, "AZURE" + vm[5:], true},
		"another machine":              {vm, vm[:len(vm)-1] + "1", false},
		"a longer name":                {vm, vm + "0", false},
		"a group of another name":      {vm, strings.Replace(vm, "Example", "Examples", 1), false},
		"a hyphen and an underscore":   {vm, strings.Replace(vm, "MC_", "MC-", 1), false},
		"a letter that folds to a k":   {"azure:///k", "azure:///\u212a", false},
		"a letter that is no ASCII":    {"azure:///\u00e4", "azure:///\u00c4", false},
		"another cloud's, in capitals": {"gce://project/zone/name", "gce://project/zone/NAME", false},
		"AWS', in capitals":            {"aws:///us-east-2a/i-0abc", "aws:///us-east-2a/I-0ABC", false},
		"vSphere's, in capitals":       {"vsphere://4228e784-3f9e-998e-311b-29a25ad112d3", "vsphere://4228E784-3F9E-998E-311B-29A25AD112D3", true},
		"another of vSphere":           {"vsphere://4228e784-3f9e-998e-311b-29a25ad112d3", "vsphere://4228E784-3F9E-998E-311B-29A25AD112D4", false},
		"no ID":                        {"", vm, false},
		"none":                         {"", "", true},
		"AWS', without a zone":         {"aws:///us-east-2a/i-0abc", "aws:////i-0abc", true},
		"AWS', without empty parts":    {"aws:///us-east-2a/i-0abc", "aws:///i-0abc", true},
		"AWS', zone in another place":  {"aws:///us-east-2a/i-0abc", "aws://us-east-2a/i-0abc", true},
		"AWS', one slash more":         {"aws:///us-east-2a/i-0abc", "aws:////us-east-2a/i-0abc", true},
		"AWS', of another zone":        {"aws:///us-east-2a/i-0abc", "aws:///us-east-2b/i-0abc", false},
		"AWS', another instance":       {"aws:///us-east-2a/i-0abc", "aws:////i-0abd", false},
		"AWS', a longer path":          {"aws:///us-east-2a/i-0abc", "aws:///us-east-2a/x/i-0abc", false},
		"AWS', no instance":            {"aws:///us-east-2a/fargate-1", "aws:///fargate-1", false},
		"AWS', the scheme in capitals": {"aws:///us-east-2a/i-0abc", "AWS:////i-0abc", true},
		"AWS', of one digit":           {"aws:///us-east-2a/i-1", "aws:////i-1", true},
		"AWS', of no digit":            {"aws:///us-east-2a/i-", "aws:////i-", false},
		"AWS', below an instance":      {"aws:///us-east-2a/i-1/x", "aws://us-east-2a/i-1/x", false},
		"AWS' form of another":         {"gce:///us-east-2a/i-0abc", "gce:////i-0abc", false},
		"the scheme of Google's":       {"gce://p/z/n", "GCE://p/z/n", true},
		"the scheme, cut off":          {"azure:/", "AZURE:/", false},
		"the scheme in another place":  {"x-azure:///a", "x-azure:///A", false},
	} {
		t.Run(name, func(t *testing.T) {
			if sameID(c.a, c.b) != c.want || sameID(c.b, c.a) != c.want {
				t.Errorf("%q, %q", c.a, c.b)
			}
		})
	}
}

func sameID(a, b string) bool {
	same, _, _ := SameProviderID(a, b)
	return same
}

// A difference of case in front of it hides no other.
func TestSameProviderIDQuotes(t *testing.T) {
	_, got, want := SameProviderID(strings.ToLower(vm), vm[:len(vm)-1]+"1")
	if !strings.HasSuffix(got, "virtualmachines/0\"") || !strings.HasSuffix(want, "virtualMachines/1\"") {
		t.Errorf("%s, %s", got, want)
	}
}

func FuzzCanonicalProviderID(f *testing.F) {
	for _, id := range []string{vm, "aws:////i-1", "aws://a/i-1", "aws:///a/i-1", "none", "", "://", "VSPHERE://A", "a://b//"} {
		f.Add(id, "aws:///a/i-1")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if c := CanonicalProviderID(a); CanonicalProviderID(c) != c || !sameID(a, c) || !sameID(c, a) {
			t.Errorf("%q is %q, and that is %q", a, c, CanonicalProviderID(c))
		}
		if sameID(a, b) != sameID(b, a) || sameID(a, b) && CanonicalProviderID(a) != CanonicalProviderID(b) {
			t.Errorf("%q and %q", a, b)
		}
	})
}

func TestCheckProviderID(t *testing.T) {
	for _, id := range []string{vm, "aws:////i-0abc", "gce://p/z/n", "vsphere://4228e784-3f9e-998e-311b-29a25ad112d3", "metal3://ns/host/machine",
		"openstack:///05224519-f863-4857-a971-5384bd879ab8", "digitalocean://123", "k3s://node-1", "x.y-z+1://a"} {
		if err := CheckProviderID(id); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"", names.NoProviderID, "metal", "i-0abc", "://x", "vsphere://", "openstack:///", "aws:///us-east-2a/", "1x://a", "a b://c", "provider=tpm://x",
		"a://b\n", "a://b ", "a://" + strings.Repeat("x", 1024), "K://x"} {
		if err := CheckProviderID(id); !errors.Is(err, refusal.CheckConfig) && !errors.Is(err, checkProviderIDText) && !errors.Is(err, checkProviderIDSize) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestContradictsProviderID(t *testing.T) {
	const google, amazon = "gce:my-project/42", "aws:aws/us-east-2/i-0abc"
	for name, c := range map[string]struct {
		id, machine, stated string
		want                bool
	}{
		"no ID":                             {"", google, "gce://my-project/z/vm-1", false},
		"the one that is stated":            {"gce://my-project/z/vm-1", google, "gce://my-project/z/vm-1", false},
		"another":                           {"gce://my-project/z/vm-2", google, "gce://my-project/z/vm-1", true},
		"another, of an EK":                 {"gce://my-project/z/vm-2", "ek:sha256:00", "gce://my-project/z/vm-1", true},
		"in another case":                   {"GCE://my-project/z/vm-2", google, "gce://my-project/z/vm-1", true},
		"of another cloud":                  {"aws:////i-0abc", google, "gce://my-project/z/vm-1", true},
		"of another platform":               {"metal3://my-project/z/vm-1", google, "gce://my-project/z/vm-1", false},
		"two of another platform":           {"metal3://ns/a", "ek:sha256:00", "metal3://ns/b", true},
		"evidence that states none":         {"gce://my-project/z/vm-1", "ek:sha256:00", "", false},
		"none, ever":                        {names.NoProviderID, "ek:sha256:00", "", false},
		"none, ever, and one is stated":     {names.NoProviderID, "ek:sha256:00", "metal3://ns/b", true},
		"Google's, of the project":          {"gce://my-project/z/vm-1", google, "", false},
		"Google's, by number":               {"gce://my-project/z/42", google, "", false},
		"Google's, by another number":       {"gce://my-project/z/43", google, "", true},
		"Google's, of another project":      {"gce://my-project-2/z/vm-1", google, "", true},
		"Google's, of a project's number":   {"gce://1234/z/vm-1", google, "", true},
		"Google's, without a zone":          {"gce://my-project/vm-1", google, "", true},
		"Google's, without a name":          {"gce://my-project/z/", google, "", true},
		"Google's machine at Amazon":        {"aws:////i-0abc", google, "", true},
		"Amazon's":                          {"aws:///us-east-2a/i-0abc", amazon, "", false},
		"Amazon's, of a local zone":         {"aws:///us-east-2-chi-1a/i-0abc", amazon, "", false},
		"Amazon's, in another place":        {"aws://us-east-2a/i-0abc", amazon, "", false},
		"Amazon's, without a zone":          {"aws:////i-0abc", amazon, "", false},
		"Amazon's, of another region":       {"aws:///us-east-1a/i-0abc", amazon, "", true},
		"Amazon's, another":                 {"aws:///us-east-2a/i-0abd", amazon, "", true},
		"Amazon's, of no instance":          {"aws:///us-east-2a", amazon, "", true},
		"Azure's, of the subscription":      {"azure:///Subscriptions/8A205152/resourceGroups/g/vm", "azure:8a205152/uuid", "", false},
		"Azure's, of another subscription":  {"azure:///subscriptions/8a205153/resourceGroups/g/vm", "azure:8a205152/uuid", "", true},
		"Azure's, of a longer subscription": {"azure:///subscriptions/8a2051520/resourceGroups/g/vm", "azure:8a205152/uuid", "", true},
		"of a kind that is no cloud":        {"rack://7", "rack:8", "", false},
		"of an identity of no machine":      {"aws:////i-0abc", "aws:", "", true},
		"without a scheme":                  {"metal", google, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ContradictsProviderID(c.id, c.machine, c.stated); got != c.want {
				t.Errorf("%s of %s, which states %q: got %t", c.id, c.machine, c.stated, got)
			}
		})
	}
}
