package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/refusal"
)

// replicas is how many registries share the API server, each with a client of its own.
const replicas = 4

// TestRegistry runs the registry against a real API server.
func TestRegistry(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.applyCRDs(t)
	r := c.replicas(t)
	t.Run("conformance", func(t *testing.T) {
		attesttest.RunRegistry(t, func(t testing.TB, now func() time.Time) []membership.Registry {
			c.clear(t)
			return r.handles(t, now)
		})
	})
	t.Run("calls of a join", func(t *testing.T) { testCalls(t, c, r) })
	t.Run("many machines race", func(t *testing.T) { testRace(t, c, r) })
	t.Run("rules of the resources", func(t *testing.T) { testRules(t, c) })
	t.Run("without the resources", func(t *testing.T) { testNoResources(t, c, r) })
}

// replicaSet are the clients of the replicas.
type replicaSet []*counting

func (c *cluster) replicas(t *testing.T) replicaSet {
	t.Helper()
	var clients replicaSet
	for range replicas {
		clients = append(clients, &counting{Client: c.client(t, c.user(t, "admin", "system:masters"))})
	}
	return clients
}

// handles makes a registry of each client.
func (r replicaSet) handles(t testing.TB, now func() time.Time) []membership.Registry {
	t.Helper()
	var handles []membership.Registry
	for _, each := range r {
		h, err := registry.New(membership.Scope{Cluster: "cluster-1"}, each, each, registry.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, h)
	}
	return handles
}

// calls returns how many reads and writes there were since the last call.
func (r replicaSet) calls() (reads, writes int64) {
	for _, each := range r {
		reads += each.reads.Swap(0)
		writes += each.writes.Swap(0)
	}
	return reads, writes
}

// join is what membership.FirstUse does at an answer.
func join(ctx context.Context, h membership.Registry, c membership.Claim, lastEnd time.Time) (*membership.Record, error) {
	record, err := h.Lookup(ctx, c.NodeName)
	if err != nil {
		return nil, err
	}
	if err := (membership.Held{Name: record}).Admit(&c, time.Now()); err != nil {
		return nil, err
	}
	if record == nil || record.Claim != c {
		if record, err = h.Reserve(ctx, c, time.Now().Add(time.Minute)); err != nil {
			return nil, err
		}
	}
	return h.Bind(ctx, record, lastEnd, nil)
}

func claimOf(node, machine int) membership.Claim {
	return membership.Claim{
		NodeName: fmt.Sprintf("node-%d", node), Machine: attest.Identity(fmt.Sprintf("test:%d", machine)),
		MachineUID: fmt.Sprintf("uid-%d", machine), ProviderID: fmt.Sprintf("test://%d", machine),
	}
}

// testCalls counts the calls of a join: the reads of its answer, and its writes.
func testCalls(t *testing.T, c *cluster, r replicaSet) {
	c.clear(t)
	h := r.handles(t, time.Now)[0]
	end := time.Now().Add(time.Hour)
	for _, step := range []struct {
		name          string
		end           time.Time
		reads, writes int64
	}{
		{"the first", end, 1, 4}, // the name, which is free: the objects of a newcomer are made unseen
		{"a verification again", end, 2, 0},
		{"the next certificate", end.Add(time.Hour), 1, 1},
	} {
		r.calls()
		began := time.Now()
		if _, err := join(t.Context(), h, claimOf(1, 1), step.end); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		reads, writes := r.calls()
		t.Logf("%s: %d reads, %d writes, %s", step.name, reads, writes, took.Round(time.Millisecond))
		if reads != step.reads || writes != step.writes {
			t.Errorf("%s: %d reads and %d writes, want %d and %d", step.name, reads, writes, step.reads, step.writes)
		}
	}
}

// testRace has 500 machines race for 250 names, three tries each, on four replicas.
func testRace(t *testing.T, c *cluster, r replicaSet) {
	c.clear(t)
	handles := r.handles(t, time.Now)
	const machines, names, tries, at = 500, 250, 3, 32
	r.calls()
	began := time.Now()
	var joined, refused, retried atomic.Int64
	work := make(chan int)
	var done sync.WaitGroup
	for range at {
		done.Go(func() {
			for i := range work {
				for try := range tries {
					name := (i*(try+1)*7 + try*13) % names
					_, err := join(t.Context(), handles[(i+try)%replicas], claimOf(name, i), time.Now().Add(time.Hour))
					switch {
					case err == nil:
						joined.Add(1)
					case errors.Is(err, refusal.ErrRetry):
						retried.Add(1)
					case errors.Is(err, attest.Check("registry-name")), errors.Is(err, attest.Check("registry-machine")), errors.Is(err, attest.Check("registry-machine-uid")):
						refused.Add(1)
					default:
						t.Errorf("machine %d as node %d: %v", i, name, err)
					}
				}
			}
		})
	}
	for i := range machines {
		work <- i
	}
	close(work)
	done.Wait()
	took := time.Since(began)
	reads, writes := r.calls()
	t.Logf("%d machines × %d tries for %d names: %d joined, %d refused, %d to be tried again, in %s; %d reads, %d writes",
		machines, tries, names, joined.Load(), refused.Load(), retried.Load(), took.Round(time.Millisecond), reads, writes)
	c.checkOneToOne(t)
}

// checkOneToOne lists the bound records, and compares pointers with names.
func (c *cluster) checkOneToOne(t *testing.T) {
	t.Helper()
	var nodes v1alpha1.AttestedNodeList
	var machines v1alpha1.AttestedMachineList
	var machineUIDs v1alpha1.AttestedMachineUIDList
	for _, list := range []client.ObjectList{&nodes, &machines, &machineUIDs} {
		if err := c.admin.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	pointer := map[string]string{}
	for _, m := range machines.Items {
		if m.Name != v1alpha1.PointerName(m.Spec.Machine) {
			t.Errorf("the pointer of %s is called %s", m.Spec.Machine, m.Name)
		}
		pointer[m.Spec.Machine] = m.Spec.NodeName
	}
	for _, m := range machineUIDs.Items {
		if m.Name != v1alpha1.PointerName(m.Spec.MachineUID) {
			t.Errorf("the pointer of %s is called %s", m.Spec.MachineUID, m.Name)
		}
		pointer["UID "+m.Spec.MachineUID] = m.Spec.NodeName
	}
	bound, uids := map[string]string{}, map[string]string{}
	for _, n := range nodes.Items {
		s := &n.Spec
		if s.State != v1alpha1.NodeBound {
			continue
		}
		if other, ok := bound[s.Machine]; ok {
			t.Errorf("machine %s is both %s and %s", s.Machine, other, n.Name)
		}
		if other, ok := uids[s.MachineUID]; ok {
			t.Errorf("Machine %s is both %s and %s", s.MachineUID, other, n.Name)
		}
		if to, uidTo := pointer[s.Machine], pointer["UID "+s.MachineUID]; to != n.Name || uidTo != n.Name {
			t.Errorf("machine %s and Machine %s of node %s point to %q and %q", s.Machine, s.MachineUID, n.Name, to, uidTo)
		}
		bound[s.Machine], uids[s.MachineUID] = n.Name, n.Name
	}
	t.Logf("%d names bound, one to one", len(bound))
	if len(bound) == 0 {
		t.Error("no record was bound")
	}
}

// testNoResources takes the definitions away: no answer is taken for an empty registry.
func testNoResources(t *testing.T, c *cluster, r replicaSet) {
	c.clear(t)
	h := r.handles(t, time.Now)[0]
	c.deleteCRDs(t)
	for _, list := range []client.ObjectList{&v1alpha1.AttestedNodeList{}, &v1alpha1.AttestedMachineList{}, &v1alpha1.AttestedMachineUIDList{}} {
		eventually(t, func() error {
			if err := c.admin.List(t.Context(), list); err == nil || apierrors.IsServiceUnavailable(err) {
				return fmt.Errorf("the server still lists %T: %v", list, err)
			}
			return nil
		})
	}
	_, err1 := h.Lookup(t.Context(), "node-1")
	_, err2 := h.LookupMachine(t.Context(), "test:1")
	_, err3 := h.Reserve(t.Context(), claimOf(1, 1), time.Now().Add(time.Minute))
	for what, err := range map[string]error{"Lookup": err1, "LookupMachine": err2, "Reserve": err3} {
		if err == nil || csr.Decide(err).Verdict != csr.VerdictRetry {
			t.Errorf("%s: %v, want an error that is no answer", what, err)
		}
	}
	t.Logf("Lookup: %v", err1)
}
