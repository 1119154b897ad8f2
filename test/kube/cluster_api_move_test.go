package kube

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/clusterapi"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A renewingNode renews its certificate again and again.
type renewingNode struct {
	*nodeMachine
	mu      sync.Mutex
	renewed []time.Time
	failed  []string
}

// renews has a node renew until the returned function is called.
func (m *renewingNode) renews(ctx context.Context, every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, stderr, err := m.run(ctx, "rotate")
			m.mu.Lock()
			if err == nil {
				m.renewed = append(m.renewed, time.Now())
			} else {
				m.failed = append(m.failed, stderr)
			}
			m.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(every):
			}
		}
	}()
	return func() { cancel(); <-done }
}

// since counts the renewals after a time.
func (m *renewingNode) since(at time.Time) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.renewed {
		if r.After(at) {
			n++
		}
	}
	return n
}

// failures are what failed renewals said.
func (m *renewingNode) failures() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.failed)
}

// sweeps has a new leader hold the records against the Machines, as it does at its start, and waits until the
// record of each node has a note of its Machine UID.
func (f *fleet) sweeps(t *testing.T, r *replica, noted map[string]string) {
	t.Helper()
	if status := r.stop(t); status != 0 {
		t.Errorf("the controller ended with status %d", status)
	}
	if err := r.launch(); err != nil {
		t.Fatal(err)
	}
	r.isReady(t)
	for name, uid := range noted {
		eventually(t, func() error {
			if n := f.attestedNodes(t)[name]; n.Annotations[clusterapi.AnnotationMachineUID] != uid {
				return fmt.Errorf("the record of %s has no note of %s: %v", name, uid, n.Annotations)
			}
			return nil
		})
	}
}

// clusterctl runs the program.
func (f *fleet) clusterctl(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(managers(t), "clusterctl"), args...)
	cmd.Env = append(os.Environ(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	t.Logf("clusterctl %s: %s", strings.Join(args, " "), out)
	if err != nil {
		t.Fatal(err)
	}
}

// movedKinds are the kinds of objects that clusterctl moves, of the fleet.
var movedKinds = [][2]string{{coreGroup, "Cluster"}, {coreGroup, "MachineDeployment"}, {coreGroup, "MachineSet"}, {coreGroup, "Machine"},
	{coreGroup, "MachinePool"}, {bootstrapGroup, "KubeadmConfig"}, {infraGroup, "FakeMachine"}, {infraGroup, "FakeMachinePool"},
	{infraGroup, "FakeCluster"}}

// counts returns how many objects of each kind the management cluster has.
func (f *fleet) counts(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, of := range movedKinds {
		all, err := f.list(t.Context(), of[0], "v1beta2", of[1])
		if err != nil {
			t.Fatal(err)
		}
		if len(all) > 0 {
			found[of[1]] = len(all)
		}
	}
	return found
}

// poolOfOne makes a MachinePool of one machine, and returns it with its token.
func (f *fleet) poolOfOne(t *testing.T, name string) (pool *unstructured.Unstructured, token string) {
	t.Helper()
	f.home.make(t, object(infraGroup, "v1beta2", "FakeMachinePool", name, fields{}))
	f.home.make(t, object(bootstrapGroup, f.version, "KubeadmConfig", name, fields{
		"joinConfiguration": fields{"nodeRegistration": fields{"name": "{{ ds.meta_data.local_hostname }}"}}}))
	pool = f.home.make(t, object(coreGroup, f.version, "MachinePool", name, fields{"clusterName": fleetCluster, "replicas": int64(1),
		"template": fields{"spec": fields{"clusterName": fleetCluster, "version": "v1.36.3",
			"bootstrap":         fields{"configRef": f.ref(bootstrapGroup, "KubeadmConfig", name)},
			"infrastructureRef": f.ref(infraGroup, "FakeMachinePool", name)}}}))
	config := &unstructured.Unstructured{Object: object(bootstrapGroup, f.version, "KubeadmConfig", name, nil)}
	eventually(t, func() error {
		if err := f.home.admin.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
			return err
		}
		if data, _, _ := unstructured.NestedString(pool.Object, "spec", "template", "spec", "bootstrap", "dataSecretName"); data == "" {
			return fmt.Errorf("MachinePool %s has no bootstrap data: %v", name, pool.Object["status"])
		}
		return f.home.admin.Get(t.Context(), client.ObjectKeyFromObject(config), config)
	})
	token, _, _ = unstructured.NestedString(config.Object, "spec", "joinConfiguration", "discovery", "bootstrapToken", "token")
	return pool, token
}

// movable is a fleet of two Machines and a MachinePool of one machine, whose nodes have joined.
type movable struct {
	*fleet
	source *replica
	nodes  []*renewingNode
	owners []*unstructured.Unstructured // each node's Machine, or its pool
	uids   []string                     // the Machine UIDs in the records
}

const movedPool = "workers"

func newMovable(t *testing.T) *movable {
	t.Helper()
	f := &movable{fleet: newFleet(t, "v1beta2", 2)}
	f.apply(t, "clusterapi-pools-nodes/pools.yaml")
	f.apply(t, "clusterapi-pools-nodes/rbac.yaml")
	pool, token := f.poolOfOne(t, movedPool)
	ca := newCA(t, "")
	devices := make([]*tpmsim.TPM, 3)
	for n := range devices {
		devices[n] = tpmsim.Swtpm(t, tpmsim.Options{CA: ca})
	}
	f.writeRoots(t, f.nodeOn(t, devices[0], "node-0"))
	f.source = f.decides(t, "controller-source", f.homeAccount(t), nil)
	all := f.machines(t, 2)
	for n := range all {
		f.provision(t, &all[n])
		m := f.nodeBy(t, fmt.Sprint("node-", n), all[n].token, all[n].providerID, devices[n])
		_, pair := m.credential(t)
		f.testNodeRef(t, pair, m.name, &all[n]) // clusterctl moves no Cluster without
		f.add(m, all[n].Unstructured, string(all[n].GetUID()))
	}
	m := f.nodeBy(t, "node-2", token, "", devices[2])
	m.credential(t)
	f.add(m, pool, string(pool.GetUID())+"/"+identity(t, devices[2]))
	return f
}

func (f *movable) add(m *nodeMachine, of *unstructured.Unstructured, uid string) {
	f.nodes, f.owners, f.uids = append(f.nodes, &renewingNode{nodeMachine: m}), append(f.owners, of), append(f.uids, uid)
}

// TestMove moves a Cluster to another management cluster, as docs/cluster-api-operation.md says, while its nodes
// renew: their records are adopted, none is released, and no renewal is denied. With NODEATTEST_LONG the nodes
// renew every 20 s, and both controllers sweep three times after the move.
func TestMove(t *testing.T) {
	t.Parallel()
	every, after := 2*time.Second, 5*time.Second
	if os.Getenv(longVar) != "" {
		every, after = 20*time.Second, 3*time.Minute+10*time.Second
	}
	f := newMovable(t)
	to := &movable{fleet: &fleet{cluster: f.cluster, home: startCluster(t), version: f.version}, nodes: f.nodes}
	to.startManagers(t, managers(t))
	f.sweeps(t, f.source, map[string]string{"node-0": f.uids[0], "node-1": f.uids[1], "node-2": f.uids[2]})
	before, records := f.counts(t), f.attestedNodes(t)
	for _, m := range f.nodes {
		defer m.renews(t.Context(), every)()
	}
	time.Sleep(every)
	if status := f.source.stop(t); status != 0 {
		t.Errorf("the controller ended with status %d", status)
	}
	f.clusterctl(t, "move", "--namespace=default", "--kubeconfig="+f.home.kubeconfig(t, "from.kubeconfig", "admin", "system:masters"),
		"--to-kubeconfig="+to.home.kubeconfig(t, "to.kubeconfig", "admin", "system:masters"))
	if left, there := f.counts(t), to.counts(t); len(left) != 0 || fmt.Sprint(there) != fmt.Sprint(before) {
		t.Errorf("the source has %v, and the target %v, want %v", left, there, before)
	}
	target, at := to.decides(t, "controller-target", to.homeAccount(t), nil), time.Now()
	target.isReady(t)
	f.allRenew(t, at)
	if err := f.source.launch(); err != nil { // by mistake
		t.Fatal(err)
	}
	f.source.isReady(t)
	time.Sleep(after)
	f.allRenew(t, time.Now())
	to.checkMoved(t, f, records)
	f.checkSweeps(t, f.source, target)
	f.checkDenials(t)
	f.source.checkLog(t)
	target.checkLog(t)
}

// allRenew waits until each node has renewed after a time.
func (f *movable) allRenew(t *testing.T, at time.Time) {
	t.Helper()
	for _, m := range f.nodes {
		for deadline := time.Now().Add(2 * time.Minute); m.since(at) == 0; time.Sleep(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s does not renew: %q", m.name, m.failures())
			}
		}
	}
}

// attestedNodes reads all records.
func (c *cluster) attestedNodes(t *testing.T) map[string]*v1alpha1.AttestedNode {
	t.Helper()
	var l v1alpha1.AttestedNodeList
	if err := c.admin.List(t.Context(), &l); err != nil {
		t.Fatal(err)
	}
	all := map[string]*v1alpha1.AttestedNode{}
	for n := range l.Items {
		all[l.Items[n].Name] = &l.Items[n]
	}
	return all
}

// checkMoved holds the records against the Machines and the pool on the target.
func (f *movable) checkMoved(t *testing.T, from *movable, before map[string]*v1alpha1.AttestedNode) {
	t.Helper()
	now := f.attestedNodes(t)
	if len(now) != len(before) {
		t.Errorf("%d records, want %d", len(now), len(before))
	}
	for n, m := range from.nodes {
		of := from.owners[n].DeepCopy()
		if err := f.home.admin.Get(t.Context(), client.ObjectKeyFromObject(of), of); err != nil {
			t.Fatal(err)
		}
		want := strings.Replace(from.uids[n], string(from.owners[n].GetUID()), string(of.GetUID()), 1)
		got := now[m.name].Spec
		if got.MachineUID != want || want == from.uids[n] || got.Machine != before[m.name].Spec.Machine || got.State != v1alpha1.NodeBound {
			t.Errorf("the record of %s is %+v, want Machine UID %s and machine %s", m.name, got, want, before[m.name].Spec.Machine)
		}
		t.Logf("%s renewed %d times, and failed: %q", m.name, m.since(time.Time{}), m.failures())
	}
}

// checkSweeps looks at what both controllers released.
func (f *movable) checkSweeps(t *testing.T, source, target *replica) {
	t.Helper()
	if !strings.Contains(source.text(t), "is missing in the management cluster") {
		t.Error("the controller of the source does not say that the Cluster is missing")
	}
	for _, r := range []*replica{source, target} {
		if got := counted(t, r, "nodeattest_cluster_api_released_total"); got[""] != 0 {
			t.Errorf("%s released %v", r.name, got)
		}
	}
	if got := counted(t, target, "nodeattest_cluster_api_records"); got[`machine="missing"`] != 0 || got[`machine="held"`] != 0 {
		t.Errorf("the controller of the target counts %v", got)
	}
}

// checkDenials holds the decisions in the audit log against the requests, of which none was denied.
func (f *movable) checkDenials(t *testing.T) {
	t.Helper()
	audited, denied, approved, challenges := 0, 0, 0, 0
	for _, r := range f.requests(t) {
		for _, c := range r.Status.Conditions {
			switch {
			case c.Type == certificatesv1.CertificateApproved:
				approved++
			case c.Type == certificatesv1.CertificateDenied && attest.ReasonChallenge == c.Reason:
				challenges++
			case c.Type == certificatesv1.CertificateDenied:
				denied++
				t.Errorf("request %s of %s was denied: %s: %s", r.Name, r.Spec.Username, c.Reason, c.Message)
			}
		}
	}
	for _, a := range f.audit(t) {
		if a.ObjectRef.Subresource == "approval" && a.ResponseStatus.Code == http.StatusOK {
			audited++
		}
	}
	t.Logf("%d decisions in the audit log: %d approved, %d challenged, %d denied", audited, approved, challenges, denied)
	if audited != approved+challenges+denied {
		t.Error("the audit log has another number of decisions")
	}
}
