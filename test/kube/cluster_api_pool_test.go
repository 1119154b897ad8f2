package kube

import (
	"crypto/tls"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A poolMachine is a machine with a TPM that a provider launches. Two fleets have it, one after the other.
type poolMachine struct {
	mu     *sync.Mutex
	device *tpmsim.TPM
	nth    int
}

// providerID is the machine's in a pool.
func (m *poolMachine) providerID(pool string) string {
	return "fake://" + pool + "/" + strconv.Itoa(m.nth)
}

// A pooled fleet has MachinePools. The test is their infrastructure provider, which lists the provider IDs of
// the machines that it has launched.
type pooled struct {
	*fleet
	t          *testing.T    // for as long as the fleet runs
	renews     bool          // the controller renews the pools' tokens
	ttl        time.Duration // of the tokens
	ca         *tpmsim.CA
	machines   []poolMachine // 8 at most; more are made where they are needed
	account    string        // the controller's kubeconfig of the management cluster
	controller *replica
}

// newPooled starts both clusters, the managers, and the controller.
func newPooled(t *testing.T, version string, renews bool, ttl time.Duration, ca *tpmsim.CA, machines []poolMachine) *pooled {
	t.Helper()
	p := &pooled{t: t, renews: renews, ttl: ttl, ca: ca, machines: machines}
	p.fleet = &fleet{cluster: startJoinable(t), home: startCluster(t), version: version, tokenTTL: ttl.String()}
	p.begin(t, 0)
	p.apply(t, "clusterapi-pools-nodes/pools.yaml")
	p.apply(t, "clusterapi-pools-nodes/rbac.yaml")
	if renews {
		p.apply(t, "clusterapi-pool-tokens-nodes/rbac.yaml")
		p.apply(t, "clusterapi-pool-tokens-nodes/admission.yaml")
	}
	m := &machines[0]
	m.mu.Lock()
	defer m.mu.Unlock()
	p.writeRoots(t, p.nodeOn(t, m.device, "roots"))
	p.account = p.homeAccount(t)
	return p
}

// starts starts the controller, as it is or anew.
func (p *pooled) starts(t *testing.T, name string) {
	t.Helper()
	if p.controller != nil {
		if status := p.controller.stop(t); status != 0 {
			t.Errorf("the controller ended with status %d", status)
		}
		p.controller.checkLog(t)
	}
	p.controller = p.decides(p.t, name, p.account, fields{"renewPoolTokens": p.renews, "bootstrapTokenTTL": p.ttl.String()})
}

// machine is the nth machine, from 1.
func (p *pooled) machine(t *testing.T, nth int) *poolMachine {
	t.Helper()
	if nth <= len(p.machines) {
		return &p.machines[nth-1]
	}
	return &poolMachine{new(sync.Mutex), tpmsim.Swtpm(t, tpmsim.Options{CA: p.ca}), nth}
}

// makePool makes a MachinePool with a KubeadmConfig and an infrastructure of its name.
func (p *pooled) makePool(t *testing.T, name string, replicas int) *unstructured.Unstructured {
	t.Helper()
	p.home.make(t, object(infraGroup, "v1beta2", "FakeMachinePool", name, fields{}))
	p.home.make(t, object(bootstrapGroup, p.version, "KubeadmConfig", name, fields{
		"joinConfiguration": fields{"nodeRegistration": fields{"name": "{{ ds.meta_data.local_hostname }}"}}}))
	return p.home.make(t, object(coreGroup, p.version, "MachinePool", name, fields{"clusterName": fleetCluster, "replicas": int64(replicas),
		"template": fields{"spec": fields{"clusterName": fleetCluster, "version": "v1.36.3", "bootstrap": fields{"configRef": p.ref(bootstrapGroup, "KubeadmConfig", name)},
			"infrastructureRef": p.ref(infraGroup, "FakeMachinePool", name)}}}))
}

// read reads an object of a pool.
func (p *pooled) read(t *testing.T, group, kind, name string) (*unstructured.Unstructured, error) {
	t.Helper()
	version := p.version
	if group == infraGroup {
		version = "v1beta2"
	}
	o := &unstructured.Unstructured{Object: object(group, version, kind, name, fields{})}
	return o, p.home.admin.Get(t.Context(), client.ObjectKeyFromObject(o), o)
}

// change changes an object of a pool.
func (p *pooled) change(t *testing.T, group, kind, name string, how func(o *unstructured.Unstructured) error) {
	t.Helper()
	eventually(t, func() error {
		o, err := p.read(t, group, kind, name)
		if err == nil {
			err = how(o)
		}
		if err == nil {
			err = p.home.admin.Update(t.Context(), o)
		}
		return err
	})
}

// token waits for the bootstrap token that the provider has made for a pool, and returns it.
func (p *pooled) token(t *testing.T, pool string) (token string) {
	t.Helper()
	eventually(t, func() error {
		o, err := p.read(t, coreGroup, "MachinePool", pool)
		if err != nil {
			return err
		}
		if data, _, _ := unstructured.NestedString(o.Object, "spec", "template", "spec", "bootstrap", "dataSecretName"); data == "" {
			return fmt.Errorf("MachinePool %s has no launch data yet: %v", pool, o.Object["status"])
		}
		o, err = p.read(t, bootstrapGroup, "KubeadmConfig", pool)
		if err != nil {
			return err
		}
		if token, _, _ = unstructured.NestedString(o.Object, "spec", "joinConfiguration", "discovery", "bootstrapToken", "token"); token == "" {
			return errNotYet
		}
		return nil
	})
	return token
}

// scales sets the replicas of a pool, and has the provider list machines.
func (p *pooled) scales(t *testing.T, pool string, replicas int, launched ...int) {
	t.Helper()
	ids := []any{}
	for _, nth := range launched {
		ids = append(ids, (&poolMachine{nth: nth}).providerID(pool))
	}
	p.change(t, coreGroup, "MachinePool", pool, func(o *unstructured.Unstructured) error {
		return unstructured.SetNestedField(o.Object, int64(replicas), "spec", "replicas")
	})
	p.change(t, infraGroup, "FakeMachinePool", pool, func(o *unstructured.Unstructured) error {
		return unstructured.SetNestedSlice(o.Object, ids, "spec", "providerIDList")
	})
	infra := &unstructured.Unstructured{Object: object(infraGroup, "v1beta2", "FakeMachinePool", pool, nil)}
	p.home.setStatus(t, infra, fields{"ready": true, "replicas": int64(len(ids)), "initialization": fields{"provisioned": true}})
	eventually(t, func() error {
		o, err := p.read(t, coreGroup, "MachinePool", pool)
		if err != nil {
			return err
		}
		if listed, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "providerIDList"); fmt.Sprint(listed) != fmt.Sprint(ids) {
			return fmt.Errorf("MachinePool %s lists %v, want %v", pool, listed, ids)
		}
		return nil
	})
}

// complete waits until a pool has as many nodes as replicas: the provider replaces its token from then on.
func (p *pooled) complete(t *testing.T, pool string, replicas int) {
	t.Helper()
	eventually(t, func() error {
		o, err := p.read(t, coreGroup, "MachinePool", pool)
		if err != nil {
			return err
		}
		if refs, _, _ := unstructured.NestedSlice(o.Object, "status", "nodeRefs"); len(refs) != replicas {
			return fmt.Errorf("MachinePool %s has %d nodes, want %d: %v", pool, len(refs), replicas, o.Object["status"])
		}
		return nil
	})
}

// asks has a machine file its requests as a node, and returns the last one, decided.
func (p *pooled) asks(t *testing.T, m *poolMachine, name, providerID, token string) (tls.Certificate, *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	n := p.stranger(t, m.device, name, providerID)
	object := p.files(t, p.bearing(t, token), n)
	if len(object.Status.Certificate) == 0 {
		return tls.Certificate{}, object
	}
	return pairOf(t, object, n), object
}

// joins has a machine of a pool get a certificate for a node of the pool's and its number, and makes the Node.
func (p *pooled) joins(t *testing.T, pool string, nth int, token string) {
	t.Helper()
	m, name := p.machine(t, nth), pool+"-"+strconv.Itoa(nth)
	pair, object := p.asks(t, m, name, m.providerID(pool), token)
	if pair.Leaf == nil {
		t.Fatalf("node %s: %+v", name, object.Status.Conditions)
	}
	p.isNode(t, pool, m, name, pair)
}

// A poolNode is a machine with the program of a node.
type poolNode struct {
	*nodeMachine
	m *poolMachine
}

// joinsByProgram is joins for a machine with the program of a node.
func (p *pooled) joinsByProgram(t *testing.T, pool string, nth int, token string) poolNode {
	t.Helper()
	m, name := p.machine(t, nth), pool+"-"+strconv.Itoa(nth)
	n := poolNode{p.nodeBy(t, name, token, m.providerID(pool), m.device), m}
	m.mu.Lock()
	_, pair := n.credential(t)
	m.mu.Unlock()
	p.isNode(t, pool, m, name, pair)
	return n
}

// renew has nodes renew.
func (p *pooled) renew(t *testing.T, nodes ...poolNode) {
	t.Helper()
	for _, n := range nodes {
		n.m.mu.Lock()
		if _, stderr, err := n.run(t.Context(), "rotate"); err != nil {
			t.Errorf("node %s does not renew: %v: %s", n.name, err, stderr)
		}
		n.m.mu.Unlock()
	}
}

// isNode makes a node's Node, and looks at its record.
func (p *pooled) isNode(t *testing.T, pool string, m *poolMachine, name string, pair tls.Certificate) {
	t.Helper()
	p.registers(t, pair, name, m.providerID(pool))
	p.setReady(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	of, err := p.read(t, coreGroup, "MachinePool", pool)
	if err != nil {
		t.Fatal(err)
	}
	var record v1alpha1.AttestedNode
	if err := p.admin.Get(t.Context(), client.ObjectKey{Name: name}, &record); err != nil {
		t.Fatal(err)
	}
	if want := string(of.GetUID()) + "/" + identity(t, m.device); record.Spec.MachineUID != want || record.Spec.ProviderID != m.providerID(pool) {
		t.Errorf("the record is %+v, want slot %s with %s", record.Spec, want, m.providerID(pool))
	}
}

// notAdmitted has a machine be refused, for a reason and with the words of the Event.
func (p *pooled) notAdmitted(t *testing.T, m *poolMachine, name, providerID, token, reason, note string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	condition, got := p.denied(t, p.bearing(t, token), p.stranger(t, m.device, name, providerID))
	if condition.Reason != reason || !strings.Contains(got, note) {
		t.Errorf("node %s: %s and the Event %q, want %s and %q", name, condition.Reason, got, reason, note)
	}
	t.Logf("node %s: %s: %s", name, condition.Reason, got)
}

// age has the records of nodes be as long after the end of their last certificates, when they have been released.
func (p *pooled) age(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		var record v1alpha1.AttestedNode
		if err := p.admin.Get(t.Context(), client.ObjectKey{Name: name}, &record); err != nil {
			t.Fatal(err)
		}
		old := &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.AttestedNodeSpec{Scope: record.Spec.Scope, Machine: record.Spec.Machine,
			MachineUID: record.Spec.MachineUID, State: v1alpha1.NodeResting, LastEnd: in(-time.Hour)}}
		for _, o := range []client.Object{&record,
			&v1alpha1.AttestedMachine{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PointerName(record.Spec.Machine)}},
			&v1alpha1.AttestedMachineUID{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PointerName(record.Spec.MachineUID)}}} {
			if err := p.admin.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.admin.Create(t.Context(), old); err != nil {
			t.Fatal(err)
		}
	}
}

// bootstrapSecret reads the Secret of a token.
func (p *pooled) bootstrapSecret(t *testing.T, token string) (*corev1.Secret, error) {
	t.Helper()
	id, _, _ := strings.Cut(token, ".")
	s := new(corev1.Secret)
	return s, p.admin.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id}, s)
}

// poolSize is the number of replicas, and the lifetime of the tokens.
func poolSize() (replicas int, ttl time.Duration) {
	if os.Getenv(longVar) != "" {
		return 20, time.Minute
	}
	return 5, 30 * time.Second // the shortest for which the controller renews
}
