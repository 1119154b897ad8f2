package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
)

const repository = "../../.."

// made generates everything into a new folder.
func made(t *testing.T) (string, *vector.Set) {
	t.Helper()
	dir := t.TempDir()
	writeFile(filepath.Join(dir, "docs", "protocol.md"), []byte(exampleBegin+exampleEnd))
	if err := run([]string{dir}); err != nil {
		t.Fatal(err)
	}
	set, err := vector.Load(os.DirFS(filepath.Join(dir, "vectors", "data")))
	if err != nil {
		t.Fatal(err)
	}
	return dir, set
}

// The generator makes the files of the repository: every file on which two runs
// agree is there, byte for byte, and of the others, which hold random values of a TPM,
// everything but these.
func TestGenerate(t *testing.T) {
	first, set := made(t)
	second, _ := made(t)
	names := files(t, first)
	if got := files(t, repository); !slices.Equal(got, names) {
		t.Errorf("run make vectors: the repository and the generator have other files: %q", difference(got, names))
	}
	same := 0
	for _, name := range names {
		a, b := read(t, first, name), read(t, second, name)
		if !bytes.Equal(a, b) {
			continue
		}
		same++
		if !bytes.Equal(a, read(t, repository, name)) {
			t.Errorf("run make vectors: %s differs", name)
		}
	}
	if same < len(names)/2 {
		t.Errorf("two runs agree on %d of %d files only", same, len(names))
	}
	committed, err := vector.Load(vector.Committed())
	if err != nil {
		t.Fatal(err)
	}
	if len(committed.Vectors) != len(set.Vectors) {
		t.Fatalf("%d vectors, the generator makes %d", len(committed.Vectors), len(set.Vectors))
	}
	for i, v := range set.Vectors {
		c := committed.Vectors[i]
		if c.Name != v.Name || c.Class != v.Class || c.Description != v.Description || c.Level != v.Level || c.Expect != v.Expect ||
			!slices.Equal(c.Also, v.Also) || c.Retry != v.Retry {
			t.Errorf("run make vectors: %s/%s differs", c.Class, c.Name)
		}
	}
}

// Fresh vectors replay as the ones in the repository do.
func TestFreshVectors(t *testing.T) {
	_, set := made(t)
	committed, err := vector.Load(vector.Committed())
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for i, v := range set.Vectors {
		fresh := v.Replay(ctx, &set.Environment)
		old := committed.Vectors[i].Replay(ctx, &committed.Environment)
		if (fresh == nil) != (old == nil) {
			t.Errorf("%s/%s: fresh %v, in the repository %v", v.Class, v.Name, fresh, old)
		}
	}
}

// files lists the generator's files below root.
func files(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"vectors/data/environment.json", "vectors/INDEX.md", "vectors/data/*/*", "attest/testdata/messages/*"} {
		matches, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil || len(matches) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(matches), err)
		}
		for _, m := range matches {
			rel, err := filepath.Rel(root, m)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Base(m) != "README.md" {
				out = append(out, filepath.ToSlash(rel))
			}
		}
	}
	slices.Sort(out)
	return out
}

func difference(a, b []string) []string {
	var out []string
	for _, s := range append(slices.Clone(a), b...) {
		if !slices.Contains(a, s) || !slices.Contains(b, s) {
			out = append(out, s)
		}
	}
	return out
}

func read(t *testing.T, root, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Old vectors go; the descriptions that people wrote stay.
func TestWriteReplaces(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"vectors/data/request/old.json", "vectors/README.md", "attest/testdata/messages/old.der", "attest/testdata/messages/README.md"} {
		writeFile(filepath.Join(dir, filepath.FromSlash(name)), []byte("x"))
	}
	set := &vector.Set{Vectors: []*vector.Vector{{Name: "b", Class: "request"}, {Name: "a", Class: "request", Expect: "x", Also: []string{"y"}, Retry: true}}}
	writeVectors(dir, set)
	writeMessages(dir, &messages{files: map[string][]byte{"new.der": {1}}})
	want := []string{"attest/testdata/messages/example.json", "attest/testdata/messages/new.der", "vectors/INDEX.md",
		"vectors/data/environment.json", "vectors/data/request/a.json", "vectors/data/request/b.json"}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if text := string(read(t, dir, "vectors/INDEX.md")); !strings.Contains(text, "`x` `y` (try again)") {
		t.Errorf("index: %s", text)
	}
	for _, name := range []string{"vectors/README.md", "attest/testdata/messages/README.md"} {
		if string(read(t, dir, name)) != "x" {
			t.Errorf("%s is gone", name)
		}
	}
	set.Vectors[0].Name = set.Vectors[1].Name
	err := func() (err error) {
		defer forge.Caught(&err)
		writeVectors(dir, set)
		return nil
	}()
	if err == nil {
		t.Error("two vectors of one name: no error")
	}
}

func TestUsage(t *testing.T) {
	if err := run([]string{"a", "b"}); err == nil {
		t.Error("two folders: no error")
	}
}

// A step that fails ends the generator with its error; a bug is not hidden.
func TestMust(t *testing.T) {
	failed := errors.New("failed")
	err := func() (err error) {
		defer forge.Caught(&err)
		forge.Must(1, failed)
		return nil
	}()
	if !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a panic of another kind was swallowed")
		}
	}()
	func() (err error) {
		defer forge.Caught(&err)
		panic("bug")
	}()
}
