package membership

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// An acknowledged record is found by each of its keys after the file is opened again.
func TestRecordsSurvive(t *testing.T) {
	path, now := newRegistryFile(t), time.Now()
	r := openFile(t, path, nil)
	want := joinFile(t, r, fileClaim("node-1"), now)
	reserved := testkit.Must(r.Reserve(t.Context(), fileClaim("node-2"), now.Add(time.Minute)))
	joinFile(t, r, fileClaim("node-3"), now)
	testkit.Must(r.Release(t.Context(), "node-3", "uid-node-3"))
	testkit.NoError(t, r.Close())
	if _, err := r.Lookup(t.Context(), "node-1"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after Close: got %v", err)
	}
	r = openFile(t, path, nil)
	for _, record := range []*Record{want, reserved} {
		for what, find := range map[string]func() (*Record, error){
			"name":    func() (*Record, error) { return r.Lookup(t.Context(), record.NodeName) },
			"machine": func() (*Record, error) { return r.LookupMachine(t.Context(), record.Machine) },
			"UID":     func() (*Record, error) { return r.LookupMachineUID(t.Context(), record.MachineUID) },
		} {
			if got, err := find(); err != nil || !cmp.Equal(got, record) {
				t.Errorf("%s by %s: got %v, %v", record.NodeName, what, got, err)
			}
		}
	}
	if got, err := r.Lookup(t.Context(), "node-3"); err != nil || got == nil || got.State != StateResting {
		t.Errorf("node-3: got %v, %v", got, err)
	}
	if got, err := r.LookupMachine(t.Context(), "test:node-3"); err != nil || got != nil {
		t.Errorf("the machine of node-3: got %v, %v", got, err)
	}
	var names []string
	for record, err := range r.Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, record.NodeName)
	}
	if !cmp.Equal(names, []string{"node-1", "node-2", "node-3"}) {
		t.Errorf("got %v", names)
	}
}

func TestCreate(t *testing.T) {
	path := newRegistryFile(t)
	joinFile(t, openFile(t, path, nil), fileClaim("node-1"), time.Now())
	if err := CreateFileRegistry(t.Context(), path, testScope); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file: got %v", err)
	}
	if err := CreateFileRegistry(t.Context(), path+"-2", Scope{Cluster: "cluster-1", Road: attest.RoadEK}); !errors.Is(err, CheckRegistryScope) {
		t.Errorf("no scope: got %v", err)
	}
	if err := CreateFileRegistry(t.Context(), filepath.Join(path+"-absent", "registry"), testScope); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: got %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := CreateFileRegistry(over, path+"-3", testScope); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is over: got %v", err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 2 {
		t.Errorf("got %v, %v, want the registry and its lock", entries, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("got mode %v, %v", info.Mode(), err)
	}
}

func TestOpenFileRegistryRefuses(t *testing.T) {
	good := newRegistryFile(t)
	content := testkit.Must(os.ReadFile(good))
	for _, c := range []struct {
		name    string
		content []byte
		scope   Scope
		want    error
	}{
		{"good", content, fileScope, nil},
		{"another scope", content, Scope{Cluster: "cluster-1", Road: attest.RoadEK, IdentityClass: "P-384"}, checkRegistryFile},
		{"no scope", content, Scope{Cluster: "cluster-1", Road: attest.RoadEK}, CheckRegistryScope},
		{"another cluster", content, Scope{Cluster: "cluster-2", Road: attest.RoadEK, IdentityClass: "P-256"}, checkRegistryFile},
		{"no cluster", content, Scope{Road: attest.RoadEK, IdentityClass: "P-256"}, CheckRegistryScope},
		{"empty", nil, fileScope, checkRegistryFile},
		{"text", []byte("# a list\n"), fileScope, checkRegistryFile},
		{"cut off in the head", content[:headSize-1], fileScope, checkRegistryFile},
		{"cut off after the head", content[:headSize], fileScope, checkRegistryFile},
		{"cut off", content[:len(content)-1], fileScope, checkRegistryFile},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(filepath.Dir(good), "copy")
			testkit.NoError(t, os.WriteFile(path, c.content, 0o600))
			r, err := OpenFileRegistry(t.Context(), path, c.scope, RegistryOptions{})
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			testkit.NoError(t, errors.Join(r.Close(), os.Remove(path)))
		})
	}
	if _, err := OpenFileRegistry(t.Context(), good+"-absent", fileScope, RegistryOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: got %v", err)
	}
	if made, err := filepath.Glob(good + "-absent*"); err != nil || len(made) > 0 {
		t.Errorf("files were made: %v, %v", made, err)
	}
}

// A second Registry of one process would wait for itself: it is told at once.
func TestOpenTwiceInOneProcess(t *testing.T) {
	path := newRegistryFile(t)
	first := openFile(t, path, nil)
	for _, name := range []string{path, filepath.Join(filepath.Dir(path), ".", "..", filepath.Base(filepath.Dir(path)), "registry")} {
		_, err := OpenFileRegistry(t.Context(), name, testScope, RegistryOptions{})
		if !errors.Is(err, ErrInUse) || errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), "this process") {
			t.Errorf("%s: got %v, want ErrInUse by this process, and no retry", name, err)
		}
	}
	if _, err := first.Lookup(t.Context(), "node-1"); err != nil {
		t.Errorf("the first one afterwards: %v", err)
	}
	openFile(t, newRegistryFile(t), nil) // another file
	testkit.NoError(t, first.Close())
	second := openFile(t, path, nil)
	if err := first.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := second.Lookup(t.Context(), "node-1"); err != nil {
		t.Errorf("the second one afterwards: %v", err)
	}
}

// A writer that waits for another one can give up.
func TestUpdateHonoursItsContext(t *testing.T) {
	r := openFile(t, newRegistryFile(t), nil)
	r.store.turns <- struct{}{} // another call writes
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := r.Reserve(ctx, fileClaim("node-1"), time.Now().Add(time.Minute)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	<-r.store.turns
	over, cancel := context.WithCancel(t.Context())
	err := r.store.Update(over, func(w Tx) error {
		_, err := w.Put(Record{Claim: fileClaim("node-1"), State: StateBound})
		cancel() // before the commit
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if got, err := r.Lookup(t.Context(), "node-1"); got != nil || err != nil {
		t.Errorf("got %v, %v, want nothing", got, err)
	}
}

// After an old copy was put back while the file is open, no write is acknowledged that the next start
// would not find.
func TestReplacedFile(t *testing.T) {
	path := newRegistryFile(t)
	copied := testkit.Must(os.ReadFile(path))
	r := openFile(t, path, nil)
	record := joinFile(t, r, fileClaim("node-1"), time.Now())
	testkit.NoError(t, os.WriteFile(path+"-old", copied, 0o600))
	testkit.NoError(t, os.Rename(path+"-old", path))
	if _, err := r.Bind(t.Context(), record, time.Now().Add(24*time.Hour), nil); !errors.Is(err, checkRegistryFile) {
		t.Errorf("a write: got %v, want checkRegistryFile", err)
	}
	if _, err := r.Lookup(t.Context(), "node-1"); !errors.Is(err, checkRegistryFile) {
		t.Errorf("a look-up: got %v, want checkRegistryFile", err)
	}
	testkit.NoError(t, os.Remove(path))
	if _, err := r.Lookup(t.Context(), "node-1"); !errors.Is(err, checkRegistryFile) {
		t.Errorf("no file: got %v, want checkRegistryFile", err)
	}
}

// A refusal and a call that changes nothing write nothing.
func TestNothingWrittenForNothing(t *testing.T) {
	path := newRegistryFile(t)
	r := openFile(t, path, nil)
	bound := joinFile(t, r, fileClaim("node-1"), time.Now())
	before := testkit.Must(os.Stat(path))
	taken := fileClaim("node-1")
	taken.Machine = "test:another"
	if _, err := r.Reserve(t.Context(), taken, time.Now().Add(time.Minute)); !errors.Is(err, checkRegistryName) {
		t.Errorf("got %v", err)
	}
	for _, err := range []error{
		func() error { _, err := r.Bind(t.Context(), bound, time.Time{}, nil); return err }(),
		func() error { _, err := r.Bind(t.Context(), bound, time.Now(), nil); return err }(),
		func() error { _, err := r.Release(t.Context(), "node-1", "uid-of-another"); return err }(),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if after := testkit.Must(os.Stat(path)); after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("%d bytes were written", after.Size()-before.Size())
	}
}

// Records that have come to their end go with later writes, and their machine and UID are
// not taken from who has them by then.
func TestEndedRecordsGo(t *testing.T) {
	var at atomic.Int64
	at.Store(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC).Unix())
	now := func() time.Time { return time.Unix(at.Load(), 0) }
	r := openFile(t, newRegistryFile(t), now)
	const ended = 20
	for i := range ended {
		testkit.Must(r.Reserve(t.Context(), fileClaim("old-"+string(rune('a'+i))), now().Add(time.Minute)))
	}
	at.Add(60)
	moved := fileClaim("old-a")
	moved.NodeName = "new"
	want := joinFile(t, r, moved, now())
	for i := range ended {
		joinFile(t, r, fileClaim("other-"+string(rune('a'+i))), now())
	}
	left := 0
	err := r.store.View(t.Context(), func(reader Tx) error {
		records, err := reader.After("old-", ended)
		for _, record := range records {
			if record.State == StateReserved {
				left++
			}
		}
		return err
	})
	if err != nil || left != 0 {
		t.Errorf("%d records that ended are still there, %v", left, err)
	}
	if got, err := r.LookupMachine(t.Context(), moved.Machine); err != nil || !cmp.Equal(got, want) {
		t.Errorf("the machine that moved: got %v, %v", got, err)
	}
	if got, err := r.LookupMachineUID(t.Context(), moved.MachineUID); err != nil || !cmp.Equal(got, want) {
		t.Errorf("the UID that moved: got %v, %v", got, err)
	}
}

// A look-up waits for a write to the file to end, as long as its context says, and not for calls that have not
// begun to write.
func TestLookupWaits(t *testing.T) {
	path := newRegistryFile(t)
	r := openFile(t, path, nil)
	r.store.turns <- struct{}{} // another call decides what to write
	testkit.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(1, 0)))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := r.Lookup(ctx, "node-1"); !errors.Is(err, checkRegistryFile) {
		t.Errorf("got %v, want %v", err, checkRegistryFile)
	}
	r.store.writing <- struct{}{}
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := r.Lookup(ctx, "node-1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	<-r.store.writing
	<-r.store.turns
}

// Another file in its place, another length and another time are noticed, each alone.
func TestFileChanges(t *testing.T) {
	for what, change := range map[string]func(path string, text []byte) error{
		"another file": func(path string, text []byte) error {
			return errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, text, 0o600))
		},
		"a longer file": func(path string, text []byte) error { return os.WriteFile(path, append(text, '\n'), 0o600) },
		"another time":  func(path string, _ []byte) error { return os.Chtimes(path, time.Time{}, time.Unix(1, 0)) },
		"no file":       func(path string, _ []byte) error { return os.Remove(path) },
	} {
		path := newRegistryFile(t)
		r := openFile(t, path, nil)
		text, before := testkit.Must(os.ReadFile(path)), testkit.Must(os.Stat(path)).ModTime()
		testkit.NoError(t, change(path, text))
		if what != "another time" && what != "no file" {
			testkit.NoError(t, os.Chtimes(path, time.Time{}, before))
		}
		if _, err := r.Lookup(t.Context(), "node-1"); !errors.Is(err, checkRegistryFile) {
			t.Errorf("%s: a look-up: got %v, want %v", what, err, checkRegistryFile)
		}
		if _, err := r.Reserve(t.Context(), fileClaim("node-1"), time.Now().Add(time.Minute)); !errors.Is(err, checkRegistryFile) {
			t.Errorf("%s: a write: got %v, want %v", what, err, checkRegistryFile)
		}
	}
}
