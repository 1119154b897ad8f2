package boltregistry

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// writeInPlace writes a file as cp does: over the same inode, which it cuts off first.
func writeInPlace(t testing.TB, path string, text []byte) {
	t.Helper()
	testkit.NoError(t, os.WriteFile(path, text, 0o600))
}

// thiefOf is another machine's claim to a node's name.
func thiefOf(node string) membership.Claim {
	c := claim("thief")
	c.NodeName = node
	return c
}

// closedFile is a registry's file with bound records, and the records in it.
func closedFile(t testing.TB, nodes int) (path string, text []byte, want []*membership.Record) {
	t.Helper()
	path = newFile(t)
	r := testkit.Must(Open(t.Context(), path, testScope, membership.RegistryOptions{}))
	for i := range nodes {
		c := claim(fmt.Sprintf("node-%d", i))
		bound, end := join(t, r, c, time.Now()), time.Now().Add(time.Hour)
		issued := csr.IssuedRecord{CredentialID: "X509SHA256=" + c.NodeName, NodeName: c.NodeName, Machine: string(c.Machine), MachineUID: c.MachineUID, NotAfter: end}
		bound = testkit.Must(r.Bind(t.Context(), bound, end, &issued))
		want = append(want, bound)
	}
	testkit.NoError(t, r.Close())
	text = testkit.Must(os.ReadFile(path))
	return path, text, want
}

// opened opens a file; nil if it was refused as damaged.
func opened(t testing.TB, path string) *Registry {
	t.Helper()
	r, err := Open(t.Context(), path, testScope, membership.RegistryOptions{})
	if err != nil && !errors.Is(err, checkFile) {
		t.Fatalf("got %v, want checkFile", err)
	}
	return r
}

// differs returns the first record that a registry lost or changed without an error, before and after a
// write, and closes the registry.
func differs(t testing.TB, r *Registry, want []*membership.Record) string {
	t.Helper()
	defer r.Close()
	r.file.db.NoSync = true // faster: no fault here is found by a sync
	for _, when := range []string{"", " after a write"} {
		for _, w := range want {
			for what, find := range map[string]func() (*membership.Record, error){
				"name":    func() (*membership.Record, error) { return r.Lookup(t.Context(), w.NodeName) },
				"machine": func() (*membership.Record, error) { return r.LookupMachine(t.Context(), w.Machine) },
				"UID":     func() (*membership.Record, error) { return r.LookupMachineUID(t.Context(), w.MachineUID) },
			} {
				if got, err := find(); err == nil && !cmp.Equal(got, w) {
					return w.NodeName + " by " + what + when
				}
			}
		}
		if _, err := r.Reserve(t.Context(), claim("another"), time.Now().Add(time.Minute)); err != nil {
			return ""
		}
	}
	return ""
}

// A file that is overwritten while it is open, with an older copy or another file, makes every later call
// fail: no name is given that only the former file had.
func TestCopiedOverWhileOpen(t *testing.T) {
	for _, before := range []int{1, 20, 40, 80} {
		for _, after := range []int{2, 3, 5, 8, 13, 21} {
			path := newFile(t)
			r := open(t, path, nil)
			fillWith(t, r, 0, before)
			backup := testkit.Must(os.ReadFile(path))
			for i := range after {
				join(t, r, claim(fmt.Sprintf("node-%d", i)), time.Now())
			}
			writeInPlace(t, path, backup)
			if (before+after)%2 == 0 { // a write first, or a look-up
				if _, err := r.Reserve(t.Context(), thiefOf("node-1"), time.Now().Add(time.Minute)); !errors.Is(err, checkFile) {
					t.Errorf("%d and %d records: a thief's claim: got %v, want checkFile", before, after, err)
				}
			}
			for range 2 {
				if got, err := r.Lookup(t.Context(), "node-1"); !errors.Is(err, checkFile) {
					t.Errorf("%d and %d records: a look-up: got %v, %v, want checkFile", before, after, got, err)
				}
			}
			if _, err := r.Reserve(t.Context(), thiefOf("node-1"), time.Now().Add(time.Minute)); !errors.Is(err, checkFile) {
				t.Errorf("%d and %d records: a thief's claim: got %v, want checkFile", before, after, err)
			}
		}
	}
	t.Run("a newer one", func(t *testing.T) {
		_, newer, _ := closedFile(t, 4)
		path := newFile(t)
		r := open(t, path, nil)
		writeInPlace(t, path, newer)
		for range 2 {
			if got, err := r.Lookup(t.Context(), "node-9"); !errors.Is(err, checkFile) {
				t.Errorf("got %v, %v, want checkFile", got, err)
			}
		}
	})
}

// A registry that closed its file after a failed write, and finds an older one in its place,
// does not open that one. It opens its own, and one that another process has written to
// meanwhile, if that hangs together.
func TestCopiedOverBeforeReopening(t *testing.T) {
	path := newFile(t)
	r := open(t, path, nil)
	join(t, r, claim("old"), time.Now())
	backup := testkit.Must(os.ReadFile(path))
	want := join(t, r, claim("node-1"), time.Now())
	_ = r.file.failed(errors.New("a full disk"))
	if got, err := r.Lookup(t.Context(), "node-1"); err != nil || !cmp.Equal(got, want) {
		t.Errorf("its own file: got %v, %v", got, err)
	}
	_ = r.file.failed(errors.New("a full disk"))
	other := opened(t, path)
	want = join(t, other, claim("node-2"), time.Now())
	testkit.NoError(t, other.Close())
	if got, err := r.Lookup(t.Context(), "node-2"); err != nil || !cmp.Equal(got, want) {
		t.Errorf("another's: got %v, %v", got, err)
	}
	_ = r.file.failed(errors.New("a full disk"))
	newer := testkit.Must(os.ReadFile(path))
	writeInPlace(t, path, backup)
	for range 2 {
		if got, err := r.Lookup(t.Context(), "node-1"); !errors.Is(err, checkFile) {
			t.Errorf("an older one: got %v, %v, want checkFile", got, err)
		}
	}
	writeInPlace(t, path, newer)
	if _, err := r.Lookup(t.Context(), "node-1"); err != nil {
		t.Errorf("its own again: %v", err)
	}
}

// One bit of each byte in use is flipped: a file that is opened anyway has the same records.
func TestFlippedBits(t *testing.T) {
	path, good, want := closedFile(t, 4)
	flips, refused := 0, 0
	for at := range good {
		if bytes.Count(good[max(0, at-16):min(len(good), at+16)], []byte{0}) == min(len(good), at+16)-max(0, at-16) {
			continue // a page's free space
		}
		flips++
		bad := bytes.Clone(good)
		bad[at] ^= 1 << (at % 8)
		writeInPlace(t, path, bad)
		r := opened(t, path)
		if r == nil {
			refused++
		} else if what := differs(t, r, want); what != "" {
			t.Errorf("byte %d, bit %d, near %q: %s", at, at%8, good[max(0, at-12):min(len(good), at+12)], what)
		}
	}
	t.Logf("%d flips, %d refused", flips, refused)
	if flips < 3504 || refused < flips/2 {
		t.Errorf("%d flips, %d refused: the test proves nothing", flips, refused)
	}
	writeInPlace(t, path, good)
	if r := opened(t, path); r == nil || differs(t, r, want) != "" {
		t.Error("the good file has other records")
	}
}

// A file that is cut off anywhere, or has a page of zeros, is refused, and the good one can be
// opened in its place at once.
func TestCutsAndZeros(t *testing.T) {
	path, good, want := closedFile(t, 60)
	page, opens := os.Getpagesize(), 0
	try := func(what string, bad []byte) {
		writeInPlace(t, path, bad)
		if r := opened(t, path); r != nil {
			opens++
			if forgotten := differs(t, r, want); forgotten != "" {
				t.Errorf("%s: %s", what, forgotten)
			}
		}
		writeInPlace(t, path, good)
		r, err := Open(t.Context(), path, testScope, membership.RegistryOptions{})
		if err != nil {
			t.Fatalf("%s, then the good file: %v", what, err)
		}
		testkit.NoError(t, r.Close())
	}
	cuts := 0
	for at := 0; at < len(good); at += max(1, len(good)/256) {
		try(fmt.Sprintf("cut at %d", at), good[:at])
		cuts++
	}
	for at := 0; at < len(good); at += page {
		bad := bytes.Clone(good)
		clear(bad[at:min(at+page, len(bad))])
		try(fmt.Sprintf("page %d of zeros", at/page), bad)
	}
	t.Logf("%d cuts and %d pages of zeros of %d bytes, %d opened", cuts, len(good)/page, len(good), opens)
	if cuts < 256 || opens > cuts/2 {
		t.Errorf("%d cuts, %d opened: the test proves nothing", cuts, opens)
	}
}

// A registry that met a damaged page has let its file go: the good one is put back and opened.
func TestLockAfterDamage(t *testing.T) {
	path, good, want := closedFile(t, 100)
	r := testkit.Must(Open(t.Context(), path, testScope, membership.RegistryOptions{}))
	testkit.NoError(t, os.Truncate(path, 2*int64(os.Getpagesize())))
	if _, err := r.Lookup(t.Context(), "node-7"); !errors.Is(err, checkFile) {
		t.Fatalf("got %v, want checkFile", err)
	}
	writeInPlace(t, path, good)
	again := opened(t, path)
	if again == nil || differs(t, again, want) != "" {
		t.Error("the good file was not opened")
	}
	if _, err := r.Lookup(t.Context(), "node-7"); !errors.Is(err, checkFile) {
		t.Errorf("the first one afterwards: got %v, want checkFile", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// FuzzOpen: a file is refused with checkFile, or each of its records is found by its name, machine and
// UID.
func FuzzOpen(f *testing.F) {
	testkit.BeginFuzz(f)
	_, good, _ := closedFile(f, 2)
	f.Add(good)
	f.Add(good[:len(good)/2])
	path := filepath.Join(filepath.Dir(newFile(f)), "fuzzed")
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<20 {
			return
		}
		writeInPlace(t, path, text)
		r := opened(t, path)
		if r == nil {
			return
		}
		var records []*membership.Record
		for record, err := range r.Records(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			records = append(records, record)
		}
		if what := differs(t, r, records); what != "" {
			t.Fatal(what)
		}
	})
}
