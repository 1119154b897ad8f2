package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/refusal"
)

// offline is what requests are decided with, without a cluster.
type offline struct {
	settings *settings.Settings
	machines *settings.Machines
	kinds    []attest.Kind
	ring     []attest.RingKey        // nil: not given
	nodes    []v1alpha1.AttestedNode // nil: not given
	names    map[string]bool         // of the Nodes; nil: not given
}

// offline reads what the controller's configuration and the flags name.
func (p *plugin) offline(s *settings.Settings) (*offline, error) {
	o := &offline{settings: s, kinds: p.kinds}
	var err error
	if o.machines, err = s.OpenInventory(); err != nil {
		return nil, err
	}
	p.warn(o.machines.Problems())
	if p.keyRing != "" {
		if o.ring, err = p.readRing(); err != nil {
			return nil, fmt.Errorf("--key-ring: %w", err)
		}
	}
	if p.records != "" {
		if err = p.readRecords(o); err != nil {
			return nil, fmt.Errorf("--records: %w", err)
		}
	}
	return o, nil
}

func (p *plugin) readRing() ([]attest.RingKey, error) {
	objects, err := p.readObjects(p.keyRing)
	if err != nil {
		return nil, err
	}
	if len(objects) != 1 {
		return nil, errors.New("more than one Secret")
	}
	var secret corev1.Secret
	if err := json.Unmarshal(objects[0], &secret); err != nil {
		return nil, errors.New("no Secret as kubectl get -o json gives it")
	}
	return attest.ParseRingKeys(secret.Data)
}

// readRecords reads AttestedNodes and, if there are any, Nodes.
func (p *plugin) readRecords(o *offline) error {
	objects, err := p.readObjects(p.records)
	if err != nil {
		return err
	}
	o.nodes = []v1alpha1.AttestedNode{}
	for _, text := range objects {
		var n v1alpha1.AttestedNode
		var is metav1.PartialObjectMetadata
		if err := json.Unmarshal(text, &is); err != nil {
			return err
		}
		switch is.Kind {
		case "Node":
			if o.names == nil {
				o.names = map[string]bool{}
			}
			o.names[is.Name] = true
		case "AttestedNode":
			if err := json.Unmarshal(text, &n); err != nil {
				return err
			}
			if !slices.Contains(states[:], n.Spec.State) {
				return fmt.Errorf("AttestedNode %s in state %s", refusal.Text(n.Name), refusal.Quote(string(n.Spec.State)))
			}
			if slices.ContainsFunc(o.nodes, func(other v1alpha1.AttestedNode) bool { return other.Name == n.Name }) {
				return fmt.Errorf("AttestedNode %s twice", refusal.Text(n.Name))
			}
			o.nodes = append(o.nodes, n)
		default:
			return fmt.Errorf("a %s, where AttestedNodes and Nodes are expected", is.Kind)
		}
	}
	return nil
}

// verifier makes what decides one request at a time, from nothing that an earlier request has
// changed.
func (o *offline) verifier(at time.Time, hello bool) (*attest.Verifier, error) {
	s := o.settings.At(at)
	ring := new(attest.KeyRing) // has not been read: an answer is not decided with it
	var err error
	switch {
	case hello: // whose challenge is not kept
		ring, err = attest.NewStaticKeyRing(attest.NewRingKey(at.Add(-time.Hour)))
	case o.ring != nil:
		ring, err = attest.NewStaticKeyRing(o.ring...)
	}
	if err != nil {
		return nil, fmt.Errorf("--key-ring: %w", err)
	}
	admits, err := s.NewAuthorizer(func(scope membership.Scope) (membership.Registry, membership.Lookups, error) {
		var none struct{ client.Writer } // nothing is written
		r, err := registry.New(scope, o, none, registry.Options{Now: func() time.Time { return at }})
		return dryRun{r, at}, nil, err
	}, o.nodeExists)
	if err != nil {
		return nil, err
	}
	return s.Verifier(ring, o.machines.Machine, admits)
}

var (
	errNoRecords = errors.New("the records were not given (--records)")
	errNoNodes   = errors.New("whether there is a Node of that name was not given: --records has no Nodes")
)

func (o *offline) nodeExists(_ context.Context, name string) (bool, error) {
	if o.names == nil {
		return false, errNoNodes
	}
	return o.names[name], nil
}

// states are the states of a record. Of several records of one machine, the first state here has it.
var states = [...]v1alpha1.NodeState{v1alpha1.NodeBound, v1alpha1.NodeReserved, v1alpha1.NodeResting}

// Get reads a record, or the pointer to it from its machine or Machine UID.
func (o *offline) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if o.nodes == nil {
		return errNoRecords
	}
	for _, state := range states {
		for i := range o.nodes {
			if n := &o.nodes[i]; n.Spec.State == state && read(n, key.Name, into) {
				return nil
			}
		}
	}
	return apierrors.NewNotFound(v1alpha1.GroupVersion().WithResource("records").GroupResource(), key.Name)
}

// read fills in an object that follows from a record, if it has this name.
func read(n *v1alpha1.AttestedNode, name string, into client.Object) bool {
	to := v1alpha1.NodeReference{NodeName: n.Name}
	switch into := into.(type) {
	case *v1alpha1.AttestedMachine:
		into.Spec = v1alpha1.AttestedMachineSpec{Machine: n.Spec.Machine, NodeReference: to}
		return v1alpha1.PointerName(n.Spec.Machine) == name
	case *v1alpha1.AttestedMachineUID:
		into.Spec = v1alpha1.AttestedMachineUIDSpec{MachineUID: n.Spec.MachineUID, NodeReference: to}
		return v1alpha1.PointerName(n.Spec.MachineUID) == name
	case *v1alpha1.AttestedNode:
		n.DeepCopyInto(into)
	}
	return n.Name == name
}

// List is not needed to decide a request.
func (o *offline) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.ErrUnsupported
}

// dryRun is a registry that decides by the rules of membership.Held and writes nothing.
type dryRun struct {
	*registry.Registry
	at time.Time
}

// Reserve returns the record that a registry would write.
func (d dryRun) Reserve(ctx context.Context, claim membership.Claim, deadline time.Time) (*membership.Record, error) {
	var h membership.Held
	var err error
	if h.Name, err = d.Lookup(ctx, claim.NodeName); err != nil {
		return nil, err
	}
	if h.Machine, err = d.LookupMachine(ctx, claim.Machine); err != nil {
		return nil, err
	}
	if h.MachineUID, err = d.LookupMachineUID(ctx, claim.MachineUID); err != nil {
		return nil, err
	}
	change, err := h.Reserve(claim, deadline, d.at)
	return change.Record, err
}

// Bind returns the record that a registry would write over the one that Reserve returned.
func (d dryRun) Bind(_ context.Context, record *membership.Record, lastEnd time.Time, issued *csr.IssuedRecord) (*membership.Record, error) {
	change, err := membership.Held{Name: record}.Bind(record, lastEnd, issued, d.at)
	return change.Record, err
}
