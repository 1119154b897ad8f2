// Package certstore keeps a node's certificates and their keys on disk, for use by several
// processes at once.
//
//	store, err := certstore.Open("/var/lib/kubelet-authenticator")
//	lock, err := store.Lock(ctx)
//	defer lock.Unlock()
//	err = lock.WritePair("client.pem", pair)
//	...
//	pair, err := store.ReadPair("client.pem") // takes no lock
//
// A certificate and its key are in one file of mode 0600, which is replaced as a whole: a
// reader finds either the previous pair or the new one, even after kill -9, a power loss or a
// full disk. Writers take turns by means of a lock on the folder, which the kernel releases
// when the process ends, however it ends.
package certstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkFile is the check that fails for a file or folder that another user could have read or
// written: files must belong to this user and have mode 0600, and only this user and root may be
// able to write to the folder.
const checkFile = safefile.CheckFile

// ErrLocked says that another process, or another goroutine of this one, holds the lock.
var ErrLocked = safefile.ErrLocked

// Store is a folder of certificates. It is safe for use by multiple goroutines and processes.
type Store struct {
	dir  string
	root *os.Root
}

// Open opens the folder. If it is missing, Open creates it with mode 0700; the folder above it
// must exist. Only this user and root may be able to write to it or to replace it. The Store stays
// with the folder that was opened: once that is removed, errors match io/fs.ErrNotExist. The check
// of the error is "file", or the error is the file system's.
func Open(dir string) (*Store, error) {
	if dir == "" {
		return nil, refusal.Config("folder", "", "the path of one")
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := safefile.CheckWay(dir); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Store{dir, root}, nil
}

var errNotOpened = errors.New("certstore: the Store was not opened by Open")

func (s *Store) opened() bool { return s != nil && s.root != nil }

// Path returns the path of the file with that name.
func (s *Store) Path(name string) string { return filepath.Join(s.dir, name) }

// ReadPair reads a pair. The error matches io/fs.ErrNotExist if the file does not exist, and
// [CheckPair] or the check "file" if it is invalid.
func (s *Store) ReadPair(name string) (*Pair, error) {
	text, err := s.Read(name, maxPairSize)
	if err != nil {
		return nil, err
	}
	return parsePair(text)
}

// Read reads any file of the folder, at most maxSize bytes. The check of the error is "file", or the
// error is the file system's.
func (s *Store) Read(name string, maxSize int) ([]byte, error) {
	if !s.opened() {
		return nil, errNotOpened
	}
	return safefile.ReadIn(s.root, name, maxSize, safefile.Private)
}

// The lock files. They stay, empty, when no process holds them.
const (
	writerLock = ".lock"
	heldSuffix = ".held"
)

// lockPause is how long a waiter waits before it tries again. An attempt costs two system
// calls, and a blocking system call could not be ended by a context.
const lockPause = 20 * time.Millisecond

// Lock waits for the lock until ctx ends. Then the error is ctx's and also matches [ErrLocked].
func (s *Store) Lock(ctx context.Context) (*Lock, error) {
	for {
		l, err := s.TryLock()
		if !errors.Is(err, ErrLocked) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrLocked, ctx.Err())
		case <-time.After(lockPause):
		}
	}
}

// TryLock is [Store.Lock] without waiting: the error matches [ErrLocked] if another process
// holds the lock.
func (s *Store) TryLock() (*Lock, error) {
	f, err := s.hold(writerLock)
	if err != nil {
		return nil, err
	}
	return &Lock{s, f}, nil
}

// Hold tells other processes, under a name, that this one is running. Until release is called
// or the process ends, a second Hold of that name fails with [ErrLocked]. [Store.Held] returns
// true for a minute after Hold and after each call of beat, by the computer's clock. If only this
// sign of life cannot be written, on a read-only disk, Hold returns both with the error.
func (s *Store) Hold(name string) (beat, release func() error, err error) {
	name += heldSuffix
	f, err := s.hold(name)
	if err != nil {
		return nil, nil, err
	}
	beat = func() error { return s.root.Chtimes(name, time.Now(), time.Now()) }
	return beat, func() error { // the closure keeps f, and with it the lock, alive
		return errors.Join(s.root.Remove(name), f.Close())
	}, beat()
}

// heldFor is how long after its last sign of life a process counts as running.
const heldFor = time.Minute

// Held reports whether a process holds the name and showed a sign of life within a minute. It takes
// no lock.
func (s *Store) Held(name string) bool {
	if !s.opened() {
		return false
	}
	info, err := s.root.Stat(name + heldSuffix)
	return err == nil && time.Since(info.ModTime()).Abs() < heldFor
}

// hold opens a file and locks it. The lock belongs to the open file: it ends with Close, with
// the process, or when the file is garbage collected, so the holder must keep the file.
func (s *Store) hold(name string) (*os.File, error) {
	if !s.opened() {
		return nil, errNotOpened
	}
	for {
		f, err := s.root.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, syscall.EROFS) { // a lock writes nothing
			if there, opened := s.root.Open(name); opened == nil {
				f, err = there, nil
			}
		}
		if err != nil {
			return nil, err
		}
		if err := safefile.Lock(f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		// The file may have been removed in the meantime. Then no other process finds the
		// locked file.
		named, gone := s.root.Stat(name)
		held, err := f.Stat()
		if gone == nil && err == nil && os.SameFile(named, held) {
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// Lock is the right to write into a [Store]. It is for one goroutine at a time.
type Lock struct {
	store *Store
	file  *os.File // holds the lock until it is closed
}

// In returns the right to write into s, whose writers use the lock of this folder. It ends with the
// lock.
func (l *Lock) In(s *Store) *Lock {
	if l == nil {
		return nil
	}
	return &Lock{s, l.file}
}

// Unlock gives up the right to write. A second Unlock does nothing.
func (l *Lock) Unlock() error {
	if !l.has() {
		return nil
	}
	return l.file.Close()
}

func (l *Lock) has() bool {
	const closed = ^uintptr(0) // os.File.Fd
	return l != nil && l.file != nil && l.file.Fd() != closed && l.store.opened()
}

// WritePair replaces a pair. If it fails, on a full disk for example, the old pair stays.
func (l *Lock) WritePair(name string, p *Pair) error {
	if p == nil || p.Leaf == nil {
		return CheckPair.Refuse("no certificate", "one")
	}
	return l.Write(name, p.Marshal())
}

// Write replaces any file of the folder, as WritePair does. It first removes temporary files of
// killed writers of the same name.
func (l *Lock) Write(name string, content []byte) error {
	if !l.has() {
		return errors.New("certstore: write without holding the lock")
	}
	safefile.Sweep(l.store.root, name) // this process holds the lock, so their writer was killed
	return safefile.ReplaceIn(l.store.root, name, safefile.Content(content))
}

// Remove removes a file, if it exists.
func (l *Lock) Remove(name string) error {
	if !l.has() {
		return errors.New("certstore: removal without holding the lock")
	}
	if err := l.store.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
