package clusterapi

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/refusal"
)

// poolFleet is a management cluster with a MachinePool, its KubeadmConfig and a Machine.
type poolFleet struct {
	version                            string
	pool, config, machine, machinesOwn *unstructured.Unstructured
	ofPool                             *unstructured.Unstructured // a Machine that the provider made for the pool
}

func newPoolFleet(version string) *poolFleet {
	return &poolFleet{version: version, pool: poolOf(version, "pool", 5), config: poolConfigOf(version, "pool", "abcdef"),
		machine: machineOf(version, "one"), machinesOwn: configOf(version, "one", "uvwxyz")}
}

func (f *poolFleet) objects() []client.Object {
	all := []client.Object{clusterOf(f.version, nil)}
	for _, o := range []*unstructured.Unstructured{f.pool, f.config, f.machine, f.machinesOwn, f.ofPool} {
		if o != nil {
			all = append(all, o)
		}
	}
	return all
}

// makesMachines has the provider make a Machine for the pool.
func (f *poolFleet) makesMachines(t *testing.T) {
	f.ofPool = machineOf(f.version, "pool-0")
	unstructured.RemoveNestedField(f.ofPool.Object, "spec", "bootstrap", "configRef")
	set(t, f.ofPool, "", "spec", "bootstrap", "dataSecretName")
	f.ofPool.SetOwnerReferences(ownedBy(f.version, poolKind, "pool"))
}

// inventory is one that admits machines of the pool.
func (f *poolFleet) inventory(t *testing.T, record types.UID) *Inventory {
	i := newInventory(t, f.version, recorded(t, record), f.objects(), nil)
	i.slots = &Slots{Nodes: objectstore.New(), inventory: i}
	return i
}

// TestPoolMachine finds the MachinePool of a request, and changes one thing at a time.
func TestPoolMachine(t *testing.T) {
	slot := testUID("pool") + "/" + types.UID(identity(0))
	ids := func(f *poolFleet, t *testing.T, all ...any) { set(t, f.pool, all, "spec", "providerIDList") }
	for name, row := range map[string]struct {
		by     csr.User
		claims string
		record types.UID
		token  string // remembered
		change func(t *testing.T, f *poolFleet)
		found  csr.Machine
		says   string // of csr.ErrNoMachine
		retry  string
	}{
		"its token":               {by: bootstrap, found: csr.Machine{Name: "fleet/pool", BootstrapReady: true}},
		"its token, with a claim": {by: bootstrap, claims: "metal://7", found: csr.Machine{Name: "fleet/pool", BootstrapReady: true}},
		"no boot data yet": {by: bootstrap, found: csr.Machine{Name: "fleet/pool"}, change: func(_ *testing.T, f *poolFleet) {
			unstructured.RemoveNestedField(f.pool.Object, "spec", "template", "spec", "bootstrap", "dataSecretName")
		}},
		"a kind": {by: bootstrap, found: csr.Machine{Name: "fleet/pool", Provider: "tpm", BootstrapReady: true}, change: func(_ *testing.T, f *poolFleet) {
			f.pool.SetAnnotations(map[string]string{AnnotationKind: "tpm"})
		}},
		"another cluster": {by: bootstrap, says: "of MachinePool pool of another cluster", change: func(_ *testing.T, f *poolFleet) {
			f.pool.SetLabels(map[string]string{clusterLabel: "other"})
		}},
		"another clusterName": {by: bootstrap, says: "another cluster", change: func(t *testing.T, f *poolFleet) { set(t, f.pool, "other", "spec", "clusterName") }},
		"another config": {by: bootstrap, says: "is not the owner", change: func(t *testing.T, f *poolFleet) {
			set(t, f.pool, "one", "spec", "template", "spec", "bootstrap", "configRef", "name")
		}},
		"another kind of config": {by: bootstrap, says: "is not the owner", change: func(t *testing.T, f *poolFleet) {
			set(t, f.pool, "RKE2Config", "spec", "template", "spec", "bootstrap", "configRef", "kind")
		}},
		"a pool that is being deleted":   {by: bootstrap, says: "MachinePool pool is being deleted", change: func(_ *testing.T, f *poolFleet) { deleted(f.pool) }},
		"a config that is being deleted": {by: bootstrap, says: "is being deleted", change: func(_ *testing.T, f *poolFleet) { deleted(f.config) }},
		"a pool that is gone":            {by: bootstrap, says: "no MachinePool has the UID", change: func(_ *testing.T, f *poolFleet) { f.pool = nil }},
		"a pool made again":              {by: bootstrap, says: "no MachinePool has the UID", change: func(_ *testing.T, f *poolFleet) { f.pool.SetUID("later") }},
		"an owner of another group": {by: bootstrap, says: "controlled by no Machine", change: func(_ *testing.T, f *poolFleet) {
			owners := ownedBy(f.version, poolKind, "pool")
			owners[0].APIVersion = "example.com/v1"
			f.config.SetOwnerReferences(owners)
		}},
		"an ID of a pool and of a Machine": {by: bootstrap, says: "of two Machines", change: func(_ *testing.T, f *poolFleet) { f.machinesOwn = configOf(f.version, "one", "abcdef") }},
		"an identity": {by: bootstrap, retry: AnnotationIdentity, change: func(_ *testing.T, f *poolFleet) {
			f.pool.SetAnnotations(map[string]string{AnnotationIdentity: "ek:sha256:00"})
		}},
		"no evidence":       {by: bootstrap, retry: AnnotationEvidence, change: func(_ *testing.T, f *poolFleet) { f.pool.SetAnnotations(map[string]string{AnnotationEvidence: "none"}) }},
		"the insecure kind": {by: bootstrap, retry: AnnotationKind, change: func(_ *testing.T, f *poolFleet) { f.pool.SetAnnotations(map[string]string{AnnotationKind: "insecure"}) }},

		"a token that was replaced": {by: bootstrap, token: "abcdef", found: csr.Machine{Name: "fleet/pool", BootstrapReady: true}, change: func(_ *testing.T, f *poolFleet) {
			f.config = poolConfigOf(f.version, "pool", "zzzzzz")
		}},
		"one that was replaced before the start": {by: bootstrap, says: "had before this program started, the ones with the label", change: func(_ *testing.T, f *poolFleet) {
			f.config = poolConfigOf(f.version, "pool", "zzzzzz")
		}},
		"one that was replaced, the pool has another config": {by: bootstrap, token: "abcdef", says: "is not the owner", change: func(t *testing.T, f *poolFleet) {
			f.config = nil
			set(t, f.pool, "later", "spec", "template", "spec", "bootstrap", "configRef", "name")
		}},
		"one that was replaced, the pool is being deleted": {by: bootstrap, token: "abcdef", says: "is being deleted", change: func(_ *testing.T, f *poolFleet) {
			f.config = nil
			deleted(f.pool)
		}},
		"one that was replaced, the pool is made again": {by: bootstrap, token: "abcdef", says: "no MachinePool has the UID", change: func(_ *testing.T, f *poolFleet) {
			f.config = poolConfigOf(f.version, "pool", "zzzzzz")
			f.pool.SetUID("later")
		}},
		"one that was replaced, and is a Machine's now": {by: bootstrap, token: "abcdef", says: "of two Machines", change: func(_ *testing.T, f *poolFleet) {
			f.config, f.machinesOwn = poolConfigOf(f.version, "pool", "zzzzzz"), configOf(f.version, "one", "abcdef")
		}},

		"its slot":                            {by: node, record: slot, found: csr.Machine{Name: "fleet/pool", UID: string(slot), BootstrapReady: true}},
		"its slot, the pool is being deleted": {by: node, record: slot, found: csr.Machine{Name: "fleet/pool", UID: string(slot), BootstrapReady: true}, change: func(_ *testing.T, f *poolFleet) { deleted(f.pool) }},
		"its slot, the pool is gone":          {by: node, record: slot, says: "no MachinePool has the UID", change: func(_ *testing.T, f *poolFleet) { f.pool = nil }},
		"its slot, the pool is made again":    {by: node, record: slot, says: "no MachinePool has the UID", change: func(_ *testing.T, f *poolFleet) { f.pool.SetUID("later") }},
		"its slot, another cluster":           {by: node, record: slot, says: "another cluster", change: func(_ *testing.T, f *poolFleet) { f.pool.SetLabels(nil) }},

		"a listed provider ID":            {by: bootstrap, claims: "metal://7", found: csr.Machine{Name: "fleet/pool", ProviderID: "metal://7", BootstrapReady: true}, change: func(t *testing.T, f *poolFleet) { ids(f, t, "metal://6", "metal://7") }},
		"one that is not listed yet":      {by: bootstrap, claims: "metal://7", retry: "spec.providerIDList", change: func(t *testing.T, f *poolFleet) { ids(f, t, "metal://6") }},
		"one that is not listed any more": {by: node, record: slot, claims: "metal://7", retry: "spec.providerIDList", change: func(t *testing.T, f *poolFleet) { ids(f, t, "metal://6") }},

		"its Machine":                 {by: bootstrap, claims: "metal://pool-0", found: csr.Machine{Name: "fleet/pool-0", UID: "uid-of-pool-0", ProviderID: "metal://pool-0", BootstrapReady: true}, change: func(t *testing.T, f *poolFleet) { f.makesMachines(t) }},
		"its Machine, no claim":       {by: bootstrap, says: "claims no provider ID, by which its Machine", change: func(t *testing.T, f *poolFleet) { f.makesMachines(t) }},
		"no Machine of it yet":        {by: bootstrap, claims: "metal://pool-1", retry: "no Machine of MachinePool pool has provider ID", change: func(t *testing.T, f *poolFleet) { f.makesMachines(t) }},
		"a Machine that is not of it": {by: bootstrap, claims: "metal://one", retry: "no Machine of MachinePool pool has provider ID", change: func(t *testing.T, f *poolFleet) { f.makesMachines(t) }},
		"a Machine that is being deleted": {by: bootstrap, claims: "metal://pool-0", says: "Machine pool-0 is being deleted", change: func(t *testing.T, f *poolFleet) {
			f.makesMachines(t)
			deleted(f.ofPool)
		}},
		"its Machine, of another cluster": {by: bootstrap, claims: "metal://pool-0", says: "is not the one of MachinePool", change: func(t *testing.T, f *poolFleet) {
			f.makesMachines(t)
			f.ofPool.SetLabels(nil)
		}},
	} {
		for _, version := range versions {
			t.Run(name+"/"+version, func(t *testing.T) {
				f := newPoolFleet(version)
				if row.change != nil {
					row.change(t, f)
				}
				i := f.inventory(t, row.record)
				if row.token != "" {
					i.tokens.saw(poolConfigOf(version, "pool", row.token))
				}
				m, err := i.Machine(t.Context(), question(t, row.by, row.claims))
				switch {
				case row.says != "":
					if m != nil || !errors.Is(err, csr.ErrNoMachine) || !strings.Contains(err.Error(), row.says) {
						t.Errorf("got %+v, %v, want no Machine, and %q", m, err, row.says)
					}
				case row.retry != "":
					if m != nil || !errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), row.retry) {
						t.Errorf("got %+v, %v, want a retry, and %q", m, err, row.retry)
					}
				case err != nil || fmt.Sprintf("%+v", *m) != fmt.Sprintf("%+v", row.found):
					t.Errorf("got %+v, %v, want %+v", m, err, row.found)
				}
			})
		}
	}
}

// TestPoolOldCache has the API server say otherwise than the cache about a Machine of the pool.
func TestPoolOldCache(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, m *unstructured.Unstructured){
		"another Machine": func(_ *testing.T, m *unstructured.Unstructured) { m.SetUID("later") },
		"of another pool": func(_ *testing.T, m *unstructured.Unstructured) {
			m.SetOwnerReferences(ownedBy("v1beta2", poolKind, "other"))
		},
		"of no pool":          func(_ *testing.T, m *unstructured.Unstructured) { m.SetOwnerReferences(nil) },
		"another provider ID": func(t *testing.T, m *unstructured.Unstructured) { set(t, m, "metal://pool-1", "spec", "providerID") },
	} {
		f := newPoolFleet("v1beta2")
		f.makesMachines(t)
		old := make([]client.Object, 0, 6)
		for _, o := range f.objects() {
			old = append(old, o.DeepCopyObject().(client.Object))
		}
		change(t, f.ofPool)
		i := newInventory(t, "v1beta2", recorded(t, ""), f.objects(), old)
		i.slots = &Slots{Nodes: objectstore.New(), inventory: i}
		if m, err := i.Machine(t.Context(), question(t, bootstrap, "metal://pool-0")); m != nil || !errors.Is(err, csr.ErrNoMachine) {
			t.Errorf("%s: got %+v, %v", name, m, err)
		}
	}
}

// TestReplacedTokens has machines ask with a token that stands in no KubeadmConfig any more, more often than
// the API server may be asked for KubeadmConfigs.
func TestReplacedTokens(t *testing.T) {
	f := newPoolFleet("v1beta2")
	f.config = nil
	i := f.inventory(t, "")
	i.tokens.saw(poolConfigOf("v1beta2", "pool", "abcdef"))
	for range 2 * listBurst {
		testkit.Must(i.Machine(t.Context(), question(t, bootstrap, "")))
	}
}

// TestPoolTokens remembers a bounded number of token IDs, the latest ones, and no Machine's.
func TestPoolTokens(t *testing.T) {
	var tokens poolTokens
	tokens.saw(configOf("v1beta2", "one", "abcdef"))
	tokens.saw("text")
	if _, known := tokens.find("abcdef"); known {
		t.Error("a Machine's token is remembered")
	}
	for n := range tokensKept + 10 {
		tokens.remember(fmt.Sprintf("%06d", n), "pool", testUID("pool"))
	}
	_, oldest := tokens.find("000009")
	_, kept := tokens.find("000010")
	if len(tokens.by) != tokensKept || oldest || !kept {
		t.Errorf("%d are remembered; the tenth %t, the eleventh %t", len(tokens.by), oldest, kept)
	}
}

// TestPoolFaults has each read of the management cluster fail in turn: no fault finds a machine, or says that
// it does not exist.
func TestPoolFaults(t *testing.T) {
	f := newPoolFleet("v1beta2")
	slot := testUID("pool") + "/" + types.UID(identity(0))
	for name, by := range map[string]csr.User{"token": bootstrap, "slot": node} {
		for n, reads := 1, 1; n <= reads; n++ {
			i := f.inventory(t, slot)
			i.failing(t, n)
			if m, err := i.Machine(t.Context(), question(t, by, "")); m != nil || !errors.Is(err, errFault) || errors.Is(err, csr.ErrNoMachine) {
				t.Errorf("%s, read %d fails: got %+v, %v", name, n, m, err)
			}
			whole := f.inventory(t, slot)
			done := whole.failing(t, 0)
			testkit.Must(whole.Machine(t.Context(), question(t, by, "")))
			reads = *done
		}
	}
}
