package membership

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// writeInPlace writes a file as cp does: over the same inode, which it cuts off first.
func writeInPlace(t testing.TB, path string, text []byte) {
	t.Helper()
	testkit.NoError(t, os.WriteFile(path, text, 0o600))
}

// thiefOf is another machine's claim to a node's name.
func thiefOf(node string) Claim {
	c := fileClaim("thief")
	c.NodeName = node
	return c
}

// closedFile is a registry's file with bound records, and the records in it.
func closedFile(t testing.TB, nodes int) (path string, text []byte, want []*Record) {
	t.Helper()
	path = newRegistryFile(t)
	r := testkit.Must(OpenFileRegistry(t.Context(), path, fileScope, RegistryOptions{}))
	for i := range nodes {
		c := fileClaim(fmt.Sprintf("node-%d", i))
		bound, end := joinFile(t, r, c, time.Now()), time.Now().Add(time.Hour)
		issued := csr.IssuedRecord{CredentialID: "X509SHA256=" + c.NodeName, NodeName: c.NodeName, Machine: string(c.Machine), MachineUID: c.MachineUID, NotAfter: end}
		bound = testkit.Must(r.Bind(t.Context(), bound, end, &issued))
		want = append(want, bound)
	}
	testkit.NoError(t, r.Close())
	text = testkit.Must(os.ReadFile(path))
	return path, text, want
}

// opened opens a file; nil if it was refused as damaged.
func opened(t testing.TB, path string) *FileRegistry {
	t.Helper()
	r, err := OpenFileRegistry(t.Context(), path, fileScope, RegistryOptions{})
	if err != nil && !errors.Is(err, checkRegistryFile) {
		t.Fatalf("got %v, want checkRegistryFile", err)
	}
	return r
}

// differs returns the first record that a registry lost or changed without an error, before and after a
// write, and closes the registry.
func differs(t testing.TB, r *FileRegistry, want []*Record) string {
	t.Helper()
	defer r.Close()
	for _, when := range []string{"", " after a write"} {
		for _, w := range want {
			for what, find := range map[string]func() (*Record, error){
				"name":    func() (*Record, error) { return r.Lookup(t.Context(), w.NodeName) },
				"machine": func() (*Record, error) { return r.LookupMachine(t.Context(), w.Machine) },
				"UID":     func() (*Record, error) { return r.LookupMachineUID(t.Context(), w.MachineUID) },
			} {
				if got, err := find(); err == nil && !cmp.Equal(got, w) {
					return w.NodeName + " by " + what + when
				}
			}
		}
		if _, err := r.Reserve(t.Context(), fileClaim("another"), time.Now().Add(time.Minute)); err != nil {
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
			path := newRegistryFile(t)
			fillFile(t, path, before)
			r := openFile(t, path, nil)
			backup := testkit.Must(os.ReadFile(path))
			for i := range after {
				joinFile(t, r, fileClaim(fmt.Sprintf("node-%d", i)), time.Now())
			}
			writeInPlace(t, path, backup)
			if (before+after)%2 == 0 { // a write first, or a look-up
				if _, err := r.Reserve(t.Context(), thiefOf("node-1"), time.Now().Add(time.Minute)); !errors.Is(err, checkRegistryFile) {
					t.Errorf("%d and %d records: a thief's claim: got %v, want checkRegistryFile", before, after, err)
				}
			}
			for range 2 {
				if got, err := r.Lookup(t.Context(), "node-1"); !errors.Is(err, checkRegistryFile) {
					t.Errorf("%d and %d records: a look-up: got %v, %v, want checkRegistryFile", before, after, got, err)
				}
			}
			if _, err := r.Reserve(t.Context(), thiefOf("node-1"), time.Now().Add(time.Minute)); !errors.Is(err, checkRegistryFile) {
				t.Errorf("%d and %d records: a thief's claim: got %v, want checkRegistryFile", before, after, err)
			}
		}
	}
	t.Run("a newer one", func(t *testing.T) {
		_, newer, _ := closedFile(t, 4)
		path := newRegistryFile(t)
		r := openFile(t, path, nil)
		writeInPlace(t, path, newer)
		for range 2 {
			if got, err := r.Lookup(t.Context(), "node-9"); !errors.Is(err, checkRegistryFile) {
				t.Errorf("got %v, %v, want checkRegistryFile", got, err)
			}
		}
	})
}

// One bit of each byte is flipped: the file is refused.
func TestFlippedBits(t *testing.T) {
	path, good, want := closedFile(t, 4)
	for at := range good {
		bad := bytes.Clone(good)
		bad[at] ^= 1 << (at % 8)
		writeInPlace(t, path, bad)
		if r := opened(t, path); r != nil {
			t.Errorf("byte %d, bit %d, near %q: opened", at, at%8, good[max(0, at-12):min(len(good), at+12)])
			testkit.NoError(t, r.Close())
		}
	}
	writeInPlace(t, path, good)
	if r := opened(t, path); r == nil || differs(t, r, want) != "" {
		t.Error("the good file has other records")
	}
}

// A file that is cut off anywhere, or has a page of zeros, is refused, and the good one can be
// opened in its place at once.
func TestCutsAndZeros(t *testing.T) {
	path, good, want := closedFile(t, 8)
	try := func(what string, bad []byte) {
		writeInPlace(t, path, bad)
		if r := opened(t, path); r != nil {
			t.Errorf("%s: opened", what)
			testkit.NoError(t, r.Close())
		}
	}
	for at := range good {
		try(fmt.Sprintf("cut at %d", at), good[:at])
	}
	const page = 512
	for at := 0; at < len(good); at += page {
		bad := bytes.Clone(good)
		clear(bad[at:min(at+page, len(bad))])
		try(fmt.Sprintf("zeros from %d", at), bad)
	}
	writeInPlace(t, path, good)
	if r := opened(t, path); r == nil || differs(t, r, want) != "" {
		t.Error("the good file has other records")
	}
}

// A line that the head does not cover yet is a call that was interrupted. If it is whole, its change is made;
// if not, all of it is removed, whatever the disk has in its place.
func TestInterruptedWrites(t *testing.T) {
	path := newRegistryFile(t)
	r := openFile(t, path, nil)
	old := joinFile(t, r, fileClaim("old"), time.Now())
	before := testkit.Must(os.ReadFile(path))
	late := testkit.Must(r.Reserve(t.Context(), fileClaim("late"), time.Now().Add(time.Minute)))
	after := testkit.Must(os.ReadFile(path))
	testkit.NoError(t, r.Close())
	uncovered := append(bytes.Clone(before[:headSize]), after[headSize:]...)
	line := after[len(before):]
	garbled := bytes.Clone(uncovered)
	garbled[len(before)+40] ^= 1
	try := func(what string, text []byte, want *Record) {
		writeInPlace(t, path, text)
		r := opened(t, path)
		if r == nil {
			t.Errorf("%s: refused", what)
			return
		}
		if got, err := r.Lookup(t.Context(), "late"); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", what, got, err, want)
		}
		if got, err := r.Lookup(t.Context(), "old"); err != nil || !cmp.Equal(got, old) {
			t.Errorf("%s: the record before: got %v, %v", what, got, err)
		}
		joinFile(t, r, fileClaim("next"), time.Now())
		testkit.NoError(t, r.Close())
		again := opened(t, path)
		if again == nil {
			t.Errorf("%s: refused after a write", what)
			return
		}
		if got, err := again.Lookup(t.Context(), "next"); err != nil || got == nil {
			t.Errorf("%s: a write afterwards: got %v, %v", what, got, err)
		}
		testkit.NoError(t, again.Close())
	}
	try("whole", uncovered, late)
	for n := range line {
		try(fmt.Sprintf("%d bytes of it", n), uncovered[:len(before)+n], nil)
	}
	try("zeros", append(bytes.Clone(before), make([]byte, len(line))...), nil)
	try("another bit", garbled, nil)
	try("a line of another file", append(bytes.Clone(before), before[headSize:]...), nil)
	try("a long line", append(bytes.Clone(before), bytes.Repeat([]byte("x"), 2*maxLineSize)...), nil)
}

// A registry whose file was damaged keeps its lock until it is closed; then the good file is put back and
// opened.
func TestLockAfterDamage(t *testing.T) {
	path, good, want := closedFile(t, 100)
	r := testkit.Must(OpenFileRegistry(t.Context(), path, fileScope, RegistryOptions{}))
	testkit.NoError(t, os.Truncate(path, 100))
	if _, err := r.Lookup(t.Context(), "node-7"); !errors.Is(err, checkRegistryFile) {
		t.Fatalf("got %v, want checkRegistryFile", err)
	}
	testkit.NoError(t, r.Close())
	writeInPlace(t, path, good)
	again := opened(t, path)
	if again == nil || differs(t, again, want) != "" {
		t.Error("the good file was not opened")
	}
	if _, err := r.Lookup(t.Context(), "node-7"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("the first one afterwards: got %v", err)
	}
}

// sealed writes lines with right checksums into a file.
func sealed(t testing.TB, path string, lines ...string) {
	t.Helper()
	j, text := journal{size: headSize}, []byte{}
	for _, line := range lines {
		text = append(text, j.line([]byte(line))...)
	}
	writeInPlace(t, path, append(head(j.size), text...))
}

// Lines that say what no registry writes are refused, although their checksums are right.
func TestSealedLinesRefused(t *testing.T) {
	const first = `{"Format":"nodeattest registry 3","Cluster":"cluster-1","Scope":"ek P-256","Version":9}`
	record := func(name, machine, uid, version string) string {
		r := Record{Claim: Claim{NodeName: name, Machine: attest.Identity("test:" + machine), MachineUID: uid}, State: StateBound, Version: version}
		return string(testkit.Must(json.Marshal(r)))
	}
	a := `[{"Put":` + record("a", "a", "a", "1") + `}]`
	for name, c := range map[string]struct {
		lines []string
		good  bool
	}{
		"none":                    {[]string{first}, true},
		"one":                     {[]string{first, a}, true},
		"one again":               {[]string{first, a, a}, true},
		"removed":                 {[]string{first, a, `[{"Drop":"a"}]`, `[{"Put":` + record("b", "a", "a", "10") + `}]`}, true},
		"no header":               {[]string{a}, false},
		"no line":                 {nil, false},
		"an empty header":         {[]string{""}, false},
		"another format":          {[]string{strings.Replace(first, "registry 3", "registry 2", 1)}, false},
		"another cluster":         {[]string{strings.Replace(first, "cluster-1", "cluster-2", 1)}, false},
		"no cluster":              {[]string{strings.Replace(first, "cluster-1", "", 1)}, false},
		"another scope":           {[]string{strings.Replace(first, "256", "384", 1)}, false},
		"a member more":           {[]string{strings.Replace(first, "{", `{"A":1,`, 1)}, false},
		"a header without JSON":   {[]string{"x"}, false},
		"two of one machine":      {[]string{first, a, `[{"Put":` + record("b", "a", "b", "2") + `}]`}, false},
		"two of one Machine UID":  {[]string{first, a, `[{"Put":` + record("b", "b", "a", "2") + `}]`}, false},
		"no changes":              {[]string{first, `[]`}, false},
		"null":                    {[]string{first, `null`}, false},
		"a change of null":        {[]string{first, `[null]`}, false},
		"an empty change":         {[]string{first, `[{}]`}, false},
		"stored and removed":      {[]string{first, strings.Replace(a, "}]", `,"Drop":"a"}]`, 1)}, false},
		"an empty line":           {[]string{first, ""}, false},
		"a space":                 {[]string{first, strings.Replace(a, ":", ": ", 1)}, false},
		"a record without claims": {[]string{first, `[{"Put":{}}]`}, false},
		"no version":              {[]string{first, `[{"Put":` + record("a", "a", "a", "") + `}]`}, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := newRegistryFile(t)
			sealed(t, path, c.lines...)
			r := opened(t, path)
			if (r != nil) != c.good {
				t.Errorf("opened: %t, want %t", r != nil, c.good)
			}
			testkit.NoError(t, r.Close())
		})
	}
	for want, line := range map[string]string{
		`cluster "", want "cluster-1"`:          strings.Replace(first, "cluster-1", "", 1),
		`cluster "cluster-2", want "cluster-1"`: strings.Replace(first, "cluster-1", "cluster-2", 1),
	} {
		path := newRegistryFile(t)
		sealed(t, path, line)
		if _, err := OpenFileRegistry(t.Context(), path, fileScope, RegistryOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A head that covers less than itself is refused.
func TestSmallHeads(t *testing.T) {
	path, good, _ := closedFile(t, 1)
	for _, size := range []int64{-1, 0, headSize - 1} {
		writeInPlace(t, path, append(head(size), good[headSize:]...))
		if r := opened(t, path); r != nil {
			t.Errorf("%d: opened", size)
			testkit.NoError(t, r.Close())
		}
	}
}

// A version is never used again, whether its record was removed before or after the file was written anew.
func TestVersionsAreNew(t *testing.T) {
	path := newRegistryFile(t)
	seen := map[string]bool{}
	for i := range 4 {
		r := testkit.Must(OpenFileRegistry(t.Context(), path, fileScope, RegistryOptions{}))
		if i == 2 {
			testkit.NoError(t, r.store.rewrite())
		}
		record := testkit.Must(r.Reserve(t.Context(), fileClaim("node-1"), time.Now().Add(time.Minute)))
		if seen[record.Version] {
			t.Errorf("version %s once more", record.Version)
		}
		seen[record.Version] = true
		testkit.Must(r.Release(t.Context(), "node-1", "uid-node-1"))
		testkit.NoError(t, r.Close())
	}
}

// FuzzOpenFileRegistry: a file is refused with checkRegistryFile, or each of its records is found by its name, machine and
// UID.
func FuzzOpenFileRegistry(f *testing.F) {
	testkit.BeginFuzz(f)
	_, good, _ := closedFile(f, 2)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add(append(head(headSize), good[headSize:]...))
	path := filepath.Join(filepath.Dir(newRegistryFile(f)), "fuzzed")
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<20 {
			return
		}
		writeInPlace(t, path, text)
		r := opened(t, path)
		if r == nil {
			return
		}
		var records []*Record
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
