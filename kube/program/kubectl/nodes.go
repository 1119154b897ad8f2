package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/kube/program/internal/insecure"
	"github.com/nodeattest/nodeattest/refusal"
)

// The status of a node, in the output of nodes.
const (
	statusAttested        = "Attested"        // a machine is recorded as the node
	statusExpired         = "Expired"         // likewise, and all its certificates have ended
	statusWithoutEvidence = "WithoutEvidence" // a machine of the component insecure
	statusReserved        = "Reserved"        // a machine is about to become the node
	statusResting         = "Resting"         // the machine is released
	statusPlain           = "Plain"           // a Node for which no machine is recorded
	statusNeverSeen       = "NeverSeen"       // in the inventory alone
	statusUnknown         = "Unknown"         // a record that this program cannot read
)

// nodeItem is a node: its Node, its record and its entry in the inventory, as far as it has them.
type nodeItem struct {
	Node   string `json:"node"`
	Status string `json:"status"`
	// Registered says whether the cluster has a Node of that name.
	Registered bool `json:"registered"`
	// Listed says whether the inventory has the node; nil if the inventory was not read.
	Listed *bool `json:"inventory,omitempty"`
	// Evidence is the kind of evidence of the record, "none" without evidence.
	Evidence string `json:"evidence,omitempty"`
	// CertificatesEnd is the latest end of the certificates.
	CertificatesEnd *time.Time `json:"certificatesEnd,omitempty"`
	// KeyResidence is "TPM" if all the keys of the valid certificates cannot leave their TPM, "Software" if
	// one can be copied, and empty if it is not known.
	KeyResidence string `json:"keyResidence,omitempty"`
	// State, Machine, MachineUID and ProviderID are the record's.
	State      string `json:"state,omitempty"`
	Machine    string `json:"machine,omitempty"`
	MachineUID string `json:"machineUID,omitempty"`
	ProviderID string `json:"providerID,omitempty"`

	uid types.UID // of the Node
}

// noEvidence is the kind of evidence of a machine without any.
const noEvidence = "none"

// inSoftware is the residence of a key that can be copied (csr.IssuedRecord).
const inSoftware = "Software"

// nodes lists every node of the cluster: whether and how it is attested, until when, and where its key
// is; the Nodes for which no machine is recorded; and the machines of the inventory that were never seen.
func (p *plugin) nodes(ctx context.Context, _ string) error {
	all, err := p.all(ctx)
	if err != nil {
		return err
	}
	listed, err := p.inventory(ctx)
	if err != nil {
		fmt.Fprintf(p.err, "warning: machines of the inventory that were never seen are not listed: %v\n", err)
	}
	addListed(ctx, all, listed)
	items := slices.SortedFunc(maps.Values(all), func(a, b *nodeItem) int { return cmp.Compare(a.Node, b.Node) })
	l := list[*nodeItem]{"Nodes", func(n *nodeItem) string { return n.Node }, []column[*nodeItem]{
		{"NODE", func(n *nodeItem) string { return n.Node }, false},
		{"STATUS", func(n *nodeItem) string { return n.Status }, false},
		{"EVIDENCE", (*nodeItem).evidence, false},
		{"KEY", func(n *nodeItem) string { return n.KeyResidence }, false},
		{"MACHINE", func(n *nodeItem) string { return refusal.Text(n.Machine) }, false},
		{"CERTIFICATES END", (*nodeItem).ends, false},
		{"RECORD", func(n *nodeItem) string { return n.State }, true},
		{"MACHINE UID", func(n *nodeItem) string { return refusal.Text(n.MachineUID) }, true},
		{"PROVIDER ID", func(n *nodeItem) string { return refusal.Text(n.ProviderID) }, true},
		{"NODE EXISTS", func(n *nodeItem) string { return yesNo(n.Registered) }, true},
		{"IN INVENTORY", (*nodeItem).listed, true},
	}}
	return l.print(p, items)
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func (n *nodeItem) listed() string {
	if n.Listed == nil {
		return ""
	}
	return yesNo(*n.Listed)
}

func (n *nodeItem) evidence() string {
	if n.Evidence == noEvidence {
		return "NONE"
	}
	return n.Evidence
}

// ends is when the certificates end. One without evidence is not renewed.
func (n *nodeItem) ends() string {
	if n.CertificatesEnd == nil {
		return ""
	}
	ends := second(*n.CertificatesEnd)
	if n.Evidence == noEvidence {
		ends += ", not renewed"
	}
	return ends
}

// all reads the nodes that have a Node or a record, by name. It reads Nodes first: one that joins
// meanwhile is then missing, and not listed without its record.
func (p *plugin) all(ctx context.Context) (map[string]*nodeItem, error) {
	all := map[string]*nodeItem{}
	of := func(name string) *nodeItem {
		if all[name] == nil {
			all[name] = &nodeItem{Node: name, Status: statusPlain}
		}
		return all[name]
	}
	err := pages(ctx, p.client, func() *metav1.PartialObjectMetadataList {
		l := new(metav1.PartialObjectMetadataList)
		l.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
		return l
	}, func(l *metav1.PartialObjectMetadataList) {
		for i := range l.Items {
			n := of(l.Items[i].Name)
			n.Registered, n.uid = true, l.Items[i].UID
		}
	})
	if err != nil {
		return nil, err
	}
	err = pages(ctx, p.client, func() *v1alpha1.AttestedNodeList { return new(v1alpha1.AttestedNodeList) }, func(l *v1alpha1.AttestedNodeList) {
		for i := range l.Items {
			of(l.Items[i].Name).addRecord(&l.Items[i].Spec, p.now())
		}
	})
	return all, err
}

// pages lists all objects of a kind, a page at a time, each into a list of its own, in which no
// member of the page before can stay.
func pages[L client.ObjectList](ctx context.Context, reader client.Reader, fresh func() L, each func(L)) error {
	for next := ""; ; {
		page := fresh()
		if err := reader.List(ctx, page, client.Limit(pageSize), client.Continue(next)); err != nil {
			return err
		}
		each(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// addRecord takes a record into the line of its node.
func (n *nodeItem) addRecord(s *v1alpha1.AttestedNodeSpec, now time.Time) {
	ended := s.LastEnd != nil && s.LastEnd.Time.Before(now)
	lapsed := s.State == v1alpha1.NodeReserved && s.Deadline != nil && s.Deadline.Time.Before(now) || s.State == v1alpha1.NodeResting && ended
	if lapsed && n.Registered { // a plain node has the name
		return
	}
	n.State, n.Machine, n.MachineUID, n.ProviderID = string(s.State), s.Machine, s.MachineUID, s.ProviderID
	if s.LastEnd != nil {
		n.CertificatesEnd = new(s.LastEnd.UTC())
	}
	n.KeyResidence = residence(s, now)
	scope, err := membership.ParseScope(s.Scope)
	switch {
	case err != nil:
		n.Evidence = "unknown"
	case s.Scope == insecure.Scope("").String():
		n.Evidence = noEvidence
	default:
		n.Evidence = cmp.Or(scope.Provider, tpm.Provider)
	}
	switch {
	case s.State == v1alpha1.NodeResting:
		n.Status = statusResting
	case s.State == v1alpha1.NodeReserved:
		n.Status = statusReserved
	case err != nil || s.State != v1alpha1.NodeBound:
		n.Status = statusUnknown
	case n.Evidence == noEvidence:
		n.Status = statusWithoutEvidence
	case ended:
		n.Status = statusExpired
	default:
		n.Status = statusAttested
	}
}

// residence is where the keys of a record's valid certificates are.
func residence(s *v1alpha1.AttestedNodeSpec, now time.Time) string {
	where, known := "", true
	for i := range s.Certificates {
		c := &s.Certificates[i]
		switch {
		case c.CredentialID == "" || c.Machine != s.Machine || c.NotAfter.Time.Before(now):
		case c.KeyResidence == inSoftware:
			return inSoftware
		case c.KeyResidence == "":
			known = false
		default:
			where = c.KeyResidence
		}
	}
	if !known {
		return ""
	}
	return where
}

// addListed takes the inventory into the lines; nil if it was not read. Of a node whose part cannot be read, it says nothing.
func addListed(ctx context.Context, all map[string]*nodeItem, inventory *settings.Listed) {
	if inventory == nil {
		return
	}
	for name := range inventory.All() {
		if all[name] == nil {
			all[name] = &nodeItem{Node: name, Status: statusNeverSeen}
		}
	}
	for name, n := range all {
		_, err := inventory.Machine(ctx, csr.Question{NodeName: name})
		if listed := err == nil; listed || errors.Is(err, csr.ErrNoMachine) {
			n.Listed = &listed
		}
	}
}
