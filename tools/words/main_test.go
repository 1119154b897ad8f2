package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// folder writes files, by path and text.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestRefused: a refused word is found wherever a reader meets it, and nowhere else.
func TestRefused(t *testing.T) {
	for name, row := range map[string]struct{ file, text, want string }{
		"a comment":              {"a/a.go", "package a\n\n// A is what nobody reads.\nvar A = 1\n", "a/a.go:3: \"nobody\": name the actor: the API server, the caller, an administrator\n"},
		"a string":               {"a/a.go", "package a\n\nvar A = \"Whoever asks\"\n", "a/a.go:3: \"Whoever\": name the actor: the API server, the caller, an administrator\n"},
		"the second line":        {"a/a.go", "package a\n\n/*\nthere is none\n*/\n", "a/a.go:4: \"is none\": say what is missing, or not accepted\n"},
		"a page":                 {"docs/a.md", "The key stands beside the lock.\n", "docs/a.md:1: \"beside\": next to, with, or in addition to\n"},
		"a manifest":             {"a.yaml", "# counts for nothing\n", "a.yaml:1: \"counts for nothing\": say what is missing, or not accepted\n"},
		"a name":                 {"a/a.go", "package a\n\nvar Nobody = 1\n", ""},
		"a part of a word":       {"a.md", "nobodys, antinone\n", ""},
		"a counted word":         {"a/a.go", "package a\n\n// A is what is read.\nvar A = 1\n", ""},
		"a vector's string":      {"test/vectors/forge/a.go", "package a\n\nvar A = \"nobody\"\n", ""},
		"a generator's comment":  {"test/vectors/forge/a.go", "package a\n\n// nobody\nvar A = 1\n", "test/vectors/forge/a.go:3: \"nobody\": name the actor: the API server, the caller, an administrator\n"},
		"a published vector":     {"vectors/data/a.md", "nobody\n", ""},
		"a file of another kind": {"a.bin", "nobody\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(&out, folder(t, map[string]string{row.file: row.text}), false, false)
			if out.String() != row.want || (err == nil) != (row.want == "") {
				t.Errorf("got %q, %v, want %q", out.String(), err, row.want)
			}
		})
	}
}

// TestCounted: lines of comments are counted, strings and pages are not.
func TestCounted(t *testing.T) {
	root := folder(t, map[string]string{"a.go": "package a\n\n// A is what is read.\n// Those of b.\nvar A = \"nobody\"\n", "a.md": "nobody\n"})
	var out bytes.Buffer
	if err := run(&out, root, true, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 comment lines\n", "anybody                0 lines,   0.0 per thousand\n", "as a noun         1 lines, 500.0 per thousand\n", "those that                              1 lines, 500.0 per thousand\n"} {
		if !bytes.Contains(out.Bytes(), []byte(want)) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
