//go:build unix

package tpm

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

// A directory in which nothing can be made: the TPM is not told anything.
func TestEndorsementPasswordInUnwritableDirectory(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	dir := mounttest.Disk(t)
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
	tpm := tpmlab.NewTPM(t)
	path := filepath.Join(mounttest.Disk(t), "endorsement")
	content := strings.Repeat("A", 32) + "\n"
	testkit.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	testkit.NoError(t, os.Chmod(path, 0o644))
	if _, err := EndorsementPassword(t.Context(), tpm, path); !errors.Is(err, checkPasswordFile) {
		t.Errorf("got %v, want checkPasswordFile", err)
	}
	if string(readAll(t, path)) != content {
		t.Error("the file was changed")
	}
	checkEndorsementIs(t, tpm, nil)
}
