package membership

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/attest"
)

// NewMemoryRegistry returns an empty registry in the memory of one process, for tests and for programs
// that store its records themselves. Each call takes time in proportion to the number of records. After
// a restart the registry is empty, and any machine can claim any name. The error is that of
// [Scope.Check].
func NewMemoryRegistry(scope Scope, options RegistryOptions) (Registry, error) {
	return NewRegistry(scope, new(memoryStore), options)
}

// memoryStore is a [Store] in a slice. Its records are replaced, never changed.
type memoryStore struct {
	mu      sync.Mutex
	last    uint64    // the last version given
	records []*Record // in the order of their node names
}

// View calls f, one call at a time.
func (m *memoryStore) View(ctx context.Context, f func(Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return f(m)
}

// Update calls f, one call at a time. Nothing in memory fails after it has changed something,
// so nothing has to be undone.
func (m *memoryStore) Update(ctx context.Context, f func(Tx) error) error { return m.View(ctx, f) }

func (m *memoryStore) find(such func(*Record) bool) (*Record, error) {
	if n := slices.IndexFunc(m.records, such); n >= 0 {
		return m.records[n], nil
	}
	return nil, nil
}

func (m *memoryStore) ByName(nodeName string) (*Record, error) {
	return m.find(func(r *Record) bool { return r.NodeName == nodeName })
}

func (m *memoryStore) ByMachine(machine attest.Identity) (*Record, error) {
	return m.find(func(r *Record) bool { return r.Machine == machine && r.HoldsMachine() })
}

func (m *memoryStore) ByMachineUID(uid string) (*Record, error) {
	return m.find(func(r *Record) bool { return r.MachineUID == uid })
}

// place returns the index of the record of a name, or of its place, and the index of the next record.
func (m *memoryStore) place(nodeName string) (from, next int) {
	from, found := slices.BinarySearchFunc(m.records, nodeName, func(r *Record, name string) int { return strings.Compare(r.NodeName, name) })
	if found {
		return from, from + 1
	}
	return from, from
}

func (m *memoryStore) After(nodeName string, limit int) ([]*Record, error) {
	_, next := m.place(nodeName)
	return slices.Clone(m.records[next:min(next+limit, len(m.records))]), nil
}

func (m *memoryStore) Put(r Record) (*Record, error) {
	m.last++
	r.Version = strconv.FormatUint(m.last, 10)
	from, next := m.place(r.NodeName)
	m.records = slices.Replace(m.records, from, next, &r)
	return &r, nil
}

func (m *memoryStore) Drop(nodeName string) error {
	m.records = slices.DeleteFunc(m.records, func(r *Record) bool { return r.NodeName == nodeName })
	return nil
}

func (m *memoryStore) Due(now time.Time, limit int) (names []string, err error) {
	for _, r := range m.records {
		if until := r.Until(); len(names) < limit && !until.IsZero() && !now.Before(until) {
			names = append(names, r.NodeName)
		}
	}
	return names, nil
}
