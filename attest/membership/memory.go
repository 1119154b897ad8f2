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

// NewMemoryRegistry returns an empty registry in the memory of one process, for tests and for
// programs that keep its records themselves. Each call looks through all records. It forgets
// everything when the process ends, and then anybody is the first user again. The error is that
// of [Scope.Check].
func NewMemoryRegistry(scope Scope, options RegistryOptions) (Registry, error) {
	return NewRegistry(scope, new(memoryStore), options)
}

// memoryStore is a [Store] made of a slice. Records in it are never changed, only replaced.
type memoryStore struct {
	mu      sync.Mutex
	last    uint64    // the last version given
	records []*Record // in the order of their node names
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

// place is where the record of a name is, or would be.
func (m *memoryStore) place(nodeName string) (int, bool) {
	return slices.BinarySearchFunc(m.records, nodeName, func(r *Record, name string) int { return strings.Compare(r.NodeName, name) })
}

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

func (m *memoryStore) After(nodeName string, limit int) ([]*Record, error) {
	from, found := m.place(nodeName)
	if found {
		from++
	}
	return slices.Clone(m.records[from:min(from+limit, len(m.records))]), nil
}

func (m *memoryStore) Put(r Record) (*Record, error) {
	m.last++
	r.Version = strconv.FormatUint(m.last, 10)
	place, found := m.place(r.NodeName)
	if found {
		m.records[place] = &r
	} else {
		m.records = slices.Insert(m.records, place, &r)
	}
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
