//go:build unix

package tpm

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestPrivateFileModes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	if err := writePrivateFile(path, []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []fs.FileMode{0o640, 0o604, 0o660, 0o602, 0o700, 0o777, 0o601, 0o600 | fs.ModeSticky} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := readPrivateFile(path, 10); !errors.Is(err, ErrPasswordFile) || !strings.Contains(err.Error(), "want 0600") {
			t.Errorf("mode %v: got %v, want ErrPasswordFile", mode, err)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readPrivateFile(path, 10); err != nil {
		t.Error(err)
	}
}

func TestPrivateFileOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a file away")
	}
	path := filepath.Join(t.TempDir(), "secret")
	if err := writePrivateFile(path, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 65534, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := readPrivateFile(path, 10); !errors.Is(err, ErrPasswordFile) || !strings.Contains(err.Error(), "65534") {
		t.Errorf("got %v, want ErrPasswordFile with the owner", err)
	}
}

func TestPrivateFileThatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	file, link, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := writePrivateFile(file, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, fifo, dir} {
		if _, err := readPrivateFile(path, 10); !errors.Is(err, ErrPasswordFile) {
			t.Errorf("%s: got %v, want ErrPasswordFile", filepath.Base(path), err)
		}
	}
	if err := syncPrivateFile(link); err == nil {
		t.Error("a symbolic link was opened for writing")
	}
}

// A directory in which nothing can be made: the TPM is not told anything.
func TestEndorsementPasswordInUnwritableDirectory(t *testing.T) {
	tpm := newTPM(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "endorsement")
	if os.Geteuid() == 0 { // whom modes do not stop
		path = "/proc/endorsement"
	} else if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if _, err := EndorsementPassword(t.Context(), tpm, path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error that names the file", err)
	}
	checkEndorsementIs(t, tpm, nil)
}

func TestEndorsementPasswordInOpenFile(t *testing.T) {
	tpm := newTPM(t)
	path := filepath.Join(t.TempDir(), "endorsement")
	content := strings.Repeat("A", 32) + "\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := EndorsementPassword(t.Context(), tpm, path); !errors.Is(err, ErrPasswordFile) {
		t.Errorf("got %v, want ErrPasswordFile", err)
	}
	if string(readAll(t, path)) != content {
		t.Error("the file was changed")
	}
	checkEndorsementIs(t, tpm, nil)
}
