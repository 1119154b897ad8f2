package attest

import (
	"context"
	"sync"
	"time"
)

// MemoryRegistry is a [Registry] in the memory of one process, for tests and for
// programs that keep its records themselves. It forgets everything with the
// process, and then anybody is the first user again.
type MemoryRegistry struct {
	scope RegistryScope
	now   func() time.Time

	mu    sync.Mutex
	table *registryTable
}

// NewMemoryRegistry returns an empty registry. Its clock is now; nil means
// time.Now. A scope that is no scope is an error.
func NewMemoryRegistry(scope RegistryScope, now func() time.Time) (*MemoryRegistry, error) {
	if err := scope.check(); err != nil {
		return nil, err
	}
	if now == nil {
		now = time.Now
	}
	return &MemoryRegistry{scope: scope, now: now, table: newRegistryTable()}, nil
}

// Scope returns the scope that the registry was made with.
func (m *MemoryRegistry) Scope() RegistryScope { return m.scope }

// use calls f with the table, alone.
func (m *MemoryRegistry) use(ctx context.Context, f func(t *registryTable, now time.Time) (*RegistryRecord, error)) (*RegistryRecord, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := f(m.table, m.now())
	return copyRecord(r, err)
}

// copyRecord keeps the table's record away from the caller.
func copyRecord(r *RegistryRecord, err error) (*RegistryRecord, error) {
	if err != nil || r == nil {
		return nil, err
	}
	c := *r
	return &c, nil
}

// Reserve claims a node name for a machine; see [Registry].
func (m *MemoryRegistry) Reserve(ctx context.Context, claim RegistryClaim, deadline time.Time) (*RegistryRecord, error) {
	return m.use(ctx, func(t *registryTable, now time.Time) (*RegistryRecord, error) {
		r, _, err := t.reserve(claim, deadline, now)
		return r, err
	})
}

// Bind makes a reservation final; see [Registry].
func (m *MemoryRegistry) Bind(ctx context.Context, record *RegistryRecord) (*RegistryRecord, error) {
	return m.use(ctx, func(t *registryTable, now time.Time) (*RegistryRecord, error) {
		r, _, err := t.bind(record, now)
		return r, err
	})
}

// Raise raises the last end of a bound record; see [Registry].
func (m *MemoryRegistry) Raise(ctx context.Context, record *RegistryRecord, lastEnd time.Time) (*RegistryRecord, error) {
	return m.use(ctx, func(t *registryTable, now time.Time) (*RegistryRecord, error) {
		r, _, err := t.raise(record, lastEnd, now)
		return r, err
	})
}

// Rebind gives a bound record another machine; see [Registry].
func (m *MemoryRegistry) Rebind(ctx context.Context, record *RegistryRecord, machine Identity) (*RegistryRecord, error) {
	return m.use(ctx, func(t *registryTable, now time.Time) (*RegistryRecord, error) {
		r, _, err := t.rebind(record, machine, now)
		return r, err
	})
}

// Release takes away the record of a Machine that is gone; see [Registry].
func (m *MemoryRegistry) Release(ctx context.Context, nodeName, machineUID string) error {
	_, err := m.use(ctx, func(t *registryTable, now time.Time) (*RegistryRecord, error) {
		t.release(nodeName, machineUID, now)
		return nil, nil
	})
	return err
}

// Lookup returns the record of a node name, nil where there is none.
func (m *MemoryRegistry) Lookup(ctx context.Context, nodeName string) (*RegistryRecord, error) {
	return m.use(ctx, func(t *registryTable, now time.Time) (*RegistryRecord, error) {
		return t.lookup(nodeName, now), nil
	})
}

// LookupMachine returns the reserved or bound record of a machine, nil where there
// is none.
func (m *MemoryRegistry) LookupMachine(ctx context.Context, machine Identity) (*RegistryRecord, error) {
	return m.use(ctx, func(t *registryTable, now time.Time) (*RegistryRecord, error) {
		return t.lookupMachine(machine, now), nil
	})
}

// Records returns all records that count, by node name.
func (m *MemoryRegistry) Records(ctx context.Context) ([]RegistryRecord, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.table.snapshot(m.now()), nil
}
