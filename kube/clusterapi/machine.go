package clusterapi

import (
	"context"
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// clusterLabel is Cluster API's label of the objects of a cluster.
const clusterLabel = "cluster.x-k8s.io/cluster-name"

// content returns the fields of an unstructured object; nil for another one.
func content(o client.Object) map[string]any {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.Object
	}
	return nil
}

// text returns a field that is a string, or "".
func text(fields map[string]any, path ...string) string {
	s, _, _ := unstructured.NestedString(fields, path...)
	return s
}

// owns reports whether a Machine is of the cluster, by its label and its own word.
func (i *Inventory) owns(m *unstructured.Unstructured) bool {
	return m.GetNamespace() == i.namespace && m.GetLabels()[clusterLabel] == i.cluster && text(m.Object, "spec", "clusterName") == i.cluster
}

// canonicalProviderID is the provider ID of a Machine in the spelling by which two are compared.
func canonicalProviderID(fields map[string]any) string {
	return oid.CanonicalProviderID(text(fields, "spec", "providerID"))
}

// machine reads what a Machine says about the machine that it stands for. Its bootstrap data are ready
// once spec.bootstrap.dataSecretName is set: conditions are lost in clusterctl move.
func machine(m *unstructured.Unstructured) (*csr.Machine, error) {
	notes := m.GetAnnotations()
	says := &csr.Machine{
		Name: m.GetNamespace() + "/" + m.GetName(), UID: string(m.GetUID()),
		Identity: notes[AnnotationIdentity], Provider: notes[AnnotationKind], ProviderID: text(m.Object, "spec", "providerID"),
		BootstrapReady: text(m.Object, "spec", "bootstrap", "dataSecretName") != "",
	}
	insecure := csr.ProviderOf(csr.SignerClientInsecure)
	switch evidence, stated := notes[AnnotationEvidence]; {
	case says.Provider == insecure:
		return nil, misconfigured(m, AnnotationKind, insecure, "a kind of evidence, or "+AnnotationEvidence+": none")
	case !stated:
		says.DNSNames, says.IPAddresses = addresses(m.Object)
	case evidence != "none":
		return nil, misconfigured(m, AnnotationEvidence, evidence, "none")
	case says.Identity+says.Provider != "":
		return nil, misconfigured(m, AnnotationEvidence, evidence, "no "+AnnotationIdentity+" and no "+AnnotationKind+" with it")
	default:
		says.Provider = insecure
	}
	if says.UID == "" { // no API server makes one; every record has it
		return nil, misconfigured(m, "uid", "", "the UID of the object")
	}
	if err := oid.CheckProviderID(says.ProviderID); says.ProviderID != "" && err != nil {
		return nil, misconfigured(m, "spec.providerID", says.ProviderID, "a provider ID, such as metal://rack-1/7")
	}
	return says, nil
}

// misconfigured is the error of a Machine that an operator has to correct. The request is retried.
func misconfigured(m *unstructured.Unstructured, field, got, want string) error {
	return refusal.Retry(refusal.Config("Machine "+m.GetName()+" "+field, refusal.Quote(got), want))
}

// addresses returns the names and addresses of status.addresses, without trailing dots.
func addresses(fields map[string]any) (names []string, ips []netip.Addr) {
	all, _, _ := unstructured.NestedSlice(fields, "status", "addresses")
	for _, one := range all {
		of, _ := one.(map[string]any)
		address := text(of, "address")
		if ip, err := netip.ParseAddr(address); err == nil {
			ips = append(ips, ip)
		} else if name := strings.TrimSuffix(address, "."); name != "" {
			names = append(names, name)
		}
	}
	return names, ips
}

// byRecord finds the Machine of a node that has joined, by the UID in the node's record, or the MachinePool,
// by the slot.
func (i *Inventory) byRecord(ctx context.Context, nodeName string) (found *unstructured.Unstructured, slot string, err error) {
	record, err := i.records.Lookup(ctx, nodeName)
	switch {
	case err != nil:
		return nil, "", err
	case record == nil || record.MachineUID == "":
		return nil, "", none("node %s has no record with the UID of a Machine", nodeName)
	}
	if pool, ok := slotOf(record.MachineUID); ok {
		found, err = i.slotPool(ctx, pool, record)
		return found, record.MachineUID, err
	}
	found, err = i.recorded(ctx, record)
	return found, "", err
}

// recorded finds the Machine of a record, by its UID.
func (i *Inventory) recorded(ctx context.Context, record *membership.Record) (*unstructured.Unstructured, error) {
	found, err := i.find(ctx, i.kinds.machine, indexUID, record.MachineUID, func(fields map[string]any) string { return text(fields, "metadata", "uid") })
	if err != nil {
		return nil, err
	}
	for n := range found {
		m, err := i.get(ctx, i.kinds.machine, found[n].GetName())
		if err != nil || string(m.GetUID()) == record.MachineUID {
			return m, err
		}
	}
	if m, err := i.successor(ctx, record); err != nil || m != nil {
		return m, err
	}
	return nil, none("no Machine has the UID %s, which node %s is recorded with", refusal.Quote(record.MachineUID), record.NodeName)
}

// owner returns the Machine, or the MachinePool, that owns a KubeadmConfig and refers to it, both as they are
// now.
func (i *Inventory) owner(ctx context.Context, config *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if pool := controllingPool(config); pool != "" {
		return i.poolOfConfig(ctx, pool, config.GetName())
	}
	ref := metav1.GetControllerOf(config)
	if ref == nil || ref.Kind != i.kinds.machine.Kind || !strings.HasPrefix(ref.APIVersion, coreGroup+"/") {
		return nil, none("KubeadmConfig %s is controlled by no Machine and no MachinePool", config.GetName())
	}
	m, err := i.get(ctx, i.kinds.machine, ref.Name)
	if err != nil {
		return nil, err
	}
	kind, name := text(m.Object, "spec", "bootstrap", "configRef", "kind"), text(m.Object, "spec", "bootstrap", "configRef", "name")
	if m.GetUID() != ref.UID || kind != i.kinds.config.Kind || name != config.GetName() {
		return nil, none("Machine %s is not the owner of KubeadmConfig %s, or refers to %s %s", m.GetName(), config.GetName(), refusal.Quote(kind), refusal.Quote(name))
	}
	return m, nil
}
