package settings

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/azure"
	"github.com/nodeattest/nodeattest/cloud/ec2"
	"github.com/nodeattest/nodeattest/cloud/gce"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/kube/internal/files"
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

// ParseInventory reads an inventory's text, YAML or JSON. A node name, identity, UID or provider ID
// that occurs twice is an error, and so is a machine that would serve under another node's name.
// Machines whose entry names no kind of evidence are known by that of the settings.
func (s *Settings) ParseInventory(text []byte) (map[string]csr.Machine, error) {
	var file inventoryFile
	if _, err := configfile.Decode(text, &file); err != nil {
		return nil, err
	}
	if file.Machines == nil { // a file that was cut short, or emptied
		return nil, refusal.Config("machines", "", "a list: [] for no machines")
	}
	machines, seen := make(map[string]csr.Machine, len(file.Machines)), map[string]bool{}
	for i := range file.Machines {
		machine, err := s.machineOf(&file.Machines[i])
		if err == nil {
			err = addUnique(seen, &machine)
		}
		if err != nil {
			return nil, fmt.Errorf("machines[%d]: %w", i, err)
		}
		machines[machine.NodeName] = machine
	}
	for i := range file.Machines {
		for _, name := range file.Machines[i].DNSNames {
			if of, ok := machines[strings.ToLower(name)]; ok && of.Name != file.Machines[i].NodeName {
				return nil, fmt.Errorf("machines[%d]: %w", i, refusal.Config("DNS name", refusal.Quote(name), "no name of another node"))
			}
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

// addUnique refuses a machine that shares a name, UID, identity or provider ID with one before.
func addUnique(seen map[string]bool, m *csr.Machine) error {
	for _, field := range []struct{ name, value string }{
		{"node", m.NodeName}, {"UID", m.UID}, {"identity", m.Identity}, {"provider ID", oid.CanonicalProviderID(m.KnownProviderID())},
	} {
		key := field.name + " " + field.value
		if field.value != "" && seen[key] {
			return fmt.Errorf("%s is in the inventory twice", refusal.Text(key))
		}
		seen[key] = true
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

// Machines is an inventory that follows changes of its file. It is a manager.Runnable.
type Machines struct {
	settings *Settings

	mu   sync.RWMutex
	text []byte
	all  map[string]csr.Machine
}

// inventoryInterval is how often the file is checked. A file in a ConfigMap is up to a minute
// late anyway.
const inventoryInterval = 5 * time.Second

// OpenInventory reads the inventory's file. Machines of Cluster API are in none, which is an error.
func (s *Settings) OpenInventory() (*Machines, error) {
	if s.Inventory.ClusterAPI != nil {
		return nil, refusal.Config("inventory", "clusterAPI", "file: Machines are on the management cluster, where only the controller and the signer read them")
	}
	m := &Machines{settings: s}
	return m, m.read()
}

func (m *Machines) read() error {
	path := m.settings.Inventory.File
	text, err := files.Read(path, MaxInventorySize)
	if err != nil {
		return fmt.Errorf("settings: inventory: %w", err)
	}
	if m.all != nil && bytes.Equal(text, m.text) {
		return nil
	}
	all, err := m.settings.ParseInventory(text)
	if err != nil {
		return fmt.Errorf("settings: inventory %s: %w", path, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text, m.all = text, all
	return nil
}

// NeedLeaderElection says that every replica follows the file.
func (*Machines) NeedLeaderElection() bool { return false }

// Start follows the file until ctx ends. While the file cannot be read, the machines stay as
// they were last read.
func (m *Machines) Start(ctx context.Context) error { //goroutine: reads the file of machines
	files.Follow(ctx, inventoryInterval, "the inventory", m.read)
	return nil
}

// Machine finds the machine for a node name, for csr.Policy.
func (m *Machines) Machine(_ context.Context, q csr.Question) (*csr.Machine, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	machine, ok := m.all[q.NodeName]
	if !ok {
		return nil, csr.ErrNoMachine
	}
	return &machine, nil
}
