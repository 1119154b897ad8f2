package attest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// FileRegistry is a [Registry] in one file of a local file system, for one machine
// with any number of processes. Each change writes the whole file anew beside
// itself, syncs it, renames it over the old one and syncs the directory, all under
// a lock (flock on <path>.lock): what was acknowledged survives kill -9 and the
// loss of power at any moment, and no reader ever sees half of a change.
//
// The file is lines of JSON with a checksum at the end. Anything else than what a
// registry wrote is refused with [ErrRegistryFile] at every call until it is put
// right, and so is a file that others may write to. A file that is gone is not
// made anew: a registry that starts empty trusts everybody once more. So making
// one is an act of its own, [CreateFileRegistry].
type FileRegistry struct {
	scope RegistryScope
	now   func() time.Time
	disk  registryDisk

	busy chan struct{} // holds one element while the fields below are in use
	// table is what file holds, nil where nothing has been read; synced says that
	// file is known to be on disk.
	file   registryFile
	table  *registryTable
	synced bool
	closed bool
}

// registryDisk is what a registry needs of a file system, for one path and the
// temporary file beside it. In tests a model that loses what was not synced takes
// its place.
type registryDisk interface {
	// lock waits until it has the lock that all processes share.
	lock(ctx context.Context) (unlock func(), err error)
	// open opens the file at the path for reading.
	open() (registryFile, error)
	// current reports whether the path still holds this very file, unchanged.
	current(f registryFile) (bool, error)
	// create makes the temporary file, in place of one that a crash left there.
	create() (registryFile, error)
	// publish renames the temporary file to the path; link does so if the path is
	// free and fails with fs.ErrExist else, leaving the temporary file.
	publish(f registryFile) error
	link() error
	// discard removes the temporary file.
	discard() error
	// syncDirectory brings the names to disk.
	syncDirectory() error
}

type registryFile interface {
	io.ReadWriteCloser
	Sync() error
}

// CreateFileRegistry makes the file of an empty registry, with mode 0600 in a
// directory that exists. A file that exists is left alone, and the error wraps
// fs.ErrExist. A file <path>.lock is made beside it and stays.
func CreateFileRegistry(ctx context.Context, path string, scope RegistryScope) error {
	if err := scope.check(); err != nil {
		return err
	}
	return createRegistry(ctx, newOSRegistryDisk(path), scope)
}

func createRegistry(ctx context.Context, disk registryDisk, scope RegistryScope) error {
	content, err := newRegistryTable().encode(scope)
	if err != nil {
		return err
	}
	unlock, err := disk.lock(ctx)
	if err != nil {
		return fmt.Errorf("attest: registry: lock: %w", err)
	}
	defer unlock()
	f, err := writeTemporary(disk, content)
	if err != nil {
		return fmt.Errorf("attest: registry: %w", err)
	}
	err = errors.Join(f.Close(), disk.link())
	if err = errors.Join(err, disk.discard()); err == nil {
		err = disk.syncDirectory()
	}
	if err != nil {
		return fmt.Errorf("attest: registry: create: %w", err)
	}
	return nil
}

// writeTemporary returns the temporary file, written and synced, or removes it.
func writeTemporary(disk registryDisk, content []byte) (registryFile, error) {
	f, err := disk.create()
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(content); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), disk.discard())
	}
	return f, nil
}

// OpenFileRegistry opens the registry in a file that [CreateFileRegistry] made with
// the same scope, and reads it. Its clock is now; nil means time.Now. Call Close in
// the end. On systems without flock it fails with errors.ErrUnsupported.
func OpenFileRegistry(path string, scope RegistryScope, now func() time.Time) (*FileRegistry, error) {
	if err := scope.check(); err != nil {
		return nil, err
	}
	if now == nil {
		now = time.Now
	}
	return openRegistry(newOSRegistryDisk(path), scope, now)
}

func openRegistry(disk registryDisk, scope RegistryScope, now func() time.Time) (*FileRegistry, error) {
	f := &FileRegistry{scope: scope, now: now, disk: disk, busy: make(chan struct{}, 1)}
	if err := f.load(); err != nil {
		return nil, err
	}
	return f, nil
}

// Scope returns the scope that the registry was opened with.
func (f *FileRegistry) Scope() RegistryScope { return f.scope }

// Close closes the file. Every later call fails.
func (f *FileRegistry) Close() error {
	f.busy <- struct{}{}
	defer func() { <-f.busy }()
	f.closed = true
	return f.forget()
}

// forget drops what was read.
func (f *FileRegistry) forget() error {
	file := f.file
	f.file, f.table, f.synced = nil, nil, false
	if file == nil {
		return nil
	}
	return file.Close()
}

// load reads the file unless what was read is still what is there. As the file
// read stays open, no other file can be taken for it.
func (f *FileRegistry) load() error {
	if f.file != nil {
		if same, err := f.disk.current(f.file); err == nil && same {
			return nil
		}
		_ = f.forget()
	}
	file, err := f.disk.open()
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("attest: registry: %w: it does not exist; a new one trusts every first user again: %w", ErrRegistryFile, err)
	}
	if err != nil {
		return fmt.Errorf("attest: registry: %w", err)
	}
	content, err := io.ReadAll(io.LimitReader(file, MaxRegistryFileSize+1))
	if err == nil {
		f.table, err = decodeRegistry(content, f.scope)
	}
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("attest: registry: %w", err)
	}
	f.file = file
	return nil
}

// begin waits for the registry's turn within this process.
func (f *FileRegistry) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case f.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if f.closed {
		<-f.busy
		return fmt.Errorf("attest: registry: %w", fs.ErrClosed)
	}
	return nil
}

func (f *FileRegistry) end() { <-f.busy }

// update runs one change under the lock. What it returns is on disk.
func (f *FileRegistry) update(ctx context.Context, change func(t *registryTable, now time.Time) (*RegistryRecord, bool, error)) (*RegistryRecord, error) {
	if err := f.begin(ctx); err != nil {
		return nil, err
	}
	defer f.end()
	unlock, err := f.disk.lock(ctx)
	if err != nil {
		return nil, fmt.Errorf("attest: registry: lock: %w", err)
	}
	defer unlock()
	if err := f.load(); err != nil {
		return nil, err
	}
	r, changed, err := change(f.table, f.now())
	if err != nil {
		return nil, err
	}
	if changed {
		err = f.write()
	} else {
		err = f.sync()
	}
	if err != nil {
		_ = f.forget() // the table may be ahead of the file
		return nil, fmt.Errorf("attest: registry: %w", err)
	}
	return copyRecord(r, nil)
}

// sync brings to disk what another process wrote and may have died over.
func (f *FileRegistry) sync() error {
	if f.synced {
		return nil
	}
	err := f.file.Sync()
	if err == nil {
		err = f.disk.syncDirectory()
	}
	f.synced = err == nil
	return err
}

// write replaces the file by the table.
func (f *FileRegistry) write() error {
	content, err := f.table.encode(f.scope)
	if err != nil {
		return err
	}
	file, err := writeTemporary(f.disk, content)
	if err != nil {
		return err
	}
	if err := f.disk.publish(file); err != nil {
		return errors.Join(err, file.Close(), f.disk.discard())
	}
	_ = f.file.Close() // of the old file, which was only read
	f.file = file
	err = f.disk.syncDirectory()
	f.synced = err == nil
	return err
}

// view reads without the lock: the file is replaced as a whole.
func (f *FileRegistry) view(ctx context.Context, look func(t *registryTable, now time.Time) *RegistryRecord) (*RegistryRecord, error) {
	if err := f.begin(ctx); err != nil {
		return nil, err
	}
	defer f.end()
	if err := f.load(); err != nil {
		return nil, err
	}
	return copyRecord(look(f.table, f.now()), nil)
}

// Reserve claims a node name for a machine; see [Registry].
func (f *FileRegistry) Reserve(ctx context.Context, claim RegistryClaim, deadline time.Time) (*RegistryRecord, error) {
	return f.update(ctx, func(t *registryTable, now time.Time) (*RegistryRecord, bool, error) {
		return t.reserve(claim, deadline, now)
	})
}

// Bind makes a reservation final; see [Registry].
func (f *FileRegistry) Bind(ctx context.Context, record *RegistryRecord) (*RegistryRecord, error) {
	return f.update(ctx, func(t *registryTable, now time.Time) (*RegistryRecord, bool, error) {
		return t.bind(record, now)
	})
}

// Raise raises the last end of a bound record; see [Registry].
func (f *FileRegistry) Raise(ctx context.Context, record *RegistryRecord, lastEnd time.Time) (*RegistryRecord, error) {
	return f.update(ctx, func(t *registryTable, now time.Time) (*RegistryRecord, bool, error) {
		return t.raise(record, lastEnd, now)
	})
}

// Rebind gives a bound record another machine; see [Registry].
func (f *FileRegistry) Rebind(ctx context.Context, record *RegistryRecord, machine Identity) (*RegistryRecord, error) {
	return f.update(ctx, func(t *registryTable, now time.Time) (*RegistryRecord, bool, error) {
		return t.rebind(record, machine, now)
	})
}

// Release takes away the record of a Machine that is gone; see [Registry].
func (f *FileRegistry) Release(ctx context.Context, nodeName, machineUID string) error {
	_, err := f.update(ctx, func(t *registryTable, now time.Time) (*RegistryRecord, bool, error) {
		return nil, t.release(nodeName, machineUID, now), nil
	})
	return err
}

// Lookup returns the record of a node name, nil where there is none.
func (f *FileRegistry) Lookup(ctx context.Context, nodeName string) (*RegistryRecord, error) {
	return f.view(ctx, func(t *registryTable, now time.Time) *RegistryRecord { return t.lookup(nodeName, now) })
}

// LookupMachine returns the reserved or bound record of a machine, nil where there
// is none.
func (f *FileRegistry) LookupMachine(ctx context.Context, machine Identity) (*RegistryRecord, error) {
	return f.view(ctx, func(t *registryTable, now time.Time) *RegistryRecord { return t.lookupMachine(machine, now) })
}

// Records returns all records that count, by node name.
func (f *FileRegistry) Records(ctx context.Context) ([]RegistryRecord, error) {
	var records []RegistryRecord
	_, err := f.view(ctx, func(t *registryTable, now time.Time) *RegistryRecord {
		records = t.snapshot(now)
		return nil
	})
	return records, err
}
