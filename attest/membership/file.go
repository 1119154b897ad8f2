package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkRegistryFile: the file is not a registry, is damaged, belongs to or can be changed by another user,
// is in memory, or was replaced or overwritten by another program.
const checkRegistryFile attest.Check = "registry-file"

// ErrInUse says that another process has the file of a registry open, or another [FileRegistry] of this
// one. In the former case it comes with [refusal.ErrRetry], unless the lock file of the other process was
// removed.
var ErrInUse = errors.New("registry file in use")

// lockPoll is the time between two tries for a lock that another process holds.
const lockPoll = 20 * time.Millisecond

// FileRegistry is a [Registry] in one file on a local disk, for a control plane of one process, or of
// several that take turns. It is safe for use from many goroutines. A call that changes a record appends
// the change to the file, and returns once it survives kill -9 and loss of power. All records are in
// memory, about 1 KiB each, so other calls read no more of the file than its size and time.
//
// The file is written anew when it has over 1,000 lines more than twice its records. If it is replaced, or
// overwritten with an old copy, every call has the check "registry-file" until the registry is opened again.
// After a write that failed, such as on a full disk, the registry has the records that it had before; if no
// later write succeeds, the change may be there when the registry is opened again.
type FileRegistry struct {
	Registry
	store *fileStore
}

// CreateFileRegistry creates the file of an empty registry, with mode 0600, in a directory that exists,
// that no other user can write to and, on Linux, that is not in memory (a tmpfs, a ramfs, or an overlay
// over one). An administrator does that once: an empty registry admits any machine under any name. The file is
// created completely or not at all. An existing file is left alone, and the error wraps fs.ErrExist. An
// invalid scope is an error.
func CreateFileRegistry(ctx context.Context, path string, scope Scope) error {
	if err := cmp.Or(scope.Check(), ctx.Err()); err != nil {
		return err
	}
	err := checkDirectory(path)
	if err == nil {
		err = safefile.Create(path, func(f *os.File) error { return writeJournal(f, scope, newRecords()) })
	}
	if err != nil {
		return fmt.Errorf("membership: create %s: %w", path, err)
	}
	return nil
}

// OpenFileRegistry opens a registry that [CreateFileRegistry] made for the same scope and cluster. The file
// must be a regular file of mode 0600 owned by the process's user, in a directory that belongs to that
// user or to root, that no other user can write to and that is not in memory; anything else has the check
// "registry-file", and so has a registry of another cluster or of none. (Windows has no such
// modes: there, only the access lists count.) A missing file is not created: the error wraps
// fs.ErrNotExist.
//
// It reads the whole file, which takes about a second for 100,000 records, and refuses a damaged one: each
// line of the file has a checksum, and the first line tells how much of the file must be whole.
//
// While another process has the file open, it waits until ctx has ended; the error then wraps [ErrInUse]
// and [refusal.ErrRetry]. A file that this process has open already is [ErrInUse] at once: no other process
// would close it. Processes exclude one another by locks on the file and on an empty file next to it, whose
// name ends in ".lock".
func OpenFileRegistry(ctx context.Context, path string, scope Scope, options RegistryOptions) (*FileRegistry, error) {
	s := &fileStore{memoryStore: newMemoryStore(), path: path, scope: scope, sync: safefile.Sync, writing: newTurns()}
	registry, err := NewRegistry(scope, s, options)
	if err != nil {
		return nil, err
	}
	err = cmp.Or(ctx.Err(), checkDirectory(path))
	if err == nil {
		_, err = os.Lstat(path) // no lock next to a registry that does not exist
	}
	if err == nil {
		err = s.acquire(ctx)
	}
	if err == nil {
		if err = s.open(); err != nil {
			err = errors.Join(err, s.close())
		}
	}
	if err != nil {
		return nil, s.failed(err)
	}
	return &FileRegistry{registry, s}, nil
}

// Close waits for calls that write and closes the file, for other processes to open. Later calls of the
// registry return an error that wraps fs.ErrClosed; a second Close does nothing.
func (r *FileRegistry) Close() error {
	if r == nil || r.store == nil {
		return nil
	}
	return r.store.exclusive(context.Background(), func() error {
		return r.store.writing.exclusive(context.Background(), func() error {
			if r.store.closed {
				return nil
			}
			return r.store.close()
		})
	})
}

// fileStore is a [Store] in memory that saves each change in a file.
type fileStore struct {
	*memoryStore
	path    string
	scope   Scope
	sync    func(path string) error // of a file and its directory
	lock    *os.File
	journal journal                     // for the call that writes
	closed  bool                        // for the call that writes
	writing turns                       // for changes of the file and of closed
	written atomic.Pointer[fs.FileInfo] // the file after this process's last write; nil if it is not open
}

func (s *fileStore) failed(err error) error {
	return fmt.Errorf("membership: registry file %s: %w", s.path, err)
}

// here maps each *fileStore of this process to the fs.FileInfo of its lock file. The lock excludes a second
// one of the same process too, but that one never releases it while OpenFileRegistry waits.
var here sync.Map

// openHere reports whether this process holds the lock.
func openHere(lock *os.File) (found bool) {
	info, err := lock.Stat()
	here.Range(func(_, open any) bool {
		found = err == nil && os.SameFile(info, open.(fs.FileInfo))
		return !found
	})
	return found
}

// acquire waits for the lock.
func (s *fileStore) acquire(ctx context.Context) error {
	lock, err := os.OpenFile(s.path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	for err = safefile.Lock(lock); errors.Is(err, safefile.ErrLocked); err = safefile.Lock(lock) {
		err = fmt.Errorf("%w: %w", ErrInUse, refusal.ErrRetry)
		if openHere(lock) {
			err = fmt.Errorf("%w: opened by another FileRegistry of this process, which must be closed first", ErrInUse)
			break
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", err, ctx.Err())
			break
		}
	}
	if err != nil {
		return errors.Join(err, lock.Close())
	}
	s.lock = lock
	if info, err := lock.Stat(); err == nil {
		here.Store(s, info)
	}
	if dir, err := os.OpenRoot(filepath.Dir(s.path)); err == nil {
		safefile.Sweep(dir, filepath.Base(s.path)) // of a process that was killed in rewrite
		_ = dir.Close()
	}
	return nil
}

// open reads the file, and locks it too, as the lock file may have been removed. It syncs the directory: the
// process that put the file there may have been killed before that, and then a loss of power would bring
// back the former file.
func (s *fileStore) open() error {
	f, info, err := safefile.Open(s.path, os.O_RDWR, safefile.Private)
	if err != nil {
		return safefile.Refused(checkRegistryFile, err)
	}
	if err := safefile.Lock(f); err != nil {
		if errors.Is(err, safefile.ErrLocked) {
			err = fmt.Errorf("%w, although its lock file is not locked: %w", ErrInUse, err)
		}
		return errors.Join(err, f.Close())
	}
	j, records, err := readJournal(f, info.Size(), s.scope)
	if err == nil {
		err = s.sync(s.path)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journal, s.records = j, records
	s.note()
	return nil
}

// close releases the file and the lock.
func (s *fileStore) close() error {
	s.closed = true
	s.written.Store(nil)
	here.Delete(s)
	if s.journal.file == nil {
		return s.lock.Close()
	}
	return errors.Join(s.journal.file.Close(), s.lock.Close())
}

// checkDirectory refuses a file in a directory that other users can write to, or that is in memory, as
// its records would be lost with a restart of the machine. A container's own file system is accepted: if
// the registry is lost with it, opening fails, and no empty one takes its place.
func checkDirectory(path string) error {
	err := safefile.CheckDirectory(filepath.Dir(path))
	if err == nil {
		if err = safefile.CheckLasting(path); errors.Is(err, safefile.ErrUnknown) {
			return nil
		}
	}
	return safefile.Refused(checkRegistryFile, err)
}

// View calls f with the records as they are at one moment.
func (s *fileStore) View(ctx context.Context, f func(Tx) error) error {
	if !s.current() {
		// Another call may be writing: wait for that one, and for none that starts later.
		if err := s.writing.exclusive(ctx, s.ready); err != nil {
			return err
		}
	}
	return s.memoryStore.View(ctx, f)
}

// Update calls f, one call at a time, and saves its changes.
func (s *fileStore) Update(ctx context.Context, f func(Tx) error) error {
	return s.exclusive(ctx, func() error {
		if err := s.ready(); err != nil {
			return err
		}
		return s.update(ctx, f, func(changes []change) error {
			return s.writing.exclusive(context.Background(), func() error { return s.save(changes) })
		})
	})
}

// current reports whether the file is as this process wrote it.
func (s *fileStore) current() bool {
	now, err := os.Lstat(s.path)
	written := s.written.Load()
	return err == nil && written != nil && os.SameFile(now, *written) &&
		now.Size() == (*written).Size() && now.ModTime().Equal((*written).ModTime())
}

// note remembers the file as it is now.
func (s *fileStore) note() {
	s.written.Store(nil)
	if info, err := s.journal.file.Stat(); err == nil {
		s.written.Store(&info)
	}
}

// ready refuses a call to a registry that is closed, or whose file another program has changed: writes to
// another file would be lost.
func (s *fileStore) ready() error {
	switch {
	case s.closed:
		return s.failed(fs.ErrClosed)
	case !s.current():
		return s.failed(fmt.Errorf("%w: it was replaced or overwritten while it was open", checkRegistryFile))
	}
	return nil
}

// save appends changes to the file.
func (s *fileStore) save(changes []change) error {
	defer s.note()
	if s.journal.lines > s.journal.most {
		if err := s.rewrite(); err != nil {
			return s.failed(err)
		}
	}
	if err := s.journal.append(changes); err != nil {
		return s.failed(err)
	}
	return nil
}

// rewrite replaces the file by one that has the records alone. If that fails, such as on a full disk, the
// old file stays, and the next attempt is at twice its lines. It fails if the new file is in its place and
// cannot be opened or its directory not synced: the registry must then be opened again.
func (s *fileStore) rewrite() error {
	old, onWindows := s.journal.file, runtime.GOOS == "windows"
	if onWindows {
		_ = old.Close() // Windows does not replace an open file
	}
	failed := safefile.Replace(s.path, func(f *os.File) error { return writeJournal(f, s.scope, s.records) })
	if failed == nil || onWindows || !s.current() { // it may be in its place, and only the sync of its directory failed
		if err := s.open(); err != nil {
			return err
		}
		_ = old.Close()
	}
	if failed != nil {
		s.journal.most = 2 * s.journal.lines
	}
	return nil
}
