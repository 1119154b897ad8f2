package membership

import (
	"container/heap"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/attest"
)

// NewMemoryRegistry returns an empty registry in the memory of one process, for tests
// and for programs that keep its records themselves. It forgets everything with the
// process, and then anybody is the first user again. The error is that of [Scope.Check].
func NewMemoryRegistry(scope Scope, options RegistryOptions) (*StoreRegistry, error) {
	return NewRegistry(scope, newMemoryStore(), options)
}

// memoryStore is a [Store] of maps. A call touches the records that it names and those
// that have come to their end, never all of them. Records in it are never changed, only
// replaced.
type memoryStore struct {
	mu       sync.Mutex
	last     uint64 // the last version given
	names    map[string]*memoryEntry
	machines map[attest.Identity]*memoryEntry
	uids     map[string]*memoryEntry
	ends     endHeap
	sorted   []string // the names in order, for lists; nil where they have changed since
	touched  int      // records that were looked at or changed
}

// memoryEntry is a record and its place among those that have an end.
type memoryEntry struct {
	record *Record
	until  time.Time
	place  int // in the heap; -1 where the record has no end
}

func newMemoryStore() *memoryStore {
	return &memoryStore{names: map[string]*memoryEntry{}, machines: map[attest.Identity]*memoryEntry{}, uids: map[string]*memoryEntry{}}
}

// View calls f, alone.
func (m *memoryStore) View(_ context.Context, f func(Reader) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return f(m)
}

// Update calls f, alone. Nothing in memory fails after it has changed something, so
// nothing has to be undone.
func (m *memoryStore) Update(_ context.Context, f func(Writer) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return f(m)
}

func (m *memoryStore) of(e *memoryEntry) (*Record, error) {
	if e == nil {
		return nil, nil
	}
	m.touched++
	return e.record, nil
}

func (m *memoryStore) ByName(nodeName string) (*Record, error) { return m.of(m.names[nodeName]) }

func (m *memoryStore) ByMachine(machine attest.Identity) (*Record, error) {
	return m.of(m.machines[machine])
}

func (m *memoryStore) ByMachineUID(uid string) (*Record, error) { return m.of(m.uids[uid]) }

// After sorts the names if they have changed: a list is for people, and asked for
// seldom.
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
		records = append(records, m.names[name].record)
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
	e := &memoryEntry{record: &r, until: r.Until(), place: -1}
	m.names[r.NodeName] = e
	if r.HoldsMachine() {
		m.machines[r.Machine] = e
	}
	if r.MachineUID != "" {
		m.uids[r.MachineUID] = e
	}
	if !e.until.IsZero() {
		heap.Push(&m.ends, e)
	}
	return &r, nil
}

func (m *memoryStore) Drop(nodeName string) error {
	m.sorted = nil
	m.forget(nodeName)
	return nil
}

// forget takes a record out of all maps.
func (m *memoryStore) forget(nodeName string) {
	e := m.names[nodeName]
	if e == nil {
		return
	}
	m.touched++
	delete(m.names, nodeName)
	if m.machines[e.record.Machine] == e { // another one may have taken it since
		delete(m.machines, e.record.Machine)
	}
	if m.uids[e.record.MachineUID] == e {
		delete(m.uids, e.record.MachineUID)
	}
	if e.place >= 0 {
		heap.Remove(&m.ends, e.place)
	}
}

func (m *memoryStore) Due(now time.Time, limit int) ([]string, error) {
	// The earliest ends stand at the top, each child after its parent: those that are
	// due can be found without a look at any that is not, but for their children.
	var names []string
	for next := []int{0}; len(next) > 0 && len(names) < limit; next = next[1:] {
		i := next[0]
		if i >= len(m.ends) || now.Before(m.ends[i].until) {
			continue
		}
		m.touched++
		names = append(names, m.ends[i].record.NodeName)
		next = append(next, 2*i+1, 2*i+2)
	}
	return names, nil
}

// endHeap has the entry that ends first on top (container/heap).
type endHeap []*memoryEntry

func (h endHeap) Len() int           { return len(h) }
func (h endHeap) Less(i, j int) bool { return h[i].until.Before(h[j].until) }
func (h endHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push is called by container/heap alone.
func (h *endHeap) Push(x any) {
	e := x.(*memoryEntry)
	e.place = len(*h)
	*h = append(*h, e)
}

// Pop is called by container/heap alone.
func (h *endHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.place = -1
	return e
}
