package providerid

import (
	"strings"
	"testing"
)

const vm = "azure:///subscriptions/8a205152-b25a-417f-a676-80465535a6c9/resourceGroups/MC_Example-RG_aks_eastus" +
	"/providers/Microsoft.Compute/virtualMachineScaleSets/aks-pool-1-vmss/virtualMachines/0"

func TestEqual(t *testing.T) {
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
		"the scheme, cut off":          {"azure:/", "AZURE:/", false},
		"the scheme in another place":  {"x-azure:///a", "x-azure:///A", false},
	} {
		t.Run(name, func(t *testing.T) {
			if Equal(c.a, c.b) != c.want || Equal(c.b, c.a) != c.want {
				t.Errorf("%q, %q", c.a, c.b)
			}
		})
	}
}

// A difference of case in front of it hides no other.
func TestApart(t *testing.T) {
	got, want := Apart(strings.ToLower(vm), vm[:len(vm)-1]+"1")
	if !strings.HasSuffix(got, "virtualmachines/0\"") || !strings.HasSuffix(want, "virtualMachines/1\"") {
		t.Errorf("%s, %s", got, want)
	}
}
