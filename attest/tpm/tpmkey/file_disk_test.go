package tpmkey

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nodeattest/nodeattest/tpmsim"
)

func TestFilesOnDisk(t *testing.T) {
	key, err := Create(t.Context(), tpmsim.New(t, tpmsim.Options{}), ECDSAP256, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer key.Close()
	file := key.File()
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	if _, err := ReadFile(path); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, checkFile) {
		t.Errorf("no file: %v", err)
	}
	for _, description := range []string{"first", "second"} {
		file.Description = description
		if err := file.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		read, err := ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(file, read, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(File{})); diff != "" {
			t.Errorf("written, read:\n%s", diff)
		}
	}
	if err := file.WriteFile(filepath.Join(dir, "absent", "key")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if err := (&File{}).WriteFile(path); !errors.Is(err, checkFile) {
		t.Errorf("no key: %v", err)
	}
	if read, err := ReadFile(path); err != nil || read.Description != "second" {
		t.Errorf("after what could not be written: %+v, %v", read, err)
	}
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, make([]byte, maxFileSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(large); !errors.Is(err, checkFile) {
		t.Errorf("a large file: %v", err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path); !errors.Is(err, checkFile) {
		t.Errorf("a file for a group: %v", err)
	}
}
