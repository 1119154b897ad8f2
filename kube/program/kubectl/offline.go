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
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
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
	store, err := o.store()
	if err != nil {
		return nil, err
	}
	admits, err := s.NewAuthorizer(func(scope membership.Scope) (membership.Registry, membership.Lookups, error) {
		r, err := registry.New(scope, store, store, registry.Options{Now: func() time.Time { return at }})
		return r, nil, err
	}, o.nodeExists)
	if err != nil {
		return nil, err
	}
	return s.Verifier(ring, o.machines, admits)
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

// states are those of a record, in the order in which they have their machine.
var states = [...]v1alpha1.NodeState{v1alpha1.NodeBound, v1alpha1.NodeReserved, v1alpha1.NodeResting}

// store has the records in memory, and what points to them, which follows from them; without
// records it answers nothing.
func (o *offline) store() (client.Client, error) {
	store := objectstore.New()
	if o.nodes == nil {
		return noRecords{store}, nil
	}
	ctx := context.Background()
	for _, state := range states {
		for i := range o.nodes {
			n := o.nodes[i].DeepCopy()
			if n.Spec.State != state {
				continue
			}
			if err := store.Create(ctx, n); err != nil {
				return nil, fmt.Errorf("--records: %w", err)
			}
			to := v1alpha1.NodeReference{NodeName: n.Name, Reservation: string(n.UID) + "/" + n.ResourceVersion}
			machine, uid := new(v1alpha1.AttestedMachine), new(v1alpha1.AttestedMachineUID)
			machine.Name, machine.Spec.Machine, machine.Spec.NodeReference = v1alpha1.PointerName(n.Spec.Machine), n.Spec.Machine, to
			uid.Name, uid.Spec.MachineUID, uid.Spec.NodeReference = v1alpha1.PointerName(n.Spec.MachineUID), n.Spec.MachineUID, to
			pointers := []client.Object{machine}
			if n.Spec.MachineUID != "" {
				pointers = append(pointers, uid)
			}
			for _, pointer := range pointers {
				if err := store.Create(ctx, pointer); err != nil && !apierrors.IsAlreadyExists(err) {
					return nil, err
				}
			}
		}
	}
	return store, nil
}

// noRecords is a store that was not given: it can neither say yes nor no.
type noRecords struct{ client.Client }

func (noRecords) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errNoRecords
}
