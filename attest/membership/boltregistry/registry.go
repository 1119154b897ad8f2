package boltregistry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkFile: the file is not a registry, is damaged, belongs to or can be changed by another user, is in
// memory, or was replaced by another file. No call succeeds until that is fixed.
const checkFile refusal.Check = "registry-file"

// ErrInUse says that another process has the file open, or another Registry in this one. In
// the former case it comes with [refusal.ErrRetry].
var ErrInUse = errors.New("registry file in use")

// ErrClosed says that the registry was closed.
var ErrClosed = errors.New("registry closed")

// errFault says that bbolt panicked, or read memory that is not there.
var errFault = errors.New("the file is damaged")

// lockPoll is the time between two tries for a lock that another process holds.
const lockPoll = 20 * time.Millisecond

// file is a membership.Store in a database file, which is open or is opened by the next call.
type file struct {
	path  string
	scope membership.Scope

	writer chan struct{} // holds one element while a call writes

	mu     sync.RWMutex // held for reading while db is in use
	db     *bbolt.DB    // nil after a failed write, until it is reopened
	opened *os.File     // the descriptor in db
	info   fs.FileInfo  // of the file when it was opened
	broken error        // of every later call

	// The file's newest transaction must be from done, the last that this process has seen, to begun,
	// the last that it began. Otherwise another program has overwritten the file.
	done, begun atomic.Int64
}

// openOnce opens the database if no other process has it open.
func (f *file) openOnce() error {
	if err := checkDirectory(f.path); err != nil {
		return err
	}
	err := guard(func() (err error) {
		f.db, err = bbolt.Open(f.path, 0o600, &bbolt.Options{
			Timeout:      1, // one try; zero would wait for ever
			FreelistType: bbolt.FreelistMapType,
			OpenFile: func(path string, _ int, _ os.FileMode) (_ *os.File, err error) {
				f.opened, f.info, err = openExisting(path)
				return f.opened, err
			},
		})
		if err != nil {
			return err
		}
		return f.checkContent()
	})
	if err == nil {
		here.Store(f, f.info)
		err = f.checkPlace() // it may have been replaced while we waited for the lock
	}
	if err == nil {
		return nil
	}
	_ = f.letGo(err)
	return explainOpen(f.path, err)
}

// letGo closes the file because of an error. After a fault in memory db is not used again, as its locks
// may be held.
func (f *file) letGo(err error) error {
	db := f.db
	f.db = nil
	here.Delete(f)
	if db != nil && !errors.Is(err, errFault) {
		return db.Close()
	}
	if f.opened == nil {
		return nil
	}
	unlock(f.opened)
	return f.opened.Close()
}

// explainOpen classifies the errors of bbolt.
func explainOpen(path string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("boltregistry: %w: %s: %w", ErrInUse, path, refusal.ErrRetry)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, bolterrors.ErrChecksum):
		return fmt.Errorf("boltregistry: %w: %s: %w", checkFile, path, err)
	}
	return fmt.Errorf("boltregistry: %s: %w", path, err)
}

// openExisting opens a file that exists, is not a link, and belongs to the process's user.
func openExisting(path string) (*os.File, fs.FileInfo, error) {
	o, info, err := safefile.Open(path, os.O_RDWR, safefile.Private)
	if err != nil {
		return nil, nil, safefile.Refused(checkFile, err)
	}
	if smallest := min(2*int64(os.Getpagesize()), 32<<10); info.Size() < smallest {
		return nil, nil, errors.Join(damaged("got %d bytes, want %d or more", info.Size(), smallest), o.Close())
	}
	return o, info, nil
}

// checkDirectory refuses a file in a directory that other users can write to, or that is in memory, as
// its records would be lost with a restart of the machine. A container's own file system is accepted: if
// the registry is lost with it, Open fails, and no empty one takes its place.
func checkDirectory(path string) error {
	err := safefile.CheckDirectory(filepath.Dir(path))
	if err == nil {
		if err = safefile.CheckLasting(path); errors.Is(err, safefile.ErrUnknown) {
			return nil
		}
	}
	return safefile.Refused(checkFile, err)
}

// checkContent checks that the database is an undamaged registry of the scope. It reads the whole file,
// unless this process wrote it last.
func (f *file) checkContent() error {
	return f.db.View(func(b *bbolt.Tx) error {
		newest := int64(b.ID())
		if newest < f.done.Load() {
			return errOverwritten
		}
		unknown := newest > f.begun.Load()
		if unknown {
			now, err := f.opened.Stat() // the lock's former holder may have made it longer
			if err == nil {
				err = checkPages(f.opened, now.Size(), f.db.Info().PageSize)
			}
			if err != nil {
				return err
			}
		}
		meta := b.Bucket(bucketMeta)
		if meta == nil || string(meta.Get(metaFormat)) != string(fileFormat) {
			return damaged("it is no registry, or one of another version")
		}
		if got := string(meta.Get(metaScope)); got != f.scope.String() {
			return damaged("got a registry of scope %q, want %q", got, f.scope.String())
		}
		if got := string(meta.Get(metaCluster)); got != f.scope.Cluster {
			return damaged("got a registry of cluster %q, want %q", got, f.scope.Cluster)
		}
		t, err := newTx(b)
		if err == nil && unknown {
			err = t.checkRecords()
		}
		if err != nil {
			return err
		}
		f.begun.Store(newest)
		f.done.Store(newest)
		return nil
	})
}

// errOverwritten says that another program has overwritten the file while it was open.
var errOverwritten = fmt.Errorf("%w: the file was overwritten with another copy while it was open", checkFile)

// checkPlace checks that the path still names the open file: writes to another one would be lost.
func (f *file) checkPlace() error {
	now, err := os.Lstat(f.path)
	if err != nil || !os.SameFile(now, f.info) {
		return fmt.Errorf("boltregistry: %w: %s was replaced by another file while it was open", checkFile, f.path)
	}
	return nil
}

// with calls do with the open database. do returns refusals of the caller's own function apart from
// errors of the database. After one of these, memory and disk may differ, so the next call reopens the
// file.
func (f *file) with(ctx context.Context, do func(db *bbolt.DB) (refused, err error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	opened, refused, err := f.whileOpen(do)
	for !opened {
		if err := f.reopen(); err != nil {
			return err
		}
		opened, refused, err = f.whileOpen(do)
	}
	if err != nil && refused == nil || errors.Is(err, errFault) {
		return f.failed(err)
	}
	return refused
}

// whileOpen calls do if the database is open, and keeps it open meanwhile.
func (f *file) whileOpen(do func(db *bbolt.DB) (refused, err error)) (opened bool, refused, err error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.db == nil {
		return false, nil, nil
	}
	if err := f.checkPlace(); err != nil {
		return true, err, nil
	}
	err = guard(func() (err error) {
		refused, err = do(f.db)
		return err
	})
	return true, refused, err
}

// reopen opens the file again, unless it is closed for good.
func (f *file) reopen() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil || f.db != nil {
		return f.broken
	}
	err := f.openOnce()
	if errors.Is(err, errFault) {
		f.broken = err // each attempt would leave another mapping of the file
	}
	return err
}

// guard turns a panic or a fault in memory mapped from the file into an error. That is how a
// call ends if the database was damaged while open.
func guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %w: %v", checkFile, errFault, p)
		}
	}()
	return do()
}

// failed closes the file after an error, for good after a fault or if the file was overwritten.
func (f *file) failed(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err = fmt.Errorf("boltregistry: %s: %w", f.path, err)
	if f.db == nil {
		return err
	}
	if errors.Is(err, errFault) || errors.Is(err, errOverwritten) {
		f.broken = err
	}
	_ = f.letGo(err)
	return err
}

// close closes the file for good.
func (f *file) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return nil
	}
	f.broken = fmt.Errorf("boltregistry: %w", ErrClosed)
	if f.db == nil {
		return nil
	}
	return f.letGo(nil)
}

// Registry is a membership.Registry in a file. It is safe for use from many goroutines.
// One process has the file open at a time.
//
// After an error of a write, such as on a full disk, the next call reopens the file. If the file is
// replaced, or overwritten with an old copy, every call has the check "registry-file" until the registry
// is opened again.
type Registry struct {
	membership.Registry
	file *file
}

// Create creates the file of an empty registry, with mode 0600, in a directory that exists,
// that no other user can write to and, on Linux, that is not in memory (a tmpfs, a ramfs, or an overlay
// over one). The file is created completely or not at all. An existing
// file is left alone, and the error wraps fs.ErrExist. An invalid scope is an error.
func Create(ctx context.Context, path string, scope membership.Scope) error {
	if err := scope.Check(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := checkDirectory(path)
	if err == nil {
		err = safefile.Create(path, func(f *os.File) error { return fill(f.Name(), scope) })
	}
	if err != nil {
		return fmt.Errorf("boltregistry: create %s: %w", path, err)
	}
	return nil
}

// fill turns an empty file into a database.
func fill(path string, scope membership.Scope) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = db.Update(func(b *bbolt.Tx) error {
		for _, name := range buckets {
			if _, err := b.CreateBucket(name); err != nil {
				return err
			}
		}
		meta := b.Bucket(bucketMeta)
		return errors.Join(meta.Put(metaFormat, fileFormat), meta.Put(metaScope, []byte(scope.String())), meta.Put(metaCluster, []byte(scope.Cluster)))
	})
	return errors.Join(err, db.Close())
}

// Open opens a registry that [Create] made for the same scope and cluster. The file must be a
// regular file of mode 0600 owned by the process's user, in a directory that belongs to that
// user or to root, that no other user can write to and that is not in memory; anything else has the check
// "registry-file", and so has a registry of another cluster or of none. (Windows has no such
// modes: there, only the access lists count.) A missing file is not created: the error wraps
// fs.ErrNotExist.
//
// Open reads the whole file, which takes about a second for 100,000 records (131 MiB), and refuses a
// damaged one: it checks page numbers, keys, the list of free pages, and each record with its checksum
// and its index entries.
//
// While another process has the file open, Open waits until ctx has ended; the error then
// wraps [ErrInUse] and [refusal.ErrRetry]. A file that this process has open already is
// [ErrInUse] at once: no other process would close it.
func Open(ctx context.Context, path string, scope membership.Scope, opts membership.RegistryOptions) (*Registry, error) {
	f := &file{path: path, scope: scope, writer: make(chan struct{}, 1)}
	registry, err := membership.NewRegistry(scope, f, opts)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("boltregistry: %s: %w", path, err)
	}
	for {
		err := f.openOnce()
		if err == nil {
			return &Registry{registry, f}, nil
		}
		if !errors.Is(err, ErrInUse) {
			return nil, err
		}
		if openHere(path) {
			return nil, fmt.Errorf("boltregistry: %w: %s: opened by another Registry of this process, which must be closed first", ErrInUse, path)
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// Close waits for calls under way and closes the file, for other processes to open. Every
// later call returns [ErrClosed].
func (r *Registry) Close() error {
	if r == nil || r.file == nil {
		return nil
	}
	return r.file.close()
}
