package boltregistry

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
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestConformance(t *testing.T) {
	attesttest.RunRegistry(t, func(t testing.TB, now func() time.Time) []membership.Registry {
		return []membership.Registry{open(t, newFile(t), now)}
	})
}

// An acknowledged record is found by each of its keys after the file is opened again.
func TestRecordsSurvive(t *testing.T) {
	path, now := newFile(t), time.Now()
	r := open(t, path, nil)
	want := join(t, r, claim("node-1"), now)
	reserved := testkit.Must(r.Reserve(t.Context(), claim("node-2"), now.Add(time.Minute)))
	join(t, r, claim("node-3"), now)
	testkit.Must(r.Release(t.Context(), "node-3", "uid-node-3"))
	testkit.NoError(t, r.Close())
	if _, err := r.Lookup(t.Context(), "node-1"); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: got %v", err)
	}
	r = open(t, path, nil)
	for _, record := range []*membership.Record{want, reserved} {
		for what, find := range map[string]func() (*membership.Record, error){
			"name":    func() (*membership.Record, error) { return r.Lookup(t.Context(), record.NodeName) },
			"machine": func() (*membership.Record, error) { return r.LookupMachine(t.Context(), record.Machine) },
			"UID":     func() (*membership.Record, error) { return r.LookupMachineUID(t.Context(), record.MachineUID) },
		} {
			if got, err := find(); err != nil || !cmp.Equal(got, record) {
				t.Errorf("%s by %s: got %v, %v", record.NodeName, what, got, err)
			}
		}
	}
	if got, err := r.Lookup(t.Context(), "node-3"); err != nil || got == nil || got.State != membership.StateResting {
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
	path := newFile(t)
	join(t, open(t, path, nil), claim("node-1"), time.Now())
	if err := Create(t.Context(), path, testScope); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file: got %v", err)
	}
	if err := Create(t.Context(), path+"-2", membership.Scope{Cluster: "cluster-1", Road: attest.RoadEK}); !errors.Is(err, membership.CheckRegistryScope) {
		t.Errorf("no scope: got %v", err)
	}
	if err := Create(t.Context(), filepath.Join(path+"-absent", "registry"), testScope); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: got %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Create(over, path+"-3", testScope); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is over: got %v", err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v, want the registry alone", entries, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("got mode %v, %v", info.Mode(), err)
	}
}

func TestOpenRefuses(t *testing.T) {
	good := newFile(t)
	content := testkit.Must(os.ReadFile(good))
	page := os.Getpagesize()
	damaged := append([]byte{}, content...)
	for i := range 2 * page {
		damaged[i] ^= 0xff
	}
	for _, c := range []struct {
		name    string
		content []byte
		scope   membership.Scope
		want    error
	}{
		{"good", content, testScope, nil},
		{"another scope", content, membership.Scope{Cluster: "cluster-1", Road: attest.RoadEK, IdentityClass: "P-384"}, checkFile},
		{"no scope", content, membership.Scope{Cluster: "cluster-1", Road: attest.RoadEK}, membership.CheckRegistryScope},
		{"another cluster", content, membership.Scope{Cluster: "cluster-2", Road: attest.RoadEK, IdentityClass: "P-256"}, checkFile},
		{"no cluster", content, membership.Scope{Road: attest.RoadEK, IdentityClass: "P-256"}, membership.CheckRegistryScope},
		{"empty", nil, testScope, checkFile},
		{"text", []byte("# a list\n"), testScope, checkFile},
		{"both heads damaged", damaged, testScope, checkFile},
		{"cut off after the heads", content[:2*page], testScope, checkFile},
		{"cut off", content[:len(content)-page], testScope, nil}, // a page that is free
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(filepath.Dir(good), "copy")
			testkit.NoError(t, os.WriteFile(path, c.content, 0o600))
			r, err := Open(t.Context(), path, c.scope, membership.RegistryOptions{})
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if err == nil {
				err = r.Close()
			} else {
				err = nil
			}
			testkit.NoError(t, errors.Join(err, os.Remove(path)))
		})
	}
	if _, err := Open(t.Context(), good+"-absent", testScope, membership.RegistryOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: got %v", err)
	}
	if _, err := os.Stat(good + "-absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open made a file: %v", err)
	}
}

// A second Registry of one process would wait for itself: it is told at once.
func TestOpenTwiceInOneProcess(t *testing.T) {
	path := newFile(t)
	first := open(t, path, nil)
	for _, name := range []string{path, filepath.Join(filepath.Dir(path), ".", "..", filepath.Base(filepath.Dir(path)), "registry")} {
		_, err := Open(t.Context(), name, testScope, membership.RegistryOptions{})
		if !errors.Is(err, ErrInUse) || errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), "this process") {
			t.Errorf("%s: got %v, want ErrInUse by this process, and no retry", name, err)
		}
	}
	if _, err := first.Lookup(t.Context(), "node-1"); err != nil {
		t.Errorf("the first one afterwards: %v", err)
	}
	open(t, newFile(t), nil) // another file
	testkit.NoError(t, first.Close())
	second := open(t, path, nil)
	if err := first.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	_ = second.file.failed(errors.New("a full disk")) // which closes the file until the next call
	third := open(t, path, nil)
	if _, err := second.Lookup(t.Context(), "node-1"); !errors.Is(err, ErrInUse) || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("its file is another's now: got %v, want ErrInUse to be tried again", err)
	}
	testkit.NoError(t, third.Close())
	if _, err := second.Lookup(t.Context(), "node-1"); err != nil {
		t.Errorf("and free again: %v", err)
	}
}

// A writer that waits for another one can give up.
func TestUpdateHonoursItsContext(t *testing.T) {
	r := open(t, newFile(t), nil)
	r.file.writer <- struct{}{} // another call writes
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := r.Reserve(ctx, claim("node-1"), time.Now().Add(time.Minute)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	<-r.file.writer
	over, cancel := context.WithCancel(t.Context())
	err := r.file.Update(over, func(w membership.Tx) error {
		_, err := w.Put(membership.Record{Claim: claim("node-1"), State: membership.StateBound})
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
	path := newFile(t)
	copied := testkit.Must(os.ReadFile(path))
	r := open(t, path, nil)
	record := join(t, r, claim("node-1"), time.Now())
	testkit.NoError(t, os.WriteFile(path+"-old", copied, 0o600))
	testkit.NoError(t, os.Rename(path+"-old", path))
	if _, err := r.Bind(t.Context(), record, time.Now().Add(24*time.Hour), nil); !errors.Is(err, checkFile) {
		t.Errorf("a write: got %v, want checkFile", err)
	}
	if _, err := r.Lookup(t.Context(), "node-1"); !errors.Is(err, checkFile) {
		t.Errorf("a look-up: got %v, want checkFile", err)
	}
	testkit.NoError(t, os.Remove(path))
	if _, err := r.Lookup(t.Context(), "node-1"); !errors.Is(err, checkFile) {
		t.Errorf("no file: got %v, want checkFile", err)
	}
}

// A refusal and a call that changes nothing write nothing.
func TestNothingWrittenForNothing(t *testing.T) {
	r := open(t, newFile(t), nil)
	bound := join(t, r, claim("node-1"), time.Now())
	before := r.file.db.Stats()
	taken := claim("node-1")
	taken.Machine = "test:another"
	if _, err := r.Reserve(t.Context(), taken, time.Now().Add(time.Minute)); !errors.Is(err, attest.Check("registry-name")) {
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
	if after := r.file.db.Stats(); after.TxStats.GetWrite() != before.TxStats.GetWrite() {
		t.Errorf("%d pages were written", after.TxStats.GetWrite()-before.TxStats.GetWrite())
	}
}

// Records that have come to their end go with later writes, and their machine and UID are
// not taken from who has them by then.
func TestEndedRecordsGo(t *testing.T) {
	var at atomic.Int64
	at.Store(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC).Unix())
	now := func() time.Time { return time.Unix(at.Load(), 0) }
	r := open(t, newFile(t), now)
	const ended = 20
	for i := range ended {
		testkit.Must(r.Reserve(t.Context(), claim("old-"+string(rune('a'+i))), now().Add(time.Minute)))
	}
	at.Add(60)
	moved := claim("old-a")
	moved.NodeName = "new"
	want := join(t, r, moved, now())
	for i := range ended {
		join(t, r, claim("other-"+string(rune('a'+i))), now())
	}
	left := 0
	err := r.file.View(t.Context(), func(reader membership.Tx) error {
		records, err := reader.After("old-", ended)
		for _, record := range records {
			if record.State == membership.StateReserved {
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
