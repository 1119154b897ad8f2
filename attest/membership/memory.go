package membership

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/attest"
)

// NewMemoryRegistry returns an empty registry in the memory of one process, for tests and for
// programs that keep its records themselves. It forgets everything when the process ends, and
// then anybody is the first user again. The error is that of [Scope.Check].
func NewMemoryRegistry(scope Scope, options RegistryOptions) (Registry, error) {
	return NewRegistry(scope, newMemoryStore(), options)
}

// memoryStore is a [Store] made of maps. A call touches the records that it names and those
// that have ended, never all of them. Records in it are never changed, only replaced.
type memoryStore struct {
	mu       sync.Mutex
	last     uint64 // the last version given
	names    map[string]*Record
	machines map[attest.Identity]*Record
	uids     map[string]*Record
	ends     []*Record // those that have an end, the earliest first
	sorted   []string  // the names in order, for lists; nil if they have changed since
	touched  int       // records that were looked at or changed
}

func newMemoryStore() *memoryStore {
	return &memoryStore{names: map[string]*Record{}, machines: map[attest.Identity]*Record{}, uids: map[string]*Record{}}
}

// View calls f, one call at a time.
func (m *memoryStore) View(_ context.Context, f func(Tx) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return f(m)
}

// Update calls f, one call at a time. Nothing in memory fails after it has changed something,
// so nothing has to be undone.
func (m *memoryStore) Update(_ context.Context, f func(Tx) error) error {
	return m.View(context.Background(), func(Tx) error { return f(m) })
}

func (m *memoryStore) touch(r *Record) (*Record, error) {
	if r != nil {
		m.touched++
	}
	return r, nil
}

func (m *memoryStore) ByName(nodeName string) (*Record, error) { return m.touch(m.names[nodeName]) }

func (m *memoryStore) ByMachine(machine attest.Identity) (*Record, error) {
	return m.touch(m.machines[machine])
}

func (m *memoryStore) ByMachineUID(uid string) (*Record, error) { return m.touch(m.uids[uid]) }

// After sorts the names if they have changed: lists are for human readers and seldom asked
// for.
func (m *memoryStore) After(nodeName string, limit int) ([]*Record, error) {
	if m.sorted == nil {
		m.sorted = slices.Sorted(maps.Keys(m.names))
	}
	from, found := slices.BinarySearch(m.sorted, nodeName)
	if found {
		from++
	}
	var records []*Record
	for _, name := range m.sorted[from:min(from+limit, len(m.sorted))] {
		m.touched++
		records = append(records, m.names[name])
	}
	return records, nil
}

func (m *memoryStore) Put(r Record) (*Record, error) {
	if m.names[r.NodeName] == nil {
		m.sorted = nil
	}
	m.forget(r.NodeName)
	m.last++
	m.touched++
	r.Version = strconv.FormatUint(m.last, 10)
	m.names[r.NodeName] = &r
	if r.HoldsMachine() {
		m.machines[r.Machine] = &r
	}
	if r.MachineUID != "" {
		m.uids[r.MachineUID] = &r
	}
	if place, _ := m.place(&r); !r.Until().IsZero() {
		m.ends = slices.Insert(m.ends, place, &r)
	}
	return &r, nil
}

func (m *memoryStore) Drop(nodeName string) error {
	m.sorted = nil
	m.forget(nodeName)
	return nil
}

// forget removes a record from everything.
func (m *memoryStore) forget(nodeName string) {
	r := m.names[nodeName]
	if r == nil {
		return
	}
	m.touched++
	delete(m.names, nodeName)
	if m.machines[r.Machine] == r { // another one may have taken it since
		delete(m.machines, r.Machine)
	}
	if m.uids[r.MachineUID] == r {
		delete(m.uids, r.MachineUID)
	}
	if place, there := m.place(r); there {
		m.ends = slices.Delete(m.ends, place, place+1)
	}
}

// place is where a record is among the ends, or would be.
func (m *memoryStore) place(r *Record) (int, bool) {
	return slices.BinarySearchFunc(m.ends, r, func(a, b *Record) int {
		return cmp.Or(a.Until().Compare(b.Until()), strings.Compare(a.NodeName, b.NodeName))
	})
}

func (m *memoryStore) Due(now time.Time, limit int) ([]string, error) {
	var names []string
	for _, r := range m.ends[:min(limit, len(m.ends))] {
		if now.Before(r.Until()) {
			break
		}
		m.touched++
		names = append(names, r.NodeName)
	}
	return names, nil
}
