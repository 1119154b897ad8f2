//go:build unix

package membership

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// fillDisk is a process whose files may not grow for a while, as on a full disk. It prints the writes that
// succeeded before, that the disk was full, and the writes after.
func fillDisk(path, _ string) error {
	ctx := context.Background()
	signal.Ignore(syscall.SIGXFSZ)
	r, err := OpenFileRegistry(ctx, path, fileScope, RegistryOptions{})
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	low := limit
	low.Cur = uint64(info.Size())
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &low); err != nil {
		return err
	}
	full := false
	for i := range 400 {
		_, err := r.Reserve(ctx, fileClaim("node-"+strconv.Itoa(i)), time.Now().Add(time.Hour))
		if err == nil {
			fmt.Println("node-" + strconv.Itoa(i))
			continue
		}
		if !full {
			fmt.Println("full", err)
			full = true
			if err := r.store.rewrite(); err != nil { // as once the file has become long
				return fmt.Errorf("written anew on a full disk: %w", err)
			}
			// Acknowledged writes can be read all the time.
			if record, err := r.Lookup(ctx, "node-0"); i > 0 && (err != nil || record == nil) {
				return fmt.Errorf("on a full disk: got %v, %v", record, err)
			}
			if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
				return err
			}
		} else {
			return fmt.Errorf("the disk is not full any more: %w", err)
		}
	}
	return nil
}

// A disk that is full loses nothing that was acknowledged, and when there is room again
// the registry goes on.
func TestFullDisk(t *testing.T) {
	path := newRegistryFile(t)
	out, err := process(path, "full", "").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	acknowledged, full := 0, false
	r := openFile(t, path, nil)
	for line := range strings.Lines(string(out)) {
		node := strings.TrimSpace(line)
		if strings.HasPrefix(node, "full ") {
			full = true
			continue
		}
		acknowledged++
		if record, err := r.Lookup(t.Context(), node); err != nil || record == nil {
			t.Errorf("%s: got %v, %v", node, record, err)
		}
	}
	if !full || acknowledged < 300 {
		t.Errorf("the disk was full %t, %d acknowledged: the test proves nothing", full, acknowledged)
	}
}

// A file that others can read or write, that is another user's or no file, and one in a
// directory in which others can put another in its place.
func TestOpenRefusesModes(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(path string) error
		want   error
	}{
		{"as it was made", func(string) error { return nil }, nil},
		{"readable by the group", func(p string) error { return os.Chmod(p, 0o640) }, checkRegistryFile},
		{"writable by all", func(p string) error { return os.Chmod(p, 0o602) }, checkRegistryFile},
		{"not writable", func(p string) error { return os.Chmod(p, 0o400) }, checkRegistryFile},
		{"set-user-ID", func(p string) error { return os.Chmod(p, 0o600|os.ModeSetuid) }, checkRegistryFile},
		{"directory of the group", func(p string) error { return os.Chmod(filepath.Dir(p), 0o770) }, checkRegistryFile},
		{"directory of all", func(p string) error { return os.Chmod(filepath.Dir(p), 0o702) }, checkRegistryFile},
		{"directory of all, sticky", func(p string) error { return os.Chmod(filepath.Dir(p), 0o777|os.ModeSticky) }, checkRegistryFile},
		{"directory that all can read", func(p string) error { return os.Chmod(filepath.Dir(p), 0o755) }, nil},
		{"symbolic link", func(p string) error {
			return errors.Join(os.Rename(p, p+"-2"), os.Symlink(p+"-2", p))
		}, syscall.ELOOP},
		{"pipe", func(p string) error { return errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o600)) }, checkRegistryFile},
		{"directory", func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o600)) }, syscall.EISDIR},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := newRegistryFile(t)
			testkit.NoError(t, c.change(path))
			r, err := OpenFileRegistry(t.Context(), path, fileScope, RegistryOptions{})
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
				// Whom modes do not stop opens a file that is not writable.
				if !(c.name == "not writable" && errors.Is(err, os.ErrPermission)) {
					t.Errorf("got %v, want %v", err, c.want)
				}
			}
			if err == nil {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
			err = CreateFileRegistry(t.Context(), path+"-new", fileScope)
			if refused := strings.HasPrefix(c.name, "directory of"); refused != errors.Is(err, checkRegistryFile) || !refused && err != nil {
				t.Errorf("Create: got %v", err)
			}
		})
	}
}

func TestOpenRefusesOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a file away")
	}
	for what, of := range map[string]func(path string) string{
		"file":      func(p string) string { return p },
		"directory": filepath.Dir,
	} {
		t.Run(what, func(t *testing.T) {
			path := newRegistryFile(t)
			testkit.NoError(t, os.Chown(of(path), 65534, -1))
			if _, err := OpenFileRegistry(t.Context(), path, fileScope, RegistryOptions{}); !errors.Is(err, checkRegistryFile) || !strings.Contains(err.Error(), "65534") {
				t.Errorf("got %v, want checkRegistryFile with the owner", err)
			}
		})
	}
}

// A file that is cut off while it is open ends in an error, not in a fault, and later
// calls do not touch it.
func TestCutOffWhileOpen(t *testing.T) {
	path := newRegistryFile(t)
	r := openFile(t, path, nil)
	var last *Record
	for i := range 200 {
		last = joinFile(t, r, fileClaim("node-"+strconv.Itoa(i)), time.Now())
	}
	testkit.NoError(t, os.Truncate(path, 0))
	for range 2 {
		if _, err := r.Lookup(t.Context(), "node-7"); !errors.Is(err, checkRegistryFile) {
			t.Errorf("a look-up: got %v, want checkRegistryFile", err)
		}
		if _, err := r.Bind(t.Context(), last, time.Now().Add(24*time.Hour), nil); !errors.Is(err, checkRegistryFile) {
			t.Errorf("a write: got %v, want checkRegistryFile", err)
		}
	}
	testkit.NoError(t, r.Close())
	if _, err := OpenFileRegistry(t.Context(), path, fileScope, RegistryOptions{}); !errors.Is(err, checkRegistryFile) {
		t.Errorf("opened again: got %v, want checkRegistryFile", err)
	}
}

// A new file whose directory could not be synced is not written to: after a loss of power, the former file
// would be back, without the changes.
func TestDirectoryNotSynced(t *testing.T) {
	path := newRegistryFile(t)
	r := testkit.Must(OpenFileRegistry(t.Context(), path, fileScope, RegistryOptions{}))
	want := joinFile(t, r, fileClaim("node-1"), time.Now())
	broken := errors.New("broken disk")
	r.store.sync, r.store.journal.most = func(string) error { return broken }, 0
	if _, err := r.Reserve(t.Context(), fileClaim("node-2"), time.Now().Add(time.Minute)); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if _, err := r.Reserve(t.Context(), fileClaim("node-3"), time.Now().Add(time.Minute)); !errors.Is(err, checkRegistryFile) {
		t.Errorf("the next call: got %v, want %v", err, checkRegistryFile)
	}
	testkit.NoError(t, r.Close())
	again := openFile(t, path, nil)
	if got, err := again.Lookup(t.Context(), "node-1"); err != nil || !cmp.Equal(got, want) || len(again.store.records.byName) != 1 {
		t.Errorf("opened again: got %v, %v and %d records", got, err, len(again.store.records.byName))
	}
}

// If no new file can be written, the old one stays open: it needs no file descriptor that other parts of the
// process may have taken. The next attempt is later.
func TestRewriteFails(t *testing.T) {
	path := newRegistryFile(t)
	s := openFile(t, path, nil).store
	open := s.journal.file
	s.records.byName = append(s.records.byName, &Record{LastEnd: lastSecond.Add(time.Second)}) // no JSON
	if err := s.rewrite(); err != nil || s.journal.file != open || s.journal.most != 2*s.journal.lines {
		t.Errorf("got %v, the file is the same: %t, next at %d lines", err, s.journal.file == open, s.journal.most)
	}
}

// A registry is locked although its lock file was removed, also after it was written anew; what a killed
// process has left of a new file is removed.
func TestLockFileRemoved(t *testing.T) {
	path := newRegistryFile(t)
	left := filepath.Join(filepath.Dir(path), ".registry.A.tmp")
	testkit.NoError(t, os.WriteFile(left, nil, 0o600))
	r := openFile(t, path, nil)
	if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: got %v", left, err)
	}
	for range 2 {
		testkit.NoError(t, os.Remove(path+".lock"))
		if _, err := OpenFileRegistry(t.Context(), path, fileScope, RegistryOptions{}); !errors.Is(err, ErrInUse) {
			t.Errorf("got %v, want %v", err, ErrInUse)
		}
		testkit.NoError(t, r.store.rewrite())
	}
	joinFile(t, r, fileClaim("node-1"), time.Now())
}

// A change whose sync fails, and one that could not be read again, is not made.
func TestAppendFails(t *testing.T) {
	s := openFile(t, newRegistryFile(t), nil).store
	put := func(r Record) error {
		return s.Update(t.Context(), func(w Tx) error { _, err := w.Put(r); return err })
	}
	before := s.journal
	if err := put(Record{Claim: fileClaim("node-1")}); err == nil || s.journal != before {
		t.Errorf("a record without a state: got %v", err)
	}
	null := testkit.Must(os.OpenFile(os.DevNull, os.O_RDWR, 0)) // it is written, but has no sync
	defer null.Close()
	s.journal.file = null
	err := put(Record{Claim: fileClaim("node-1"), State: StateBound})
	s.journal.file = before.file
	s.note()
	if err == nil || s.journal != before || len(s.records.byName) != 0 {
		t.Errorf("without a sync: got %v and %d records", err, len(s.records.byName))
	}
	testkit.NoError(t, put(Record{Claim: fileClaim("node-1"), State: StateBound}))
}

// Every file that this process has open is found among the others.
func TestManyOpenHere(t *testing.T) {
	for range 8 {
		s := openFile(t, newRegistryFile(t), nil).store
		defer func() {
			if !openHere(s.lock) {
				t.Errorf("%s: not found", s.path)
			}
		}()
	}
}
