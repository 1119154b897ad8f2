package main

import (
	"encoding/hex"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/clusterapi"
	"github.com/nodeattest/nodeattest/tpmsim"
)

const core = "cluster.x-k8s.io/v1beta2"

// named makes an object of the Cluster's namespace.
func named(version, kind, name string) *unstructured.Unstructured {
	o := object(version, kind)
	o.SetNamespace("fleet")
	o.SetName(name)
	return o
}

// reconciled has the provider look at an object twice, and reads it and the Machine.
func reconciled(t *testing.T, look func(*provider) error, o *unstructured.Unstructured, machine *unstructured.Unstructured) error {
	t.Helper()
	fakes := fake.NewClientBuilder().WithStatusSubresource(o).WithObjects(o, machine).Build()
	p := &provider{fakes}
	err := look(p)
	if again := look(p); (again == nil) != (err == nil) {
		t.Errorf("the second time: %v, the first time: %v", again, err)
	}
	for _, each := range []client.Object{o, machine} {
		if err := fakes.Get(t.Context(), client.ObjectKeyFromObject(each), each); err != nil {
			t.Fatal(err)
		}
	}
	return err
}

func text(o *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

func provisioned(o *unstructured.Unstructured) bool {
	is, _, _ := unstructured.NestedBool(o.Object, "status", "initialization", "provisioned")
	return is
}

// socketOf is the path of a swtpm process's socket.
func socketOf(device *tpmsim.TPM) string { return strings.TrimPrefix(device.TCTI(), "swtpm:path=") }

// TestMachine provisions a FakeMachine whose socket is a TPM, and none without an owner or a TPM.
func TestMachine(t *testing.T) {
	device := tpmsim.Swtpm(t, tpmsim.Options{})
	socket := socketOf(device)
	digest, err := csr.SPKIHash(device.EKPublic(tpmsim.RSA2048))
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		socket, owner string
		fails, done   bool
	}{
		"a machine":             {socket, "Machine", false, true},
		"no owner yet":          {socket, "", false, false},
		"another kind of owner": {socket, "MachinePool", false, false},
		"no TPM":                {socket + ".none", "Machine", true, false},
		"no socket":             {"", "Machine", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			machine, of := named(core, "Machine", "m-1"), named(infrastructure, "FakeMachine", "f-1")
			machine.SetUID("uid-1")
			of.Object["spec"] = fields{"socket": row.socket}
			if yes := true; row.owner != "" {
				of.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: core, Kind: row.owner, Name: "m-1", UID: "uid-1", Controller: &yes}})
			}
			err := reconciled(t, func(p *provider) error {
				_, err := p.machine(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(of)})
				return err
			}, of, machine)
			identity, id := "", ""
			if row.done {
				identity, id = "ek:sha256:"+hex.EncodeToString(digest[:]), "fake://fleet/f-1"
			}
			notes := machine.GetAnnotations()
			if (err != nil) != row.fails || provisioned(of) != row.done || text(of, "spec", "providerID") != id ||
				notes[clusterapi.AnnotationIdentity] != identity || text(of, "spec", "socket") != row.socket {
				t.Errorf("got %v, %v, the Machine's annotations %q, want the identity %q and provider ID %q", err, of.Object, notes, identity, id)
			}
		})
	}
}

// TestCluster states the signers.
func TestCluster(t *testing.T) {
	o := named(infrastructure, "FakeCluster", "work")
	o.Object["spec"] = fields{"controlPlaneEndpoint": fields{"host": "192.0.2.1"}}
	err := reconciled(t, func(p *provider) error {
		_, err := p.cluster(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		return err
	}, o, named(core, "Machine", "m-1"))
	if err != nil || !provisioned(o) || text(o, "spec", "controlPlaneEndpoint", "host") == "" ||
		text(o, "status", "kubeletClientCertificateSigner") != csr.SignerKubeAPIServerClientKubelet ||
		text(o, "status", "kubeletServingCertificateSigner") != csr.SignerKubeletServing {
		t.Errorf("got %v, %v", err, o.Object)
	}
	for _, look := range []func(*provider) error{
		func(p *provider) error { _, err := p.cluster(t.Context(), ctrl.Request{}); return err },
		func(p *provider) error { _, err := p.machine(t.Context(), ctrl.Request{}); return err },
	} {
		if err := look(&provider{fake.NewClientBuilder().WithObjects(o, named(infrastructure, "FakeMachine", "m")).Build()}); err != nil {
			t.Errorf("an object that is gone: %v", err)
		}
	}
}
