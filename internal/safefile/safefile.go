// Package safefile reads and writes files that a process has to trust: a secret, a registry,
// what a client remembers about its cluster. It refuses a file that anyone else could have
// written or, if it is [Private], can read. A file is first written under another name,
// synced, and then moved into place: a reader finds the whole file or none, even after a loss
// of power. [CheckLasting] refuses a place that a restart of the machine empties.
//
// Windows has no such owners and modes: there the access lists are the administrator's
// responsibility, and only the type and the size of a file are checked.
package safefile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

// CheckFile is the check that an untrustworthy file or directory fails. Errors from the file
// system do not match it.
const CheckFile refusal.Check = "file"

// Refused adds the caller's check to a refusal of this package, and to no other error.
func Refused(check refusal.Check, err error) error {
	if errors.Is(err, CheckFile) {
		return fmt.Errorf("%w: %w", check, err)
	}
	return err
}

// ErrUnknown says, with [CheckFile], that [CheckLasting] cannot see the device of a file system.
var ErrUnknown = errors.New("unknown whether it is in memory")

// ErrLocked says that a file is locked, by another process or by another open file of this one.
var ErrLocked = errors.New("the lock is held")

// Access says who may read or write a file in addition to the owner.
type Access int

const (
	// Private is a file of mode 0600 whose owner is this process's user.
	Private Access = iota
	// Trusted is a file that only its owner can write, which is this process's user or root;
	// anyone may read it.
	Trusted
)

// Open opens an existing regular file, with flag as for [os.OpenFile], and not through a
// symbolic link. The error is [CheckFile] or the file system's.
func Open(path string, flag int, access Access) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, flag|openNoFollow, 0) // does not wait for the writer of a FIFO
	return check(f, err, func() (fs.FileInfo, error) { return os.Lstat(path) }, access)
}

// check checks an opened file, and that it is the one that is named.
func check(f *os.File, err error, lstat func() (fs.FileInfo, error), access Access) (*os.File, fs.FileInfo, error) {
	if err != nil {
		if info, lerr := lstat(); lerr == nil && info.Mode().Type() == fs.ModeSymlink {
			err = &refusal.Error{Check: CheckFile, Got: "a symbolic link", Want: "a regular file", Err: err}
		}
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = CheckFile.Refuse("a file of mode "+info.Mode().String(), "a regular file")
	}
	if err == nil {
		err = checkFile(info, access)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// Read returns the contents of a file of at most maxSize bytes, opened with [Open].
func Read(path string, maxSize int, access Access) ([]byte, error) {
	f, _, err := Open(path, os.O_RDONLY, access)
	return read(f, err, maxSize)
}

// ReadIn is [Read] for a file of an open directory. A symbolic link is followed only within
// the directory.
func ReadIn(dir *os.Root, name string, maxSize int, access Access) ([]byte, error) {
	opened, err := dir.OpenFile(name, os.O_RDONLY|openNoFollow, 0)
	f, _, err := check(opened, err, func() (fs.FileInfo, error) { return dir.Lstat(name) }, access)
	return read(f, err, maxSize)
}

func read(f *os.File, err error, maxSize int) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, int64(maxSize)+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxSize {
		return nil, CheckFile.Refuse("a larger file", "at most "+strconv.Itoa(maxSize)+" bytes")
	}
	return content, nil
}

// Create makes a file of mode 0600 with what fill writes to it. It is on disk when Create
// returns. An existing file is left alone: the error wraps [fs.ErrExist]. fill may open the
// file again by name. The file system must support hard links.
func Create(path string, fill func(f *os.File) error) error {
	return write(path, fill, (*os.Root).Link) // unlike a rename, never overwrites a file
}

// Replace is like [Create], but replaces a file that exists: a reader finds the whole old file
// or the whole new one.
func Replace(path string, fill func(f *os.File) error) error {
	return write(path, fill, (*os.Root).Rename)
}

// ReplaceIn is [Replace] for a file of an open directory.
func ReplaceIn(dir *os.Root, name string, fill func(f *os.File) error) error {
	return writeIn(dir, name, fill, (*os.Root).Rename)
}

// Content fills a file with bytes, for [Create] and [Replace].
func Content(content []byte) func(f *os.File) error {
	return func(f *os.File) error {
		_, err := f.Write(content)
		return err
	}
}

// temporaryName is the name under which a file is written.
func temporaryName(name, unique string) string { return "." + name + "." + unique + ".tmp" }

// Sweep removes what writers of a file that were killed have left behind in its directory. The
// caller knows that no other process writes the file now.
func Sweep(dir *os.Root, name string) {
	entries, _ := fs.ReadDir(dir.FS(), ".")
	for _, e := range entries {
		unique := strings.TrimSuffix(strings.TrimPrefix(e.Name(), "."+name+"."), ".tmp")
		// The temporary file of another name that begins with this one and a dot has a dot here too.
		if e.Name() == temporaryName(name, unique) && !strings.Contains(unique, ".") {
			_ = dir.Remove(e.Name()) // if not this time, then the next
		}
	}
}

type place func(dir *os.Root, from, to string) error

func write(path string, fill func(f *os.File) error, put place) (err error) {
	parent, base := filepath.Split(path)
	if base == "" {
		return errors.New(strconv.Quote(path) + " names no file")
	}
	dir, err := os.OpenRoot(filepath.Clean(parent))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	return writeIn(dir, base, fill, put)
}

func writeIn(dir *os.Root, name string, fill func(f *os.File) error, put place) (err error) {
	temporary := temporaryName(name, rand.Text())
	f, err := dir.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if removed := dir.Remove(temporary); !errors.Is(removed, fs.ErrNotExist) { // it is in its place
			err = errors.Join(err, removed)
		}
	}()
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := put(dir, temporary, name); err != nil {
		return err
	}
	return syncDirectory(dir)
}

// Sync flushes to disk a file that another process wrote.
func Sync(path string) error {
	f, _, err := Open(path, os.O_RDWR, Private)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(syncDirectory(dir), dir.Close())
}
