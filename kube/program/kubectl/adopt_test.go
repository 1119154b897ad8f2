package kubectl

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
)

// TestAdoptProviderID has a cloud spell the provider ID of a bound machine otherwise, and the
// inventory follow: the machine is refused until an operator says that it is the same one. Its
// name and its certificates stay its own. An ID that the machine cannot have, or that the inventory or
// the node itself contradicts, would lose the node: it is refused.
func TestAdoptProviderID(t *testing.T) {
	const before, after = "vsphere://420f1d1b-0000-0000-0000-000000000001", "vsphere://1b1d0f42-0000-0000-0000-000000000001"
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	claim := membership.Claim{NodeName: "node-1", Machine: honest, MachineUID: "uid-1", ProviderID: before}
	inventory := func(id string) string { return "machines: [{nodeName: node-1, uid: uid-1" + id + "}]\n" }
	states := func(user, id string) []client.Object {
		return []client.Object{stating(t, "a", user, id, now)}
	}
	const self = "system:node:node-1"
	for name, row := range map[string]struct {
		options
		inventory string // one with the new ID if empty
		requests  []client.Object
		released  bool
		want      bool
		says      string
	}{
		"the inventory's":                         {options: options{providerID: after}, want: true, says: "now, before " + before},
		"the inventory has none":                  {options: options{providerID: after}, inventory: inventory(""), want: true},
		"the inventory has the old one":           {options: options{providerID: after}, inventory: inventory(", providerID: '" + before + "'"), says: "correct the inventory first"},
		"the inventory is not read":               {options: options{providerID: after}, inventory: "-", says: "cannot be read"},
		"it is not read, as is known":             {options: options{providerID: after, withoutInventory: true}, inventory: "-", want: true},
		"the node states it":                      {options: options{providerID: after}, requests: states(self, strings.ToUpper(after)), want: true},
		"the node states another":                 {options: options{providerID: after}, requests: states(self, before), says: "states \"vsphere://420f"},
		"the node stated another":                 {options: options{providerID: after}, requests: append(states(self, after), stating(t, "b", self, before, now.Add(-time.Minute))), want: true},
		"the node states none":                    {options: options{providerID: after}, requests: states(self, ""), want: true},
		"a bootstrap token states it not":         {options: options{providerID: after}, requests: states("system:bootstrap:abcdef", before), want: true},
		"another node states another":             {options: options{providerID: after}, requests: states("system:node:node-2", before), want: true},
		"yet another one":                         {options: options{providerID: before + "2"}, says: "the inventory has"},
		"no scheme":                               {options: options{providerID: "x"}, inventory: inventory(""), says: "--provider-id"},
		"no name of the scheme":                   {options: options{providerID: "://x"}, inventory: inventory(""), says: "--provider-id"},
		"with a space":                            {options: options{providerID: after + " "}, inventory: inventory(""), says: "--provider-id"},
		"the inventory has the old one, by force": {options: options{providerID: after, force: true}, inventory: inventory(", providerID: '" + before + "'"), want: true, says: "because of --force: the inventory has provider ID"},
		"the inventory is not read, by force":     {options: options{providerID: after, force: true}, inventory: "-", want: true, says: "because of --force: the inventory cannot be read"},
		"no scheme, by force":                     {options: options{providerID: "x", force: true}, says: "--provider-id"},
		"the node states another, by force":       {options: options{providerID: after, force: true}, requests: states(self, before), says: "states \"vsphere://420f"},
		"of what rests now":                       {options: options{providerID: after}, released: true, says: "resting, not bound"},
	} {
		t.Run(name, func(t *testing.T) {
			text := map[string]string{"": inventory(", providerID: '" + after + "'"), "-": ""}[row.inventory]
			if row.inventory != "" && row.inventory != "-" {
				text = row.inventory
			}
			p := operates(t, text, row.requests...)
			p.options = row.options
			p.machine = honest
			r := recorded(t, p.plugin, membership.Scope{Provider: "strange", Road: attest.RoadDocument}, claim, now.Add(time.Hour), false)
			record, err := r.Lookup(t.Context(), claim.NodeName)
			if err != nil {
				t.Fatal(err)
			}
			issued := csr.IssuedRecord{SignerName: csr.SignerKubeAPIServerClientKubelet, NodeName: claim.NodeName, Machine: string(claim.Machine), MachineUID: claim.MachineUID,
				ProviderID: before, RequestUID: "request-1", CredentialID: "X509SHA256=" + strings.Repeat("0a", 32), NotBefore: now, NotAfter: now.Add(time.Hour)}
			if _, err = r.Bind(t.Context(), record, now.Add(time.Hour), &issued); err != nil {
				t.Fatal(err)
			}
			if row.released {
				if _, err := r.Release(t.Context(), claim.NodeName, claim.MachineUID); err != nil {
					t.Fatal(err)
				}
			}
			moved := claim
			moved.ProviderID = after
			if _, err := r.Reserve(t.Context(), moved, now.Add(time.Minute)); err == nil {
				t.Fatal("another provider ID was admitted without a word")
			}
			said := ""
			if err = p.adopt(t.Context(), claim.NodeName); err != nil {
				said = err.Error()
			}
			if !strings.Contains(said+p.out.String()+p.err.String(), row.says) {
				t.Errorf("got %q, want %q in it", said+p.out.String(), row.says)
			}
			if _, reserve := r.Reserve(t.Context(), moved, now.Add(time.Minute)); (reserve == nil) != row.want || row.want != (err == nil) {
				t.Fatalf("adopt: %v, then %v", err, reserve)
			}
			record, err = r.Lookup(t.Context(), claim.NodeName)
			if err != nil || record.Machine != claim.Machine || record.MachineUID != claim.MachineUID || !record.LastEnd.Equal(now.Add(time.Hour)) {
				t.Errorf("%+v, %v", record, err)
			}
			if row.want && (len(record.Issued) != 1 || record.Issued[0].ProviderID != after || record.Issued[0].CredentialID != issued.CredentialID) {
				t.Errorf("certificates %+v", record.Issued)
			}
		})
	}
}
