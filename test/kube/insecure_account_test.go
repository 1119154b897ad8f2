package kube

import (
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
)

// pointer points from a machine to a node.
func pointer(machine, nodeName string) client.Object {
	return &v1alpha1.AttestedMachine{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PointerName(machine)},
		Spec: v1alpha1.AttestedMachineSpec{Machine: machine, NodeReference: v1alpha1.NodeReference{NodeName: nodeName, Reservation: "u/1"}}}
}

// testStolenRecords: the account records no name that is not listed without evidence, and nothing
// that keeps another node from its own.
func (m *mix) testStolenRecords(t *testing.T, thief client.Client) {
	var attested v1alpha1.AttestedNode
	if err := m.admin.Get(t.Context(), client.ObjectKey{Name: "node-1"}, &attested); err != nil {
		t.Fatal(err)
	}
	node := func(name string, change func(o *v1alpha1.AttestedNode)) client.Object {
		o := &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.AttestedNodeSpec{Scope: "insecure document", Machine: "insecure:" + name, State: v1alpha1.NodeBound, LastEnd: in(time.Hour)}}
		if change != nil {
			change(o)
		}
		return o
	}
	for name, row := range map[string]struct {
		o    client.Object
		want string // empty: it is allowed
	}{
		"a listed name":                  {node("node-7", nil), ""},
		"its machine":                    {pointer("insecure:node-7", "node-7"), ""},
		"a name that has not joined yet": {node("node-9", nil), "not among the names without evidence"},
		"the machine of such a name":     {pointer("insecure:node-9", "node-9"), "not among the names without evidence"},
		"a machine of another name":      {pointer("insecure:node-9", "node-7"), "of a node that has attested"},
		"a TPM":                          {pointer("ek:sha256:"+strings.Repeat("00", 32), "node-7"), "of a node that has attested"},
		"another name's machine":         {node("node-7", func(o *v1alpha1.AttestedNode) { o.Spec.Machine = "insecure:node-4" }), "of a node that has attested"},
		"a Machine UID":                  {node("node-7", func(o *v1alpha1.AttestedNode) { o.Spec.MachineUID = "inventory:node-1" }), "has no Machine UID"},
		"a pending change": {node("node-7", func(o *v1alpha1.AttestedNode) {
			o.Spec.Pending = &v1alpha1.PendingChange{Machine: attested.Spec.Machine, Deadline: *in(time.Hour)}
		}), "has no Machine UID, no pending change"},
		"a finalizer": {node("node-7", func(o *v1alpha1.AttestedNode) { o.Finalizers = []string{"example.com/stays"} }), "no finalizers"},
		"an owner": {node("node-7", func(o *v1alpha1.AttestedNode) {
			o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node-7", UID: "u"}}
		}), "no owners"},
		"a pointer of a Machine UID": {&v1alpha1.AttestedMachineUID{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PointerName("inventory:node-9")},
			Spec: v1alpha1.AttestedMachineUIDSpec{MachineUID: "inventory:node-9", NodeReference: v1alpha1.NodeReference{NodeName: "node-7", Reservation: "u/1"}}}, "cannot create resource"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := thief.Create(t.Context(), row.o, client.DryRunAll); (err == nil) != (row.want == "") || err != nil && !(apierrors.IsForbidden(err) && strings.Contains(err.Error(), row.want)) {
				t.Errorf("got %v, want %q", err, row.want)
			}
		})
	}
}

// testStolenMetadata: the accounts of the programs write no metadata of requests, through whichever
// subresource, and take no annotation of an emergency out.
func (m *mix) testStolenMetadata(t *testing.T, accounts map[string]client.Client) {
	emergency := requestOf(m.plainFor(t, "node-7", csr.SignerClientInsecure))
	emergency.Annotations = map[string]string{"nodeattest.github.io/break-glass": "the TPM is broken", "a": "b"}
	emergency.Labels, emergency.Finalizers = map[string]string{"c": "d"}, []string{"example.com/stays"}
	if err := m.admin.Create(t.Context(), emergency); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		change  func(o *certificatesv1.CertificateSigningRequest)
		allowed bool
	}{
		"nothing":                   {func(*certificatesv1.CertificateSigningRequest) {}, true},
		"labels and finalizers out": {func(o *certificatesv1.CertificateSigningRequest) { o.Labels, o.Finalizers = nil, nil }, true},
		"another annotation out":    {func(o *certificatesv1.CertificateSigningRequest) { delete(o.Annotations, "a") }, true},
		"the emergency out":         {func(o *certificatesv1.CertificateSigningRequest) { o.Annotations = nil }, false},
		"the emergency emptied": {func(o *certificatesv1.CertificateSigningRequest) {
			o.Annotations["nodeattest.github.io/break-glass"] = ""
		}, false},
		"the versions that are read": {func(o *certificatesv1.CertificateSigningRequest) {
			o.Annotations["cluster.x-k8s.io/kubelet-authenticator-attestation-versions"] = "tpm/v1"
		}, true},
		"an EK": {func(o *certificatesv1.CertificateSigningRequest) {
			o.Annotations["cluster-x-k8s-io/tpm-endorsement-key"] = strings.Repeat("k", 1024)
		}, true},
		"more than an EK": {func(o *certificatesv1.CertificateSigningRequest) {
			o.Annotations["cluster-x-k8s-io/tpm-endorsement-key"] = strings.Repeat("k", 1025)
		}, false},
		"an annotation": {func(o *certificatesv1.CertificateSigningRequest) { o.Annotations["x"] = "y" }, false},
		"another label": {func(o *certificatesv1.CertificateSigningRequest) { o.Labels["c"] = "x" }, false},
		"a finalizer": {func(o *certificatesv1.CertificateSigningRequest) {
			o.Finalizers = append(o.Finalizers, "example.com/too")
		}, false},
		"an owner": {func(o *certificatesv1.CertificateSigningRequest) {
			o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node-7", UID: "u"}}
		}, false},
	} {
		for who, account := range accounts {
			for _, subresource := range []string{"status", "approval"} {
				if subresource == "approval" && who != insecureSigner {
					continue // which decides about other signers alone
				}
				o := emergency.DeepCopy()
				row.change(o)
				err := account.SubResource(subresource).Update(t.Context(), o, client.DryRunAll)
				if (err == nil) != row.allowed || err != nil && !apierrors.IsForbidden(err) {
					t.Errorf("%s, %s by %s: %v, want it allowed: %t", name, subresource, who, err, row.allowed)
				}
			}
		}
	}
}
