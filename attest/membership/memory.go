package membership

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/attest"
)

// NewMemoryRegistry returns an empty registry in the memory of one process, for tests and for programs
// that store its records themselves. After a restart the registry is empty, and any machine can claim any
// name. The error is that of [Scope.Check].
func NewMemoryRegistry(scope Scope, options RegistryOptions) (Registry, error) {
	return NewRegistry(scope, newMemoryStore(), options)
}

// turns holds an element while a call has its turn.
type turns chan struct{}

func newTurns() turns { return make(turns, 1) }

// exclusive calls f while no other call has its turn. Waiting for another call ends with ctx.
func (t turns) exclusive(ctx context.Context, f func() error) error {
	select {
	case t <- struct{}{}:
		defer func() { <-t }()
		return f()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// memoryStore is a [Store] in memory. Its records are replaced, never changed.
type memoryStore struct {
	turns // of the calls that write

	mu      sync.RWMutex // of records
	records *records
}

func newMemoryStore() *memoryStore {
	return &memoryStore{turns: newTurns(), records: newRecords()}
}

// View calls f with the records as they are at one moment.
func (m *memoryStore) View(ctx context.Context, f func(Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return f(&memoryTx{records: m.records})
}

// Update calls f, one call at a time.
func (m *memoryStore) Update(ctx context.Context, f func(Tx) error) error {
	return m.exclusive(ctx, func() error {
		return m.update(ctx, f, func([]change) error { return nil })
	})
}

// update collects the changes of f, has them saved, and makes them if that succeeds.
func (m *memoryStore) update(ctx context.Context, f func(Tx) error, save func([]change) error) error {
	var t *memoryTx
	err := m.View(ctx, func(r Tx) error { t = r.(*memoryTx); return f(t) })
	if err = cmp.Or(err, ctx.Err()); err != nil || len(t.changes) == 0 {
		return err
	}
	if err := save(t.changes); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range t.changes {
		m.records.change(c)
	}
	return nil
}

// change is one change of a transaction: it stores a record, or removes that of a name.
type change struct {
	Put  *Record `json:",omitempty"`
	Drop string  `json:",omitempty"`
}

// memoryTx is a transaction of a memoryStore. It collects changes, and finds the records as they were
// before them.
type memoryTx struct {
	*records
	changes []change
	puts    uint64
}

func (t *memoryTx) Put(r Record) (*Record, error) {
	t.puts++
	r.Version = strconv.FormatUint(t.last+t.puts, 10)
	t.changes = append(t.changes, change{Put: &r})
	return &r, nil
}

func (t *memoryTx) Drop(nodeName string) error {
	t.changes = append(t.changes, change{Drop: nodeName})
	return nil
}

// records are found by each of their keys.
type records struct {
	last     uint64    // the greatest version given
	byName   []*Record // in the order of their node names
	byEnd    []*Record // those with an end, the earliest first
	machines map[attest.Identity]*Record
	uids     map[string]*Record
}

func newRecords() *records {
	return &records{machines: map[attest.Identity]*Record{}, uids: map[string]*Record{}}
}

func compareNames(r *Record, nodeName string) int { return strings.Compare(r.NodeName, nodeName) }

func compareEnds(a, b *Record) int {
	return cmp.Or(a.Until().Compare(b.Until()), compareNames(a, b.NodeName))
}

func (s *records) ByName(nodeName string) (*Record, error) {
	if n, found := slices.BinarySearchFunc(s.byName, nodeName, compareNames); found {
		return s.byName[n], nil
	}
	return nil, nil
}

func (s *records) ByMachine(machine attest.Identity) (*Record, error) {
	return s.machines[machine], nil
}

func (s *records) ByMachineUID(uid string) (*Record, error) { return s.uids[uid], nil }

func (s *records) After(nodeName string, limit int) ([]*Record, error) {
	next, found := slices.BinarySearchFunc(s.byName, nodeName, compareNames)
	if found {
		next++
	}
	return slices.Clone(s.byName[next:min(next+limit, len(s.byName))]), nil
}

func (s *records) Due(now time.Time, limit int) (names []string, err error) {
	for _, r := range s.byEnd {
		if len(names) == limit || now.Before(r.Until()) {
			break
		}
		names = append(names, r.NodeName)
	}
	return names, nil
}

// change makes a change. Another record with the machine or Machine UID of a stored record is no longer
// found by it.
func (s *records) change(c change) {
	nodeName := c.Drop
	if c.Put != nil {
		nodeName = c.Put.NodeName
	}
	n, found := slices.BinarySearchFunc(s.byName, nodeName, compareNames)
	if found {
		s.remove(n)
	}
	if c.Put != nil {
		s.insert(n, c.Put)
	}
}

func (s *records) remove(n int) {
	r := s.byName[n]
	s.byName = slices.Delete(s.byName, n, n+1)
	if s.machines[r.Machine] == r {
		delete(s.machines, r.Machine)
	}
	if s.uids[r.MachineUID] == r {
		delete(s.uids, r.MachineUID)
	}
	if end, found := slices.BinarySearchFunc(s.byEnd, r, compareEnds); found {
		s.byEnd = slices.Delete(s.byEnd, end, end+1)
	}
}

func (s *records) insert(n int, r *Record) {
	s.byName = slices.Insert(s.byName, n, r)
	if r.HoldsMachine() {
		s.machines[r.Machine] = r
	}
	if r.MachineUID != "" {
		s.uids[r.MachineUID] = r
	}
	if !r.Until().IsZero() {
		end, _ := slices.BinarySearchFunc(s.byEnd, r, compareEnds)
		s.byEnd = slices.Insert(s.byEnd, end, r)
	}
	s.last = max(s.last, versionOf(r))
}
