package operatorprogram

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/internal/nodename"
	"github.com/nodeattest/nodeattest/internal/providerid"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/kube/registry"
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

// ownCluster stands for the cluster of the API server: no verifier asks a registry of this
// program, and no record has the name.
const ownCluster = "that of the API server"

// registry returns the registry of a scope.
func (p *plugin) registry(scope membership.Scope) (*registry.Registry, error) {
	scope.Cluster = ownCluster
	return registry.New(scope, p.client, p.client, registry.Options{Now: p.now})
}

// record finds the record of a node name, and the registry that it is in; nil if there is none
// that counts.
func (p *plugin) record(ctx context.Context, nodeName string) (*membership.Record, *registry.Registry, error) {
	var object v1alpha1.AttestedNode
	err := p.client.Get(ctx, client.ObjectKey{Name: nodeName}, &object)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
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

// held returns the records around a claim, whatever their scope.
func (p *plugin) held(ctx context.Context, claim membership.Claim) (h membership.Held, err error) {
	if h.Name, _, err = p.record(ctx, claim.NodeName); err != nil || claim.Machine == "" {
		return h, err
	}
	var pointer v1alpha1.AttestedMachine
	err = p.client.Get(ctx, client.ObjectKey{Name: v1alpha1.PointerName(string(claim.Machine))}, &pointer)
	if apierrors.IsNotFound(err) {
		return h, nil
	}
	if err != nil {
		return h, err
	}
	r, _, err := p.record(ctx, pointer.Spec.NodeName)
	if err == nil && r != nil && r.Machine == claim.Machine && r.HoldsMachine() {
		h.Machine = r
	}
	return h, err
}

// noRecord says that a name that an operator wrote has no record, or cannot have one.
func noRecord(nodeName string) error {
	if !nodename.Valid(nodeName) {
		return fmt.Errorf("%s is not %s", refusal.Quote(nodeName), nodename.Want(nodeName))
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

// approve records that the machine of a refused request is the node.
func (p *plugin) approve(ctx context.Context, name string) error {
	request, err := p.getRequest(ctx, name)
	if err != nil {
		return err
	}
	if !refused(request) {
		return fmt.Errorf("request %s was not refused for its machine: see kubectl nodeattest explain %[1]s", refusal.Text(name))
	}
	c, err := p.candidateOf(request)
	if err != nil {
		return err
	}
	if p.machine != "" {
		if c.machine, err = p.identity(c); err != nil {
			return err
		}
	}
	if c.machine == "" {
		return fmt.Errorf("only the controller can tell the identity of this machine: take it from the Event about request %s, and give it as --machine", name)
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

// identity returns the machine that was given on the command line, which must be that of the
// request if the request states one.
func (p *plugin) identity(c *candidate) (attest.Identity, error) {
	given, err := settings.ParseIdentity(p.machine, c.provider, p.others...)
	if err == nil && c.machine != "" && given != c.machine {
		err = fmt.Errorf("the request is of machine %s", refusal.Text(string(c.machine)))
	}
	return given, err
}

// bind records a claim. An interrupt does not end it halfway: the record would have lost its last
// end.
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
		claim.ProviderID = of.ProviderID // which the inventory does not have, and the machine's evidence has stated
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
			if s.State == v1alpha1.NodeReserved && s.Machine == string(claim.Machine) { // and nobody else's by now
				s.State, s.Deadline, s.LastEnd = v1alpha1.NodeResting, nil, &metav1.Time{Time: lastEnd}
			}
		}))
	}
	return record, err
}

// unrelease takes a release back: it turns a record that rests, of this very machine and
// Machine, into a reservation, and returns the last end that this does not have. It does
// nothing to others. Only an operator does this, who knows that the machine is not gone.
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

// change changes a record in place, unless somebody else does so meanwhile.
func (p *plugin) change(ctx context.Context, nodeName string, how func(s *v1alpha1.AttestedNodeSpec)) error {
	var object v1alpha1.AttestedNode
	if err := p.client.Get(ctx, client.ObjectKey{Name: nodeName}, &object); err != nil {
		return err
	}
	how(&object.Spec)
	return p.client.Update(ctx, &object)
}

// fromInventory fills in what the inventory has about the machine: the controller compares it.
func (p *plugin) fromInventory(ctx context.Context, claim *membership.Claim, provider string) error {
	c, err := p.configuration(ctx)
	switch {
	case err != nil:
		return err
	case c != nil && c.machines != nil:
	case p.withoutInventory:
		return nil
	default:
		return fmt.Errorf("the inventory cannot be read: namespace %s has no ConfigMap %s that this user may read, or it has no inventory; see --namespace, "+
			"or say --without-inventory, with --machine-uid and --provider-id as the inventory has them", p.namespace, configMap)
	}
	machine := c.inventory(claim.NodeName)
	switch {
	case machine == nil:
		return fmt.Errorf("the inventory has no node %s, so the controller would still refuse its machine: add it there first", claim.NodeName)
	case machine.Provider != provider:
		return fmt.Errorf("the inventory knows node %s by %s, and the request has evidence of %s", claim.NodeName, machine.Provider, provider)
	case machine.Identity != "" && machine.Identity != string(claim.Machine):
		return fmt.Errorf("the inventory has machine %s for node %s", machine.Identity, claim.NodeName)
	}
	if claim.MachineUID == "" {
		claim.MachineUID = machine.UID
	}
	if claim.ProviderID == "" {
		claim.ProviderID = providerid.Known(machine.ProviderID)
	}
	return nil
}

// checkNode refuses a name that has a Node but no record, unless that is what the operator
// intends: whoever is that Node now joined without attestation.
func (p *plugin) checkNode(ctx context.Context, claim *membership.Claim) error {
	if p.existingNode {
		return nil
	}
	record, _, err := p.record(ctx, claim.NodeName)
	if err != nil || record != nil {
		return err
	}
	err = p.client.Get(ctx, client.ObjectKey{Name: claim.NodeName}, new(corev1.Node))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		return fmt.Errorf("there is a Node %s that came without attestation; if this machine is that one, say --existing-node", claim.NodeName)
	}
	return err
}

// rebind gives a node another machine.
func (p *plugin) rebind(ctx context.Context, nodeName string) error {
	if (p.request == "") == (p.machine == "") {
		return fmt.Errorf("rebind takes --request or --machine; %w", errUsage)
	}
	record, r, err := p.bound(ctx, nodeName)
	if err != nil {
		return err
	}
	var machine attest.Identity
	if p.machine != "" {
		kind := cmp.Or(r.Scope().Provider, tpm.Provider)
		if machine, err = settings.ParseIdentity(p.machine, kind, p.others...); err != nil {
			return err
		}
	} else if machine, err = p.machineOf(ctx, p.request, nodeName, r.Scope()); err != nil {
		return err
	}
	before := record.Machine
	if record, err = r.Rebind(ctx, record, machine); err != nil {
		return err
	}
	fmt.Fprintf(p.out, "node %s is machine %s and no longer %s\n", nodeName, refusal.Text(string(record.Machine)), refusal.Text(string(before)))
	return nil
}

// machineOf returns the machine of a refused request that wants to be the node.
func (p *plugin) machineOf(ctx context.Context, name, nodeName string, scope membership.Scope) (attest.Identity, error) {
	request, err := p.getRequest(ctx, name)
	if err != nil {
		return "", err
	}
	c, err := p.candidateOf(request)
	switch {
	case err != nil:
		return "", err
	case !refused(request):
		return "", fmt.Errorf("request %s was not refused for its machine: see kubectl nodeattest explain %[1]s", name)
	case c.nodeName != nodeName:
		return "", fmt.Errorf("request %s is for node %s", name, refusal.Text(c.nodeName))
	case c.machine == "" || c.scope.String() != scope.String():
		return "", fmt.Errorf("request %s has an identity of %s, and the record is of %s: give the machine as --machine", name, c.scope, scope)
	}
	return c.machine, nil
}

// adopt gives a node's record the UID of another Machine, or the provider ID by which the machine
// is known now.
func (p *plugin) adopt(ctx context.Context, nodeName string) error {
	if (p.machineUID == "") == (p.providerID == "") {
		return fmt.Errorf("adopt takes --machine-uid or --provider-id; %w", errUsage)
	}
	record, r, err := p.bound(ctx, nodeName)
	if err != nil {
		return err
	}
	if p.providerID != "" {
		return p.adoptProviderID(ctx, record)
	}
	if record, err = r.Adopt(ctx, record, p.machineUID); err != nil {
		return err
	}
	fmt.Fprintf(p.out, "node %s is Machine %s\n", nodeName, refusal.Text(record.MachineUID))
	return nil
}

// adoptProviderID says that a machine has another provider ID, in its record and in those of its
// certificates, which are compared with the inventory. Only an operator knows that it is the same
// machine.
func (p *plugin) adoptProviderID(ctx context.Context, record *membership.Record) error {
	if !providerid.Valid(p.providerID) {
		return refusal.Config("--provider-id", refusal.Quote(p.providerID), "<scheme>://<the platform's name of the machine>")
	}
	changed := false
	err := p.change(ctx, record.NodeName, func(s *v1alpha1.AttestedNodeSpec) {
		if changed = s.State == v1alpha1.NodeBound && s.Pending == nil && s.Machine == string(record.Machine) && s.MachineUID == record.MachineUID; !changed {
			return
		}
		s.ProviderID = p.providerID
		for i := range s.Certificates {
			if c := &s.Certificates[i]; c.ProviderID != "" {
				c.ProviderID = p.providerID
			}
		}
	})
	switch {
	case err != nil:
		return err
	case !changed:
		return fmt.Errorf("the record of node %s has changed, or is being changed: try again", refusal.Text(record.NodeName))
	}
	fmt.Fprintf(p.out, "node %s has provider ID %s, and no longer %s\n", record.NodeName, refusal.Text(p.providerID), refusal.OrNothing(refusal.Text(record.ProviderID)))
	return nil
}
