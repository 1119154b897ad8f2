package boltregistry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/safefile"
)

// Registry is a membership.Registry in a file. It is safe for use from many goroutines.
// One process has the file open at a time.
//
// A write that fails (a full disk) is no answer: the call returns its error, and the next
// one opens the file anew. A path that comes to name another file, as when somebody puts
// an old copy back, is an error of every call ([ErrFile]) until the registry is opened
// again.
type Registry struct {
	*membership.StoreRegistry
	file *file
}

// Create makes the file of an empty registry, with mode 0600, in a directory that exists
// and that nobody else can write to. It is there whole or not at all. A file that exists
// is left alone, and the error wraps fs.ErrExist. A scope that is none is an error.
func Create(ctx context.Context, path string, scope membership.Scope) (err error) {
	if err := scope.Check(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("boltregistry: create %s: %w", path, err)
		}
	}()
	if err := safefile.CheckDirectory(filepath.Dir(path)); err != nil {
		return refused(err)
	}
	return safefile.Create(path, func(f *os.File) error { return fill(f.Name(), scope) })
}

// fill makes a database of an empty file.
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
		return errors.Join(meta.Put(metaFormat, fileFormat), meta.Put(metaScope, []byte(scope.String())))
	})
	return errors.Join(err, db.Close())
}

// Open opens a registry that [Create] made for the same scope. The file must be a regular
// one of mode 0600 that the process' user owns, in a directory of that user or of root
// that nobody else can write to; anything else is [ErrFile]. (Windows has no such modes:
// there the access lists are all.) A file that is not there is not made: the error wraps
// fs.ErrNotExist.
//
// While another process has the file open, Open waits until ctx is over; the error then
// wraps [ErrInUse] and csr.ErrRetry.
func Open(ctx context.Context, path string, scope membership.Scope, options membership.RegistryOptions) (*Registry, error) {
	if err := scope.Check(); err != nil {
		return nil, err
	}
	f := &file{path: path, scope: scope, writer: make(chan struct{}, 1)}
	registry, err := membership.NewRegistry(scope, f, options)
	if err != nil {
		return nil, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("boltregistry: %s: %w", path, err)
		}
		err := f.openOnce()
		if err == nil {
			return &Registry{registry, f}, nil
		}
		if !errors.Is(err, ErrInUse) {
			return nil, err
		}
		wait := time.NewTimer(lockPoll)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// Close waits for the calls under way and closes the file, for other processes to open.
// Every later call is [ErrClosed].
func (r *Registry) Close() error { return r.file.close() }
