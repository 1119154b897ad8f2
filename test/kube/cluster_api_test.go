package kube

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/clusterapi"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func base64Text(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func atoi(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// homeAccount makes the controller's account on the management cluster, and returns its kubeconfig.
func (f *fleet) homeAccount(t *testing.T) string {
	t.Helper()
	ns, name := metav1.NamespaceDefault, controller.DefaultName
	meta := metav1.ObjectMeta{Namespace: ns, Name: name}
	read := []string{"get", "list", "watch"}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fleetCluster + "-challenge-keys"}},
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{coreGroup}, Resources: []string{"machines", "clusters"}, Verbs: read},
			{APIGroups: []string{coreGroup}, Resources: []string{"machinepools"}, Verbs: []string{"list"}},
			{APIGroups: []string{bootstrapGroup}, Resources: []string{"kubeadmconfigs"}, Verbs: read},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{fleetCluster + "-challenge-keys"}, Verbs: []string{"get", "update"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
			{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{name + "-" + fleetCluster}, Verbs: []string{"get", "update"}},
		}},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: name}}},
	} {
		if err := f.home.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	f.mayReadSigners(t, name)
	return f.home.writeKubeconfig(t, "home.kubeconfig", &clientcmdapi.AuthInfo{Token: f.home.serviceAccountToken(t, ns, name)})
}

// byMachines has the controller decide by the fleet's Machines.
func (f *fleet) byMachines(t *testing.T) *replica {
	t.Helper()
	return f.decides(t, "controller", f.homeAccount(t), nil)
}

// decides starts the controller with its account on the management cluster, and more settings of the inventory.
func (f *fleet) decides(t *testing.T, name, home string, more fields) *replica {
	t.Helper()
	r := f.startController(t, buildProgram(t, "node-attestation-controller"), name, func(config map[string]any) {
		of := fields{"kubeconfig": home, "namespace": metav1.NamespaceDefault, "cluster": fleetCluster}
		maps.Copy(of, more)
		config["inventory"] = fields{"clusterAPI": of}
		delete(config["cluster"].(fields), "keyRingSecret")
		config["signers"].(fields)["builtInDuration"] = "1h"
		config["membership"] = fields{"mode": "FirstUse", "road": "ek", "identityClass": "RSA-2048"}
	})
	r.isReady(t)
	return r
}

// nodeBy is a node on a TPM that joins by a token.
func (f *fleet) nodeBy(t *testing.T, name, token, providerID string, device *tpmsim.TPM) *nodeMachine {
	t.Helper()
	m := f.install(t, buildProgram(t, "kubelet-authenticator"), name, device, func(config map[string]any) {
		if providerID != "" {
			config["providerID"] = providerID
		}
	})
	m.token = m.kubeconfig(t, "bootstrap", &clientcmdapi.AuthInfo{Token: token})
	return m
}

// bearing connects with a whole bootstrap token.
func (f *fleet) bearing(t *testing.T, token string) client.Client {
	t.Helper()
	config := f.bearer(t, "")
	config.BearerToken = token
	return f.client(t, config)
}

// stranger is a node that attests by a TPM and claims a provider ID.
func (f *fleet) stranger(t *testing.T, device *tpmsim.TPM, name, providerID string) *attesttest.Node {
	t.Helper()
	n := f.nodeOn(t, device, name)
	request, err := csr.Create(csr.PurposeClient, n.Key, name, csr.CreateOptions{ProviderID: providerID})
	if err != nil {
		t.Fatal(err)
	}
	n.Subject.Request = request
	return n
}

// files files a node's hello and, where it is challenged, its answer, and returns what was decided last.
func (f *fleet) files(t *testing.T, as client.Client, n *attesttest.Node) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	hello, err := n.Attester.Hello(t.Context(), n.Subject)
	if err != nil {
		t.Fatal(err)
	}
	object := decided(t, as, file(t, as, hello))
	if challenge, err := attest.ChallengeOf(controller.Request(object)); err == nil {
		answer, err := n.Attester.Answer(t.Context(), challenge, n.Certified, n.Subject)
		if err != nil {
			t.Fatal(err)
		}
		object = decided(t, as, file(t, as, answer))
	}
	return object
}

// denied files a node's messages, and returns the condition of the denial and the note of its Event.
func (f *fleet) denied(t *testing.T, as client.Client, n *attesttest.Node) (condition certificatesv1.CertificateSigningRequestCondition, note string) {
	t.Helper()
	object := f.files(t, as, n)
	condition = object.Status.Conditions[0]
	if condition.Type != certificatesv1.CertificateDenied {
		t.Fatalf("got %s %s: %s, want it denied", condition.Type, condition.Reason, condition.Message)
	}
	eventually(t, func() error {
		var events eventsv1.EventList
		if err := f.admin.List(t.Context(), &events); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Regarding.UID == object.UID {
				note = e.Note
				return nil
			}
		}
		return fmt.Errorf("no Event about request %s", object.Name)
	})
	return condition, note
}

// TestMachineDeployment has Machines of a MachineDeployment join by their tokens.
func TestMachineDeployment(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1beta2", "v1beta1"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			testMachineDeployment(t, version)
		})
	}
}

func testMachineDeployment(t *testing.T, version string) {
	f := newFleet(t, version, 3)
	all := f.machines(t, 3)
	for i := range all[:2] {
		f.provision(t, &all[i])
	}
	ca := newCA(t, "")
	first, second, thief := tpmsim.Swtpm(t, tpmsim.Options{CA: ca}), tpmsim.Swtpm(t, tpmsim.Options{CA: ca}), tpmsim.Swtpm(t, tpmsim.Options{CA: ca})
	f.writeRoots(t, f.nodeOn(t, first, "node-1"))
	f.states(t, csr.SignerClientTPM)
	r := f.byMachines(t)
	t.Run("another signer than the provider states", f.testStates)
	f.apply(t, "serving/rbac.yaml")
	m := f.nodeBy(t, "node-1", all[0].token, all[0].providerID, first)
	t.Run("joins", func(t *testing.T) { f.testJoins(t, m, &all[0]) })

	tokens, others, third := f.bearing(t, all[0].token), f.bearing(t, all[1].token), f.bearing(t, all[2].token)
	secrets := []string{"node-1", all[0].GetName(), all[1].GetName(), string(all[0].GetUID())}
	refuses := func(t *testing.T, as client.Client, n *attesttest.Node, reason, note string) {
		t.Helper()
		condition, got := f.denied(t, as, n)
		if condition.Reason != reason || !strings.Contains(got, note) {
			t.Errorf("got %s and the Event %q, want %s and %q", condition.Reason, got, reason, note)
		}
		for _, word := range secrets {
			if strings.Contains(condition.Message, word) && word != n.Name {
				t.Errorf("the requester is told %s: %s", word, condition.Message)
			}
		}
	}
	for _, row := range []struct {
		name       string
		as         client.Client
		node       string
		device     *tpmsim.TPM
		providerID string
		reason     string
		note       string // the Event says so, and the condition does not
	}{
		{"another TPM, the same name", tokens, "node-1", thief, "", "NotAMember", "that of node node-1"},
		{"another TPM, another name", tokens, "node-9", thief, "", "NotAMember", "that of Machine UID " + string(all[0].GetUID())},
		{"its TPM, another Machine's token", others, "node-2", first, "", "NotAMember", "node-1"},
		{"another Machine's provider ID", others, "node-2", thief, all[0].providerID, "ProviderIdMismatch", "fake://"},
		{"a Machine of another Cluster", f.bearing(t, f.elsewhere(t)), "node-2", thief, "", "MachineUnknown", "of another cluster"},
		{"a token of no Machine", f.bearing(t, attesttest.TokenID+"."+tokenSecret), "node-2", thief, "", "MachineUnknown", "is of no Machine"},
	} {
		t.Run(row.name, func(t *testing.T) {
			refuses(t, row.as, f.stranger(t, row.device, row.node, row.providerID), row.reason, row.note)
		})
	}
	t.Run("an annotation of another TPM", func(t *testing.T) {
		f.annotate(t, all[1].Unstructured, clusterapi.AnnotationIdentity, identity(t, second))
		refuses(t, others, f.stranger(t, thief, "node-2", ""), "NotAMember", identity(t, second))
	})
	t.Run("a kind that is not authorized", func(t *testing.T) {
		of := f.theCluster()
		f.annotate(t, of, clusterapi.AnnotationAttestors, "gce")
		eventually(t, func() error {
			condition, note := f.denied(t, others, f.stranger(t, second, "node-2", ""))
			if condition.Reason == "NotAMember" && strings.Contains(note, "authorizes") {
				return nil
			}
			return fmt.Errorf("got %s: %s", condition.Reason, note)
		})
		f.annotate(t, of, clusterapi.AnnotationAttestors, "gce,tpm")
	})
	t.Run("no provider ID yet", func(t *testing.T) { // it is decided once the infrastructure has one
		n := f.stranger(t, thief, "node-3", all[2].providerID)
		var answer *certificatesv1.CertificateSigningRequest
		eventually(t, func() error {
			challenge, err := challenged(t, third, n)
			if err != nil {
				return err
			}
			spec, err := n.Attester.Answer(t.Context(), challenge, n.Certified, n.Subject)
			answer = file(t, third, spec)
			return err
		})
		time.Sleep(2 * time.Second)
		if err := third.Get(t.Context(), client.ObjectKeyFromObject(answer), answer); err != nil || len(answer.Status.Conditions) != 0 {
			t.Errorf("got %+v, %v, want no decision", answer.Status, err)
		}
		f.provision(t, &all[2])
		if got := decided(t, third, answer).Status.Conditions[0]; got.Type != certificatesv1.CertificateApproved {
			t.Fatalf("got %+v, want it approved", got)
		}
		f.testNodeRef(t, pairOf(t, answer, n), n.Name, &all[2])
	})
	t.Run("a token of two Machines", func(t *testing.T) {
		f.setToken(t, &all[2], all[1].token)
		eventually(t, func() error {
			condition, note := f.denied(t, others, f.stranger(t, second, "node-2", ""))
			if condition.Reason == "MachineUnknown" && strings.Contains(note, "is of two Machines") {
				return nil
			}
			return fmt.Errorf("got %s: %s", condition.Reason, note)
		})
		f.setToken(t, &all[2], all[2].token)
	})
	t.Run("its own TPM", func(t *testing.T) {
		var object *certificatesv1.CertificateSigningRequest
		n := f.stranger(t, second, "node-2", all[1].providerID)
		eventually(t, func() error {
			object = f.files(t, others, n)
			if got := object.Status.Conditions[0]; got.Type != certificatesv1.CertificateApproved {
				return fmt.Errorf("got %+v, want it approved", got)
			}
			return nil
		})
		f.testNodeRef(t, pairOf(t, object, n), n.Name, &all[1])
	})
	t.Run("a deleted Machine's token", func(t *testing.T) {
		if err := f.home.admin.Delete(t.Context(), all[2].Unstructured); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			condition, note := f.denied(t, third, f.stranger(t, thief, "node-3", ""))
			if condition.Reason == "MachineUnknown" && (strings.Contains(note, "being deleted") || strings.Contains(note, "of no Machine")) {
				return nil
			}
			return fmt.Errorf("got %s: %s", condition.Reason, note)
		})
	})
	t.Run("one token and six TPMs", func(t *testing.T) { f.testRace(t, ca, all) })
	t.Run("serving", func(t *testing.T) { f.testServing(t, m, all) })
	t.Run("a draining Machine", func(t *testing.T) { f.testDrains(t, m, &all[0]) })
	r.checkLog(t)
}

// elsewhere makes a Machine of another Cluster by hand, and returns its token.
func (f *fleet) elsewhere(t *testing.T) string {
	t.Helper()
	const name, id = "elsewhere", "zzzzzz"
	labels := fields{coreGroup + "/cluster-name": "other"}
	machine := object(coreGroup, f.version, "Machine", name, fields{"clusterName": "other", "bootstrap": fields{"configRef": f.ref(bootstrapGroup, "KubeadmConfig", name), "dataSecretName": name},
		"infrastructureRef": f.ref(infraGroup, "FakeMachine", name)})
	machine["metadata"].(fields)["labels"] = labels
	made := f.home.make(t, machine)
	config := object(bootstrapGroup, f.version, "KubeadmConfig", name, fields{"joinConfiguration": fields{"discovery": fields{"bootstrapToken": fields{"token": id + "." + tokenSecret,
		"apiServerEndpoint": strings.TrimPrefix(f.url, "https://"), "unsafeSkipCAVerification": true}}}})
	config["metadata"].(fields)["labels"] = labels
	config["metadata"].(fields)["ownerReferences"] = []any{fields{"apiVersion": coreGroup + "/" + f.version, "kind": "Machine", "name": name, "uid": string(made.GetUID()), "controller": true}}
	f.home.make(t, config)
	f.makeToken(t, id)
	return id + "." + tokenSecret
}

// testRace has six TPMs ask at once with the token of the Machine that replaced a deleted one.
func (f *fleet) testRace(t *testing.T, ca *tpmsim.CA, known []fleetMachine) {
	var fresh *fleetMachine
	eventually(t, func() error {
		all := f.machines(t, 3)
		for i := range all {
			if !slices.ContainsFunc(known, func(m fleetMachine) bool { return m.GetUID() == all[i].GetUID() }) {
				fresh = &all[i]
				return nil
			}
		}
		return errNotYet
	})
	f.provision(t, fresh)
	var admitted atomic.Int32
	t.Run("each", func(t *testing.T) {
		for n := range 6 {
			device := tpmsim.Swtpm(t, tpmsim.Options{CA: ca})
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				t.Parallel()
				object := f.files(t, f.bearing(t, fresh.token), f.stranger(t, device, "race-"+strconv.Itoa(n), fresh.providerID))
				switch got := object.Status.Conditions[0]; {
				case len(object.Status.Certificate) != 0:
					admitted.Add(1)
				case got.Type != certificatesv1.CertificateDenied || got.Reason != "NotAMember":
					t.Errorf("got %+v, want a certificate, or NotAMember", got)
				}
			})
		}
	})
	if n := admitted.Load(); n != 1 {
		t.Errorf("%d certificates by one token, want 1", n)
	}
}

// testServing files the kubelet's own requests, for the names of the Machine and of another.
func (f *fleet) testServing(t *testing.T, m *nodeMachine, all []fleetMachine) {
	_, pair := m.credential(t)
	kubelet := f.withCertificate(t, pair)
	signed := decided(t, f.admin, file(t, kubelet, servingSpec(t, m.name, all[0].GetName()+".example.com")))
	if len(signed.Status.Certificate) == 0 {
		t.Errorf("no serving certificate: %+v", signed.Status.Conditions)
	}
	denied(t, f.admin, file(t, kubelet, servingSpec(t, m.name, all[1].GetName()+".example.com")), "SanNotOwn")
}

// pairOf is a node's key with the certificate of its request.
func pairOf(t *testing.T, signed *certificatesv1.CertificateSigningRequest, n *attesttest.Node) tls.Certificate {
	t.Helper()
	leaf := certificateOf(t, signed)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: n.Key, Leaf: leaf}
}

// theCluster is the Cluster, without its fields.
func (f *fleet) theCluster() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: object(coreGroup, f.version, "Cluster", fleetCluster, fields{})}
}

// annotate sets an annotation of an object of the management cluster.
func (f *fleet) annotate(t *testing.T, o *unstructured.Unstructured, name, value string) {
	t.Helper()
	eventually(t, func() error {
		if err := f.home.admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		notes := o.GetAnnotations()
		if notes == nil {
			notes = map[string]string{}
		}
		notes[name] = value
		o.SetAnnotations(notes)
		return f.home.admin.Update(t.Context(), o)
	})
}

// setToken gives the KubeadmConfig of a Machine a token.
func (f *fleet) setToken(t *testing.T, of *fleetMachine, token string) {
	t.Helper()
	name, _, _ := unstructured.NestedString(of.Object, "spec", "bootstrap", "configRef", "name")
	config := &unstructured.Unstructured{Object: object(bootstrapGroup, f.version, "KubeadmConfig", name, fields{})}
	eventually(t, func() error {
		if err := f.home.admin.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil {
			return err
		}
		if err := unstructured.SetNestedField(config.Object, token, "spec", "joinConfiguration", "discovery", "bootstrapToken", "token"); err != nil {
			return err
		}
		return f.home.admin.Update(t.Context(), config)
	})
}

// identity is the identity of a TPM by its EK.
func identity(t *testing.T, device *tpmsim.TPM) string {
	t.Helper()
	ek, err := tpmcert.ParseEK(device.EKCertificate(tpmsim.RSA2048).Raw)
	if err != nil {
		t.Fatal(err)
	}
	return string(ek.Identity())
}

// testStates waits for the Event about the signer that the provider states.
func (f *fleet) testStates(t *testing.T) {
	eventually(t, func() error {
		var events eventsv1.EventList
		if err := f.home.admin.List(t.Context(), &events); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == "SignerNamesDiffer" && e.Regarding.Name == fleetCluster && strings.Contains(e.Note, csr.SignerClientTPM) {
				return nil
			}
		}
		return errNotYet
	})
}

// testJoins has a Machine's node join, and Cluster API find it.
func (f *fleet) testJoins(t *testing.T, m *nodeMachine, of *fleetMachine) {
	_, pair := m.credential(t)
	var record v1alpha1.AttestedNode
	if err := f.admin.Get(t.Context(), client.ObjectKey{Name: m.name}, &record); err != nil {
		t.Fatal(err)
	}
	if record.Spec.MachineUID != string(of.GetUID()) || record.Spec.ProviderID != of.providerID {
		t.Errorf("the record is %+v, want Machine %s with %s", record.Spec, of.GetUID(), of.providerID)
	}
	f.testNodeRef(t, pair, m.name, of)
}

// testNodeRef makes the Node as its kubelet does, with the node's certificate, and waits until Cluster API
// refers to it.
func (f *fleet) testNodeRef(t *testing.T, pair tls.Certificate, name string, of *fleetMachine) {
	t.Helper()
	f.registers(t, pair, name, of.providerID)
	f.setReady(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	eventually(t, func() error {
		if err := f.home.admin.Get(t.Context(), client.ObjectKeyFromObject(of), of); err != nil {
			return err
		}
		if ref, _, _ := unstructured.NestedString(of.Object, "status", "nodeRef", "name"); ref != name {
			return fmt.Errorf("Machine %s has no nodeRef %s: %v", of.GetName(), name, of.Object["status"])
		}
		return nil
	})
}

// testDrains deletes a Machine, which Cluster API keeps while it drains the node: the node renews until the
// Machine is gone.
func (f *fleet) testDrains(t *testing.T, m *nodeMachine, of *fleetMachine) {
	const hold = "nodeattest.github.io/test"
	eventually(t, func() error {
		if err := f.home.admin.Get(t.Context(), client.ObjectKeyFromObject(of), of); err != nil {
			return err
		}
		of.SetFinalizers(append(of.GetFinalizers(), hold))
		return f.home.admin.Update(t.Context(), of.Unstructured)
	})
	if err := f.home.admin.Delete(t.Context(), of.Unstructured); err != nil {
		t.Fatal(err)
	}
	if _, stderr, err := m.run(t.Context(), "rotate"); err != nil {
		t.Errorf("while it drains: %v: %s", err, stderr)
	}
	eventually(t, func() error {
		if err := f.home.admin.Get(t.Context(), client.ObjectKeyFromObject(of), of); err != nil {
			return client.IgnoreNotFound(err)
		}
		of.SetFinalizers(nil)
		return f.home.admin.Update(t.Context(), of.Unstructured)
	})
	eventually(t, func() error {
		if err := f.home.admin.Get(t.Context(), client.ObjectKeyFromObject(of), of); err != nil {
			return client.IgnoreNotFound(err)
		}
		return errNotYet
	})
	if _, stderr, err := m.run(t.Context(), "rotate"); err == nil || !strings.Contains(stderr, "MachineUnknown") {
		t.Errorf("once it is gone: %v: %s", err, stderr)
	}
}

// setReady has a Node be Ready, as its kubelet does.
func (f *fleet) setReady(t *testing.T, node *corev1.Node) {
	t.Helper()
	eventually(t, func() error {
		if err := f.admin.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
			return err
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		return f.admin.Status().Update(t.Context(), node)
	})
}
