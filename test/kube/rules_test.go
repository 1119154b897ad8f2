package kube

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
)

func (c *cluster) deleteCRDs(t *testing.T) {
	t.Helper()
	manifests := manifests(t, "crd/*.yaml")
	for _, manifest := range manifests {
		object := new(unstructured.Unstructured)
		if err := yaml.UnmarshalStrict(manifest, &object.Object); err != nil {
			t.Fatal(err)
		}
		if err := c.admin.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

func in(d time.Duration) *metav1.Time { return &metav1.Time{Time: time.Now().Add(d)} }

func boundNode(s *v1alpha1.AttestedNodeSpec) {
	s.State, s.Deadline, s.LastEnd = v1alpha1.NodeBound, nil, in(time.Hour)
}

// testRules tries values that the schemas do not allow, on an object made by steps.
func testRules(t *testing.T, c *cluster) {
	reserved := v1alpha1.AttestedNodeSpec{Scope: "ak", Machine: "test:1", MachineUID: "uid-1", ProviderID: "test://1", State: v1alpha1.NodeReserved, Deadline: in(time.Minute)}
	digest := strings.Repeat("0a", 32)
	type step func(s *v1alpha1.AttestedNodeSpec)
	for name, row := range map[string]struct {
		first  step // nil: as reserved
		change step
		want   string // in the message; empty: allowed
	}{
		"an invalid state":               {nil, func(s *v1alpha1.AttestedNodeSpec) { s.State = "Gone" }, "Unsupported value"},
		"no machine":                     {nil, func(s *v1alpha1.AttestedNodeSpec) { s.Machine = "" }, "spec.machine"},
		"a reservation without deadline": {nil, func(s *v1alpha1.AttestedNodeSpec) { s.Deadline = nil }, "a reservation has a deadline"},
		"a reservation with a last end":  {nil, func(s *v1alpha1.AttestedNodeSpec) { s.LastEnd = in(time.Hour) }, "nothing has been issued"},
		"a change of a reservation":      {nil, func(s *v1alpha1.AttestedNodeSpec) { s.Pending = &v1alpha1.PendingChange{Deadline: *in(0)} }, "only a bound or resting record"},
		"it is bound":                    {nil, boundNode, ""},
		"back to reserved": {boundNode, func(s *v1alpha1.AttestedNodeSpec) {
			*s = reserved
		}, "a bound record ends by resting"},
		"another machine":     {boundNode, func(s *v1alpha1.AttestedNodeSpec) { s.Machine = "test:2" }, "the machine changes only by a pending change"},
		"another Machine UID": {boundNode, func(s *v1alpha1.AttestedNodeSpec) { s.MachineUID = "uid-2" }, "the Machine UID changes only by a pending change"},
		"no Machine UID":      {boundNode, func(s *v1alpha1.AttestedNodeSpec) { s.MachineUID = "" }, "the Machine UID changes only by a pending change"},
		"another provider ID": {boundNode, func(s *v1alpha1.AttestedNodeSpec) { s.ProviderID = "test://2" }, ""},
		"one of what rests":   {boundNode, func(s *v1alpha1.AttestedNodeSpec) { s.ProviderID, s.State = "test://2", v1alpha1.NodeResting }, "a known provider ID changes"},
		"one with a machine": {func(s *v1alpha1.AttestedNodeSpec) {
			boundNode(s)
			s.Pending = &v1alpha1.PendingChange{Machine: "test:2", Deadline: *in(time.Minute)}
		}, func(s *v1alpha1.AttestedNodeSpec) { s.ProviderID, s.Machine, s.Pending = "test://2", "test:2", nil }, "a known provider ID changes"},
		"none with a machine": {func(s *v1alpha1.AttestedNodeSpec) {
			boundNode(s)
			s.Pending = &v1alpha1.PendingChange{Machine: "test:2", Deadline: *in(time.Minute)}
		}, func(s *v1alpha1.AttestedNodeSpec) { s.ProviderID, s.Machine, s.Pending = "", "test:2", nil }, ""},
		"no provider ID":      {boundNode, func(s *v1alpha1.AttestedNodeSpec) { s.ProviderID = "" }, "a known provider ID changes"},
		"another scope":       {boundNode, func(s *v1alpha1.AttestedNodeSpec) { s.Scope = "ek P-256" }, "the scope is immutable"},
		"an earlier last end": {boundNode, func(s *v1alpha1.AttestedNodeSpec) { s.LastEnd = in(0) }, "the last end never goes back"},
		"no last end":         {boundNode, func(s *v1alpha1.AttestedNodeSpec) { s.LastEnd = nil }, "the last end never goes back"},
		"a later last end":    {boundNode, func(s *v1alpha1.AttestedNodeSpec) { s.LastEnd = in(2 * time.Hour) }, ""},
		"it rests":            {boundNode, func(s *v1alpha1.AttestedNodeSpec) { s.State = v1alpha1.NodeResting }, ""},
		"it rests no more":    {func(s *v1alpha1.AttestedNodeSpec) { boundNode(s); s.State = v1alpha1.NodeResting }, boundNode, "a name is bound by a reservation"},
		"it rests no more, by a pending change": {func(s *v1alpha1.AttestedNodeSpec) {
			boundNode(s)
			s.State, s.Pending = v1alpha1.NodeResting, &v1alpha1.PendingChange{Machine: "test:1", MachineUID: "uid-2", Deadline: *in(time.Minute)}
		}, func(s *v1alpha1.AttestedNodeSpec) {
			s.State, s.MachineUID, s.Pending = v1alpha1.NodeBound, "uid-2", nil
		}, ""},
		"it rests no more, as another Machine than the pending one": {func(s *v1alpha1.AttestedNodeSpec) {
			boundNode(s)
			s.State, s.Pending = v1alpha1.NodeResting, &v1alpha1.PendingChange{Machine: "test:1", MachineUID: "uid-2", Deadline: *in(time.Minute)}
		}, func(s *v1alpha1.AttestedNodeSpec) { s.State, s.Pending = v1alpha1.NodeBound, nil }, "a name is bound by a reservation"},
		"it rests no more, by a pending change without a machine": {func(s *v1alpha1.AttestedNodeSpec) {
			boundNode(s)
			s.State, s.Pending = v1alpha1.NodeResting, &v1alpha1.PendingChange{MachineUID: "uid-2", Deadline: *in(time.Minute)}
		}, func(s *v1alpha1.AttestedNodeSpec) {
			s.State, s.MachineUID, s.Pending = v1alpha1.NodeBound, "uid-2", nil
		}, "a name is bound by a reservation"},
		"it rests, and is taken": {func(s *v1alpha1.AttestedNodeSpec) { boundNode(s); s.State = v1alpha1.NodeResting }, func(s *v1alpha1.AttestedNodeSpec) { *s = reserved; s.Machine = "test:2" }, ""},
		"the pending machine": {func(s *v1alpha1.AttestedNodeSpec) {
			boundNode(s)
			s.Pending = &v1alpha1.PendingChange{Machine: "test:2", Deadline: *in(time.Minute)}
		}, func(s *v1alpha1.AttestedNodeSpec) { s.Machine, s.Pending = "test:2", nil }, ""},
		"another than the pending machine": {func(s *v1alpha1.AttestedNodeSpec) {
			boundNode(s)
			s.Pending = &v1alpha1.PendingChange{Machine: "test:2", Deadline: *in(time.Minute)}
		}, func(s *v1alpha1.AttestedNodeSpec) { s.Machine, s.Pending = "test:3", nil }, "the machine changes only by a pending change"},
		"the pending Machine UID": {func(s *v1alpha1.AttestedNodeSpec) {
			boundNode(s)
			s.Pending = &v1alpha1.PendingChange{MachineUID: "uid-2", Deadline: *in(time.Minute)}
		}, func(s *v1alpha1.AttestedNodeSpec) { s.MachineUID, s.Pending = "uid-2", nil }, ""},
		"a request and a certificate": {boundNode, func(s *v1alpha1.AttestedNodeSpec) {
			s.Certificates = []v1alpha1.IssuedCertificate{{CredentialID: "X509SHA256=" + digest, SignerName: "a/b", Machine: "test:1", SPKISHA256: digest, NotBefore: in(0), NotAfter: *s.LastEnd},
				{RequestUID: "u", SignerName: "a/b", Machine: "test:1", SPKISHA256: digest, NotAfter: *s.LastEnd}}
		}, ""},
		"a certificate that outlives the last end": {boundNode, func(s *v1alpha1.AttestedNodeSpec) {
			s.Certificates = []v1alpha1.IssuedCertificate{{SignerName: "a/b", Machine: "test:1", SPKISHA256: digest, NotAfter: metav1.NewTime(s.LastEnd.Add(time.Second))}}
		}, "no certificate outlives the last end"},
		"a certificate without a last end": {nil, func(s *v1alpha1.AttestedNodeSpec) {
			boundNode(s)
			s.Certificates = []v1alpha1.IssuedCertificate{{SignerName: "a/b", Machine: "test:1", SPKISHA256: digest, NotAfter: *s.LastEnd}}
			s.LastEnd = nil
		}, "no certificate outlives the last end"},
		"it rests without a last end": {nil, func(s *v1alpha1.AttestedNodeSpec) { s.State, s.Deadline = v1alpha1.NodeResting, nil }, "a name rests until its last end"},
		"an invalid credential": {boundNode, func(s *v1alpha1.AttestedNodeSpec) {
			s.Certificates = []v1alpha1.IssuedCertificate{{CredentialID: digest, SignerName: "a/b", Machine: "test:1", SPKISHA256: digest}}
		}, "credentialID"},
		"17 certificates": {boundNode, func(s *v1alpha1.AttestedNodeSpec) {
			s.Certificates = make([]v1alpha1.IssuedCertificate, membership.MaxIssued+1)
		}, "must have at most 16"},
	} {
		t.Run(name, func(t *testing.T) {
			c.clear(t)
			object := &v1alpha1.AttestedNode{Spec: *reserved.DeepCopy()}
			object.Name = "node-1"
			if err := c.admin.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			if row.first != nil {
				row.first(&object.Spec)
				if object.Spec.State == v1alpha1.NodeResting {
					c.updateAs(t, object, boundNode)
				}
				if err := c.admin.Update(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
			row.change(&object.Spec)
			err := c.admin.Update(t.Context(), object)
			switch {
			case row.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case row.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), row.want)):
				t.Errorf("got %v, want a refusal with %q", err, row.want)
			}
		})
	}
	t.Run("pointers", func(t *testing.T) { testPointerRules(t, c) })
}

// updateAs binds the stored object before it comes to rest.
func (c *cluster) updateAs(t *testing.T, object *v1alpha1.AttestedNode, change func(s *v1alpha1.AttestedNodeSpec)) {
	t.Helper()
	between := object.DeepCopy()
	change(&between.Spec)
	if err := c.admin.Update(t.Context(), between); err != nil {
		t.Fatal(err)
	}
	object.ResourceVersion = between.ResourceVersion
	object.Spec.LastEnd = between.Spec.LastEnd
}

func testPointerRules(t *testing.T, c *cluster) {
	machine := &v1alpha1.AttestedMachine{}
	machine.Name = "by-hand"
	machine.Spec = v1alpha1.AttestedMachineSpec{Machine: "test:1", NodeReference: v1alpha1.NodeReference{NodeName: "node-1", Reservation: "u/1"}}
	if err := c.admin.Create(t.Context(), machine); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.name") {
		t.Errorf("a name that is no digest: %v", err)
	}
	machine.Name = v1alpha1.PointerName("test:1")
	uid := &v1alpha1.AttestedMachineUID{Spec: v1alpha1.AttestedMachineUIDSpec{MachineUID: "uid-1", NodeReference: machine.Spec.NodeReference}}
	uid.Name = v1alpha1.PointerName("uid-1")
	for _, o := range []client.Object{machine, uid} {
		if err := c.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	machine.Spec.NodeName, uid.Spec.NodeName = "node-2", "node-2"
	for _, o := range []client.Object{machine, uid} {
		if err := c.admin.Update(t.Context(), o); err != nil {
			t.Errorf("another node: %v", err)
		}
	}
	machine.Spec.Machine, uid.Spec.MachineUID = "test:2", "uid-2"
	for _, o := range []client.Object{machine, uid} {
		if err := c.admin.Update(t.Context(), o); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "is immutable") {
			t.Errorf("another identity: %v", err)
		}
	}
}
