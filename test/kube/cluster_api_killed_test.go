package kube

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/clusterapi"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// buildSweeping builds the controller as it is, but that it holds records against Machines each second.
func buildSweeping(t *testing.T) string {
	t.Helper()
	const minute, second = "sweepInterval = time.Minute", "sweepInterval = time.Second"
	dir := t.TempDir()
	source, err := filepath.Abs(filepath.Join(root, "kube", "clusterapi", "sweep.go"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(controlplane.Read(t, source))
	if strings.Count(text, minute) != 1 {
		t.Fatalf("%s does not have %q once", source, minute)
	}
	changed := controlplane.Write(t, dir, "sweep.go", []byte(strings.Replace(text, minute, second, 1)))
	overlay, err := json.Marshal(fields{"Replace": fields{source: changed}})
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "controller")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay="+controlplane.Write(t, dir, "overlay.json", overlay),
		"-o", program, "./cmd/node-attestation-controller")
	cmd.Dir, cmd.Env = filepath.Join(root, "kube"), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// herd is a Cluster whose Machines come and go without Cluster API's managers, and the records of their nodes.
type herd struct {
	*fleet
	random  *rand.Rand
	records *registry.Registry

	mu       sync.Mutex
	machines map[string]*unstructured.Unstructured // living ones, by node
	living   map[string]bool                       // their UIDs
	writes   int                                   // of AttestedNodes, since the last kill
	wrong    []string                              // released although the Machine is living
}

func newHerd(t *testing.T, machines int) *herd {
	t.Helper()
	h := &herd{fleet: &fleet{cluster: startJoinable(t), home: startCluster(t), version: "v1beta2"}, random: rand.New(rand.NewPCG(6, 7)),
		machines: map[string]*unstructured.Unstructured{}, living: map[string]bool{}}
	for _, part := range []string{"core", "bootstrap/kubeadm"} {
		for _, o := range documents(t, filepath.Join(managers(t), "crds", part)) {
			if o["kind"] == "CustomResourceDefinition" {
				h.home.make(t, o)
			}
		}
	}
	ref := fields{"apiGroup": infraGroup, "kind": "FakeCluster", "name": fleetCluster}
	h.home.make(t, object(coreGroup, h.version, "Cluster", fleetCluster, fields{"infrastructureRef": ref}))
	scope := membership.Scope{Cluster: h.clusterID(t), Road: attest.RoadEK, IdentityClass: "RSA-2048"}
	var err error
	if h.records, err = registry.New(scope, h.admin, h.admin, registry.Options{}); err != nil {
		t.Fatal(err)
	}
	for n := range machines {
		name := fmt.Sprintf("node-%d", n)
		m := h.create(t, name, nil)
		claim := membership.Claim{NodeName: name, Machine: herdIdentity(n), MachineUID: string(m.GetUID())}
		reserved, err := h.records.Reserve(t.Context(), claim, time.Now().Add(time.Minute))
		if err == nil {
			_, err = h.records.Bind(t.Context(), reserved, time.Now().Add(time.Hour), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func herdIdentity(n int) attest.Identity { return attest.Identity(fmt.Sprintf("ek:sha256:%064x", n)) }

// create makes the Machine of a node, of its name.
func (h *herd) create(t *testing.T, node string, notes fields) *unstructured.Unstructured {
	t.Helper()
	o := object(coreGroup, h.version, "Machine", node, fields{"clusterName": fleetCluster, "bootstrap": fields{"dataSecretName": node},
		"infrastructureRef": fields{"apiGroup": infraGroup, "kind": "FakeMachine", "name": node}})
	meta := o["metadata"].(fields)
	meta["labels"], meta["annotations"] = fields{coreGroup + "/cluster-name": fleetCluster}, notes
	m := h.home.make(t, o)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.machines[node], h.living[string(m.GetUID())] = m, true
	return m
}

// remove deletes the Machine of a node.
func (h *herd) remove(t *testing.T, node string) {
	t.Helper()
	h.mu.Lock()
	m := h.machines[node]
	delete(h.machines, node)
	delete(h.living, string(m.GetUID()))
	h.mu.Unlock()
	if err := h.home.admin.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// pick chooses a node whose Machine is living.
func (h *herd) pick(nodes int) (n int, name string) {
	for {
		n = h.random.IntN(nodes)
		if name = fmt.Sprintf("node-%d", n); h.machines[name] != nil {
			return n, name
		}
	}
}

// looks counts the writes of AttestedNodes, and notices each release of one whose Machine is living.
func (h *herd) looks(t *testing.T) {
	t.Helper()
	config := h.user(t, "admin", "system:masters")
	config.Timeout = 0
	c, err := client.NewWithWatch(config, client.Options{Scheme: h.scheme})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(t.Context(), new(v1alpha1.AttestedNodeList))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	go func() {
		for e := range w.ResultChan() {
			n, ok := e.Object.(*v1alpha1.AttestedNode)
			if !ok || e.Type != watch.Modified {
				continue
			}
			h.mu.Lock()
			h.writes++
			if n.Spec.State == v1alpha1.NodeResting && h.living[n.Spec.MachineUID] {
				h.wrong = append(h.wrong, n.Name)
			}
			h.mu.Unlock()
		}
	}()
}

// awaitWrites waits for n writes, or eight seconds. It returns how many there were.
func (h *herd) awaitWrites(n int) (seen int) {
	for deadline := time.Now().Add(8 * time.Second); ; time.Sleep(time.Millisecond) {
		h.mu.Lock()
		seen = h.writes
		h.mu.Unlock()
		if seen >= n || time.Now().After(deadline) {
			return seen
		}
	}
}

// left returns the bound nodes whose Machines are gone, and the living Machines that have no bound node.
func (h *herd) left(t *testing.T) (gone, lost []string) {
	t.Helper()
	records := h.attestedNodes(t)
	for name, n := range records {
		if n.Spec.State == v1alpha1.NodeBound && h.machines[name] == nil {
			gone = append(gone, name)
		}
	}
	for name, m := range h.machines {
		n := records[name]
		if n == nil || n.Spec.State != v1alpha1.NodeBound || n.Spec.MachineUID != string(m.GetUID()) || n.Spec.Pending != nil {
			lost = append(lost, name)
		}
	}
	return gone, lost
}

// TestSweepKilled deletes Machines and makes some again, while the controller is killed between its writes: in the
// end no record of a living Machine was released, none of a Machine that is gone is left, and the machines
// that are back have their nodes. With NODEATTEST_LONG the controller is killed 20 times.
func TestSweepKilled(t *testing.T) {
	t.Parallel()
	kills := 3
	if os.Getenv(longVar) != "" {
		kills = 20
	}
	machines := 40 + 4*kills // of which three are a tenth, also in the end
	program := buildSweeping(t)
	h := newHerd(t, machines)
	controlplane.Write(t, h.dir, "ek-roots.pem", controlplane.CertificatePEM(h.ca.Cert))
	r := h.decides(t, "controller", h.homeAccount(t), nil)
	r.kill(t)
	r.path, r.args = program, append(r.args, "--leader-elect=false")
	h.looks(t)
	if err := r.launch(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		for name, n := range h.attestedNodes(t) {
			if n.Annotations[clusterapi.AnnotationMachineUID] == "" {
				return fmt.Errorf("%s has no note of its Machine", name)
			}
		}
		return nil
	})
	for k := range kills {
		h.changes(t, machines)
		at := 1 + (3*k+h.random.IntN(3))%6 // of three writes for the adoption and its note, and three releases
		seen := h.awaitWrites(at)
		r.kill(t)
		gone, lost := h.left(t)
		t.Logf("kill %d after write %d of %d: %d records of gone Machines are left, %d wait for their adoption",
			k+1, seen, at, len(gone), len(lost))
		if err := r.launch(); err != nil {
			t.Fatal(err)
		}
		h.settles(t)
	}
	t.Logf("%d Machines deleted and %d replaced, %d kills: after each of them every record was soon that of its Machine",
		3*kills, kills, kills)
	r.checkLog(t)
}

// changes deletes three Machines, and replaces one by another of its name and machine.
func (h *herd) changes(t *testing.T, machines int) {
	t.Helper()
	h.mu.Lock()
	h.writes = 0
	h.mu.Unlock()
	for range 3 {
		_, name := h.pick(machines)
		h.remove(t, name)
	}
	n, name := h.pick(machines)
	h.remove(t, name)
	h.create(t, name, fields{clusterapi.AnnotationIdentity: string(herdIdentity(n))})
}

// settles waits until each record is that of its Machine, and looks for releases of living ones.
func (h *herd) settles(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		h.mu.Lock()
		wrong := slices.Clone(h.wrong)
		h.mu.Unlock()
		if len(wrong) != 0 {
			t.Fatalf("released although their Machines were there: %q", wrong)
		}
		if gone, lost := h.left(t); len(gone)+len(lost) > 0 {
			return fmt.Errorf("left: %q, not adopted: %q", gone, lost)
		}
		return nil
	})
}
