package kubectl

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// algorithm names the algorithm of an EK as membership.Scope does; "" if the key cannot be
// parsed or has another type.
func algorithm(spki []byte) string {
	key, err := x509.ParsePKIXPublicKey(spki)
	if err != nil {
		return ""
	}
	switch k := key.(type) {
	case *rsa.PublicKey:
		return "RSA-" + strconv.Itoa(k.N.BitLen())
	case *ecdsa.PublicKey:
		return k.Curve.Params().Name
	}
	return ""
}

// ownCluster stands for the cluster of the API server in the scopes of this program's registries: no
// verifier uses them, and no record stores the cluster.
const ownCluster = "that of the API server"

// registry returns the registry of a scope.
func (p *plugin) registry(scope membership.Scope) (*registry.Registry, error) {
	scope.Cluster = ownCluster
	return registry.New(scope, p.client, p.client, registry.Options{Now: p.now})
}

// record finds the live record of a node name, and its registry; nil without one.
func (p *plugin) record(ctx context.Context, nodeName string) (*membership.Record, *registry.Registry, error) {
	var object v1alpha1.AttestedNode
	if err := p.client.Get(ctx, client.ObjectKey{Name: nodeName}, &object); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	scope, err := membership.ParseScope(object.Spec.Scope)
	if err != nil {
		return nil, nil, fmt.Errorf("AttestedNode %s: %w", nodeName, err)
	}
	r, err := p.registry(scope)
	if err != nil {
		return nil, nil, err
	}
	record, err := r.Lookup(ctx, nodeName)
	return record, r, err
}

// held returns the records that a claim concerns, of any scope.
func (p *plugin) held(ctx context.Context, claim membership.Claim) (h membership.Held, err error) {
	if h.Name, _, err = p.record(ctx, claim.NodeName); err != nil || claim.Machine == "" {
		return h, err
	}
	var pointer v1alpha1.AttestedMachine
	if err = p.client.Get(ctx, client.ObjectKey{Name: v1alpha1.PointerName(string(claim.Machine))}, &pointer); err != nil {
		return h, client.IgnoreNotFound(err)
	}
	r, _, err := p.record(ctx, pointer.Spec.NodeName)
	if err == nil && r != nil && r.Machine == claim.Machine && r.HoldsMachine() {
		h.Machine = r
	}
	return h, err
}

// noRecord is the error about an operator's node name without a record.
func noRecord(nodeName string) error {
	if len(validation.IsDNS1123Subdomain(nodeName)) != 0 {
		return fmt.Errorf("%s is no node name: want lower-case letters, digits, hyphens and dots", refusal.Quote(nodeName))
	}
	return fmt.Errorf("node %s has no record", nodeName)
}

// bound finds the record of a node that has a machine.
func (p *plugin) bound(ctx context.Context, nodeName string) (*membership.Record, *registry.Registry, error) {
	record, r, err := p.record(ctx, nodeName)
	switch {
	case err != nil:
		return nil, nil, err
	case record == nil:
		return nil, nil, noRecord(nodeName)
	case record.State != membership.StateBound:
		return nil, nil, fmt.Errorf("the record of node %s is %s, not bound", nodeName, record.State)
	}
	return record, r, nil
}

// approve records a machine whose request was refused as the node. The operator names both: requesters
// choose the names of requests, so one may have filed another request under a listed name.
func (p *plugin) approve(ctx context.Context, nodeName string) error {
	c, err := p.waitsAs(ctx, nodeName)
	if err != nil {
		return err
	}
	claim := membership.Claim{NodeName: c.nodeName, Machine: c.machine, MachineUID: p.machineUID, ProviderID: p.providerID}
	if err := p.fromInventory(ctx, &claim, c.provider); err != nil {
		return err
	}
	if err := p.checkNode(ctx, &claim); err != nil {
		return err
	}
	r, err := p.registry(c.scope)
	if err != nil {
		return err
	}
	record, err := p.bind(ctx, r, claim)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "node %s is machine %s\n", record.NodeName, refusal.Text(string(record.Machine)))
	return nil
}

// waitsAs returns the candidate with the identity --machine whose request for the node was refused. A
// request may not show its machine, since only the controller can tell: it matches if its kind of
// evidence has such identities.
func (p *plugin) waitsAs(ctx context.Context, nodeName string) (*candidate, error) {
	found, err := p.waitingMachines(ctx)
	if err != nil {
		return nil, err
	}
	var named *candidate
	var others []waiting
	for _, one := range found {
		if one.nodeName != nodeName {
			continue
		}
		given, err := settings.ParseIdentity(p.machine, one.provider, p.others...)
		switch {
		case err == nil && given == one.machine:
			return &one.candidate, nil
		case err == nil && one.machine == "" && one.unread == "":
			named = &one.candidate
			named.machine = given
		default:
			others = append(others, one)
		}
	}
	if named != nil {
		return named, nil
	}
	return nil, fmt.Errorf("machine %s has no refused request for node %s that can be approved; refused requests for that node: %s; see kubectl nodeattest pending",
		refusal.Text(p.machine), refusal.Text(nodeName), refusal.OrNothing(describe(others)))
}

// maxShown is how many machines an error shows.
const maxShown = 4

// bind records a claim. It ignores interrupts, since the record would lose its last end halfway.
func (p *plugin) bind(ctx context.Context, r *registry.Registry, claim membership.Claim) (*membership.Record, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	deadline := p.now().Add(time.Minute)
	var record *membership.Record
	held, err := p.held(ctx, claim)
	if err != nil {
		return nil, err
	}
	if of := held.Name; of != nil && of.Machine == claim.Machine && claim.ProviderID == "" {
		claim.ProviderID = of.ProviderID // stated by the machine's evidence, and missing in the inventory
	}
	lastEnd, err := p.unrelease(ctx, r, claim, held, deadline)
	if err == nil {
		record, err = r.Reserve(ctx, claim, deadline)
	}
	if err == nil {
		record, err = r.Bind(ctx, record, lastEnd, nil)
	}
	if err != nil && !lastEnd.IsZero() {
		err = errors.Join(err, p.change(ctx, claim.NodeName, func(s *v1alpha1.AttestedNodeSpec) {
			if s.State == v1alpha1.NodeReserved && s.Machine == string(claim.Machine) { // and no other machine's by now
				s.State, s.Deadline, s.LastEnd = v1alpha1.NodeResting, nil, &metav1.Time{Time: lastEnd}
			}
		}))
	}
	return record, err
}

// unrelease undoes a release: it turns the resting record of this machine and Machine into a reservation,
// which has no last end, and returns the last end. It leaves other records alone. Only an operator may do
// this, who knows that the machine is not gone.
func (p *plugin) unrelease(ctx context.Context, r *registry.Registry, claim membership.Claim, held membership.Held, deadline time.Time) (lastEnd time.Time, err error) {
	if held.Name == nil || held.Name.State != membership.StateResting || held.Machine != nil ||
		held.Name.Machine != claim.Machine || held.Name.MachineUID != claim.MachineUID {
		return lastEnd, err // the registry decides
	}
	err = p.change(ctx, claim.NodeName, func(s *v1alpha1.AttestedNodeSpec) {
		if s.State == v1alpha1.NodeResting && s.Machine == string(claim.Machine) && s.Scope == r.Scope().String() {
			lastEnd = s.LastEnd.UTC()
			s.State, s.Deadline, s.LastEnd = v1alpha1.NodeReserved, &metav1.Time{Time: deadline.Truncate(time.Second)}, nil
		}
	})
	return lastEnd, err
}

// change changes a record in place, unless it has changed meanwhile.
func (p *plugin) change(ctx context.Context, nodeName string, how func(s *v1alpha1.AttestedNodeSpec)) error {
	var object v1alpha1.AttestedNode
	if err := p.client.Get(ctx, client.ObjectKey{Name: nodeName}, &object); err != nil {
		return err
	}
	how(&object.Spec)
	return p.client.Update(ctx, &object)
}

var errInventory = errors.New("the inventory cannot be read")

// inventory reads the machines of the controller's configuration, with errInventory if it has no inventory that it can read.
func (p *plugin) inventory(ctx context.Context) (*settings.Listed, error) {
	c, err := p.configuration(ctx)
	switch {
	case err != nil:
		return nil, err
	case c == nil || c.listed == nil:
		return nil, fmt.Errorf("%w: namespace %s has no ConfigMap %s that this user may read, or it has no inventory; see --namespace", errInventory, p.namespace, configMap)
	}
	return c.listed, nil
}

// fromInventory completes a claim from the inventory, and refuses one that differs from it, as the
// controller would.
func (p *plugin) fromInventory(ctx context.Context, claim *membership.Claim, provider string) error {
	if p.providerID != "" {
		if err := oid.CheckProviderID(p.providerID); err != nil {
			return fmt.Errorf("--provider-id: %w", err)
		}
	}
	return p.forced(p.compare(ctx, claim, provider))
}

// forced returns a difference from the inventory. With --force it reports it instead.
func (p *plugin) forced(differs error) error {
	if differs == nil || !p.force {
		return differs
	}
	report(p.err, fmt.Errorf("not held against the inventory, because of --force: %w", differs))
	return nil
}

// compare compares a claim with the inventory, and completes it.
func (p *plugin) compare(ctx context.Context, claim *membership.Claim, provider string) error {
	listed, err := p.inventory(ctx)
	switch {
	case err != nil && !errors.Is(err, errInventory):
		return err
	case err != nil && p.withoutInventory:
		return nil
	case err != nil:
		return fmt.Errorf("%w, or add --without-inventory, with machine UID and provider ID as the inventory has them", err)
	}
	return complete(ctx, claim, listed, provider)
}

// complete compares a claim with the machines of the inventory, and completes it.
func complete(ctx context.Context, claim *membership.Claim, listed *settings.Listed, provider string) error {
	machine, err := listed.Machine(ctx, csr.Question{NodeName: claim.NodeName})
	if errors.Is(err, csr.ErrNoMachine) {
		return fmt.Errorf("the inventory has no node %s, so the controller would still refuse the machine: add the node to the inventory first", claim.NodeName)
	}
	if err != nil {
		return err
	}
	same, got, want := oid.SameProviderID(claim.ProviderID, machine.ProviderID)
	switch {
	case machine.Provider != provider:
		return fmt.Errorf("node %s has kind %s in the inventory, and the machine has evidence of %s", claim.NodeName, machine.Provider, provider)
	case machine.Identity != "" && machine.Identity != string(claim.Machine):
		return fmt.Errorf("the inventory has machine %s for node %s, not %s", machine.Identity, claim.NodeName, claim.Machine)
	case claim.MachineUID != "" && claim.MachineUID != machine.UID:
		return fmt.Errorf("the inventory has UID %s for node %s, not %s: the controller would refuse its machine", machine.UID, claim.NodeName, claim.MachineUID)
	case claim.ProviderID != "" && machine.ProviderID != "" && !same:
		return fmt.Errorf("the inventory has provider ID %s for node %s, not %s: the controller would refuse its machine; correct the inventory first", want, claim.NodeName, got)
	}
	claim.MachineUID = cmp.Or(claim.MachineUID, machine.UID)
	claim.ProviderID = cmp.Or(claim.ProviderID, machine.KnownProviderID())
	return nil
}

// checkNode refuses a name that has a Node but no record, unless the operator gives --existing-node: the
// machine of that Node joined without attestation.
func (p *plugin) checkNode(ctx context.Context, claim *membership.Claim) error {
	if p.existingNode {
		return nil
	}
	record, _, err := p.record(ctx, claim.NodeName)
	if err != nil || record != nil {
		return err
	}
	if err := p.client.Get(ctx, client.ObjectKey{Name: claim.NodeName}, new(corev1.Node)); err != nil {
		return client.IgnoreNotFound(err)
	}
	return fmt.Errorf("there is a Node %s, which joined without attestation; if it is this machine, add --existing-node", claim.NodeName)
}

// rebind records another machine for a node.
func (p *plugin) rebind(ctx context.Context, nodeName string) error {
	record, r, err := p.bound(ctx, nodeName)
	if err != nil {
		return err
	}
	machine, err := settings.ParseIdentity(p.machine, cmp.Or(r.Scope().Provider, tpm.Provider), p.others...)
	if err != nil {
		return err
	}
	claim := membership.Claim{NodeName: nodeName, Machine: machine, MachineUID: record.MachineUID, ProviderID: record.ProviderID}
	if err := p.fromInventory(ctx, &claim, cmp.Or(r.Scope().Provider, tpm.Provider)); err != nil {
		return err
	}
	if claim.MachineUID != record.MachineUID {
		if err := p.forced(fmt.Errorf("the inventory has UID %s for node %s, and its record has none: run kubectl nodeattest adopt %[2]s --machine-uid %[1]s first", claim.MachineUID, nodeName)); err != nil {
			return err
		}
	}
	before := record.Machine
	if err := p.confirm("replaces", p.replaces, record, fmt.Sprintf("Node %s is machine %s. Record machine %s instead? [y/N] ", nodeName, before, machine)); err != nil {
		return err
	}
	if record, err = r.Rebind(ctx, record, machine); err != nil {
		return err
	}
	fmt.Fprintf(p.out, "node %s is machine %s, no longer %s\n", nodeName, refusal.Text(string(record.Machine)), refusal.Text(string(before)))
	return nil
}
