package tpm

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestEndorsementPasswordInMemory: a password that a restart of the machine would lose is not made,
// and the TPM gets no command.
func TestEndorsementPasswordInMemory(t *testing.T) {
	if !mounttest.Enter(t) {
		return
	}
	dir := mounttest.Disk(t)
	tpm := tpmlab.NewTPM(t)
	counted := tpmsim.Faulty(tpm, nil)
	for name, in := range mounttest.InMemory(t, dir) {
		before := len(counted.Commands())
		_, err := EndorsementPassword(t.Context(), counted, filepath.Join(in, "password"))
		if !errors.Is(err, checkPasswordFile) {
			t.Errorf("%s: got %v, want %v", name, err, checkPasswordFile)
		}
		if n := len(counted.Commands()) - before; n != 0 {
			t.Errorf("%s: %d commands", name, n)
		}
		if left, err := filepath.Glob(filepath.Join(in, "*password*")); len(left) != 0 || err != nil {
			t.Errorf("%s: files %q, %v", name, left, err)
		}
	}
	checkEndorsementIs(t, tpm, nil)
	password, err := EndorsementPassword(t.Context(), tpm, filepath.Join(dir, "over-disk", "password"))
	if err != nil {
		t.Fatalf("an overlay over a disk: %v", err)
	}
	checkEndorsementIs(t, tpm, password.Reveal())
}
