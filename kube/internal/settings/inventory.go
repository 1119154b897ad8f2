package settings

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/azure"
	"github.com/nodeattest/nodeattest/cloud/ec2"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// inventoryFile is the format of an inventory file.
type inventoryFile struct {
	Machines []Machine `json:"machines"`
}

// Machine is one machine of an inventory.
type Machine struct {
	// NodeName is the node that the machine is to be.
	NodeName string `json:"nodeName"`
	// Identity is the machine's identity (attest.Identity); empty if it is not known in
	// advance.
	Identity string `json:"identity"`
	// Kind is the kind of evidence by which it is known, such as "tpm", "gce", "azure" or
	// "nitro", "ec2"; empty: membership.kind of the configuration.
	Kind string `json:"kind"`
	// Evidence is "none" for a machine that cannot attest: it has no kind and no identity, and
	// csr.SignerClientInsecure is the only signer that it can ask. Empty: it has evidence.
	Evidence string `json:"evidence"`
	// UID distinguishes the machine from one that has the name later; empty: one is made from
	// the node's name.
	UID string `json:"uid"`
	// ProviderID is the machine's provider ID; empty if it is not known yet, "none" if the machine has
	// none and never will.
	ProviderID string `json:"providerID"`
	// DNSNames and IPAddresses are the names under which it may serve.
	DNSNames    []string     `json:"dnsNames"`
	IPAddresses []netip.Addr `json:"ipAddresses"`
}

// ParseInventory reads the text of an inventory of one file, YAML or JSON. A node name, identity, UID or
// provider ID that occurs twice is an error, and so is a machine that would serve under another node's name.
// Machines whose entry names no kind of evidence are known by that of the settings.
func (s *Settings) ParseInventory(text []byte) (map[string]csr.Machine, error) {
	list, err := s.parse(text)
	if err != nil {
		return nil, err
	}
	machines := make(map[string]csr.Machine, len(list))
	for _, machine := range list {
		machines[machine.NodeName] = machine
	}
	return machines, nil
}

// parse reads a file of machines, in its order.
func (s *Settings) parse(text []byte) ([]csr.Machine, error) {
	var file inventoryFile
	if _, err := configfile.Decode(text, &file); err != nil {
		return nil, err
	}
	if file.Machines == nil { // a file that was cut short, or emptied
		return nil, refusal.Config("machines", "", "a list: [] for no machines")
	}
	machines, seen := make([]csr.Machine, len(file.Machines)), newUnique(len(file.Machines))
	var err error
	for i := range file.Machines {
		if machines[i], err = s.machineOf(&file.Machines[i]); err == nil {
			seen.add(entry{machine: &machines[i]}, func(_ entry, what string) {
				err = cmp.Or(err, fmt.Errorf("%s is in the inventory twice", what))
			})
		}
		if err != nil {
			return nil, fmt.Errorf("machines[%d]: %w", i, err)
		}
	}
	for i := range machines {
		if name, of := seen.served(&machines[i]); of.machine != nil {
			return nil, fmt.Errorf("machines[%d]: %w", i, refusal.Config("DNS name", refusal.Quote(name), "no name of another node"))
		}
	}
	return machines, nil
}

// machineOf checks an entry of the inventory, fills in its defaults and returns its machine.
func (s *Settings) machineOf(m *Machine) (csr.Machine, error) {
	m.UID = cmp.Or(m.UID, uidOf(m.NodeName))
	err := cmp.Or(s.setKind(m), m.check())
	if err == nil && m.Identity != "" {
		var id attest.Identity
		id, err = s.parseIdentity(m.Identity, m.Kind)
		m.Identity = string(id)
	}
	machine := csr.Machine{Name: m.NodeName, NodeName: m.NodeName, UID: m.UID, Identity: m.Identity, Provider: m.Kind,
		ProviderID: m.ProviderID, DNSNames: m.DNSNames, IPAddresses: m.IPAddresses, BootstrapReady: true}
	if err == nil {
		policy := csr.Policy{ReservedDNSNames: s.Signers.ReservedDNSNames, ReservedIPs: s.Signers.ReservedIPs}
		err = cmp.Or(policy.CheckMachine(&machine), m.checkCloud())
	}
	return machine, err
}

// check refuses a node name or UID that no record can have.
func (m *Machine) check() error {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	switch {
	case len(validation.IsDNS1123Subdomain(m.NodeName)) != 0:
		return refusal.Config("nodeName", refusal.Quote(m.NodeName), "the name of a Node: at most 253 lower-case letters, digits, hyphens and dots")
	case len(m.UID) > maxUIDSize || strings.ContainsFunc(m.UID, unprintable):
		return refusal.Config("uid", refusal.Quote(m.UID), "at most 253 bytes of printable text")
	}
	return nil
}

// checkCloud refuses a provider ID that no evidence could bear out: of another cloud than that of the
// machine's documents, or without the project, the subscription or the instance of its identity.
func (m *Machine) checkCloud() error {
	own, identity := map[string]string{gce.Provider: "gce", azure.Provider: "azure", nitro.Provider: "aws", ec2.Provider: "aws"}[m.Kind], m.Identity
	kind, name, _ := strings.Cut(identity, ":")
	own = cmp.Or(own, kind) // of a TPM, whose certificate may name a machine of a cloud
	scheme, _, _ := strings.Cut(m.ProviderID, "://")
	if identity == "" && strings.EqualFold(scheme, own) || !oid.ContradictsProviderID(m.ProviderID, cmp.Or(identity, own+":"), "") {
		return nil
	}
	parts := strings.Split(name, "/") // project or subscription first, or partition, region and instance
	part := parts[0]
	if own == "aws" {
		part = parts[len(parts)-1]
	}
	return refusal.Config("providerID", refusal.Quote(m.ProviderID)+" of kind "+m.Kind, strings.TrimSuffix(own+":// with "+part, " with "))
}

// maxUIDSize is the maximum length of a UID, in bytes (membership.Claim).
const maxUIDSize = 253

// uidOf makes the UID of a machine whose entry has none.
func uidOf(nodeName string) string {
	if uid := "inventory:" + nodeName; len(uid) <= maxUIDSize {
		return uid
	}
	return fmt.Sprintf("inventory:sha256:%x", sha256.Sum256([]byte(nodeName)))
}
