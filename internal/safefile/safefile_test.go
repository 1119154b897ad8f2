package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nodeattest/nodeattest/refusal"
)

func checkFiles(t testing.TB, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
}

// TestRefused adds a check to a refusal, and leaves other errors as they are.
func TestRefused(t *testing.T) {
	const check refusal.Check = "caller"
	refused := CheckFile.Refuse("a FIFO", "a regular file")
	if err := Refused(check, refused); !errors.Is(err, check) || !errors.Is(err, refused) || err.Error() != "caller: "+refused.Error() {
		t.Errorf("a refusal: got %v", err)
	}
	for _, other := range []error{nil, fs.ErrNotExist} {
		if err := Refused(check, other); err != other { //nolint:errorlint // the same, not one that wraps it
			t.Errorf("%v: got %v", other, err)
		}
	}
}

func TestCreate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	if _, err := Read(path, 10, Private); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, CheckFile) {
		t.Errorf("no file: got %v", err)
	}
	if err := Create(path, Content([]byte("first"))); err != nil {
		t.Fatal(err)
	}
	if err := Create(path, Content([]byte("second"))); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over another file: got %v", err)
	}
	if err := Sync(path); err != nil {
		t.Error(err)
	}
	for _, access := range []Access{Private, Trusted} {
		got, err := Read(path, 5, access)
		if err != nil || string(got) != "first" {
			t.Errorf("got %q, %v", got, err)
		}
		if got, err := Read(path, 4, access); !errors.Is(err, CheckFile) || got != nil {
			t.Errorf("over the size: got %q, %v, want %v", got, err, CheckFile)
		}
	}
	checkFiles(t, dir, "secret")
}

// TestSweep removes the temporary files of one name, as a writer that is killed leaves it.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	killed := errors.New("killed")
	if err := Replace(filepath.Join(dir, "secret"), Content(nil)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"secret", "secret.new", "s[e]cret"} {
		err := ReplaceIn(root, name, func(*os.File) error {
			for _, other := range []string{"secret", "secrets", "secre", "secret.ne", "new", "*", ""} {
				if other != name {
					Sweep(root, other)
				}
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
				t.Errorf("%s: got %v, %v", name, entries, err)
			}
			Sweep(root, name)
			checkFiles(t, dir, "secret")
			return killed
		})
		if !errors.Is(err, killed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cache")
	for _, content := range []string{"first", "second", ""} {
		if err := Replace(path, Content([]byte(content))); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(path, 10, Private); err != nil || string(got) != content {
			t.Errorf("got %q, %v, want %q", got, err, content)
		}
	}
	checkFiles(t, dir, "cache")
}

// The old file stays, and no temporary file.
func TestWriteFails(t *testing.T) {
	for name, write := range map[string]func(string, func(*os.File) error) error{"Create": Create, "Replace": Replace} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			full := filepath.Join(dir, "full")
			if err := os.MkdirAll(filepath.Join(full, "x"), 0o700); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{filepath.Join(dir, "absent", "secret"), dir + string(filepath.Separator), full, ""} {
				if err := write(path, Content([]byte("x"))); err == nil {
					t.Errorf("%q was written", path)
				}
			}
			cause := errors.New("a cause")
			path := filepath.Join(dir, "secret")
			if err := Create(path, Content([]byte("first"))); err != nil {
				t.Fatal(err)
			}
			if err := write(path, func(*os.File) error { return cause }); !errors.Is(err, cause) {
				t.Errorf("got %v, want %v", err, cause)
			}
			if err := write(path, func(f *os.File) error { return f.Close() }); !errors.Is(err, os.ErrClosed) {
				t.Errorf("a file that cannot be synced: got %v", err)
			}
			if got, err := Read(path, 10, Private); err != nil || string(got) != "first" {
				t.Errorf("got %q, %v", got, err)
			}
			checkFiles(t, dir, "full", "secret")
		})
	}
}

func TestSyncOfNoFile(t *testing.T) {
	if err := Sync(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
}
