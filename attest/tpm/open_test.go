package tpm

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func openTPM(t testing.TB, path string) transport.TPMCloser {
	t.Helper()
	opened, err := OpenTPM(path)
	testkit.NoError(t, err)
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	return opened
}

func TestPathsOfNoTPM(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	testkit.NoError(t, os.WriteFile(file, nil, 0o600))
	for path, want := range map[string]error{filepath.Join(dir, "absent"): fs.ErrNotExist, "": fs.ErrNotExist, file: refusal.CheckConfig, dir: refusal.CheckConfig} {
		t.Run(path, func(t *testing.T) {
			if opened, err := OpenTPM(path); !errors.Is(err, want) || opened != nil {
				t.Errorf("%q: got %v, want %v", path, err, want)
			}
		})
	}
	if runtime.GOOS != "linux" {
		return
	}
	if _, err := openTPM(t, "/dev/null").Send([]byte{0x80, 0x01, 0, 0, 0, 10, 0, 0, 0, 0}); err == nil {
		t.Error("/dev/null answers")
	}
}

// A device that is in use passes; one that is not there does not.
func TestExplainOpening(t *testing.T) {
	if err := explainOpening(&fs.PathError{Op: "open", Path: "/dev/tpm0", Err: syscall.EBUSY}); !errors.Is(err, refusal.ErrRetry) ||
		!errors.Is(err, syscall.EBUSY) || !strings.Contains(err.Error(), "/dev/tpmrm0") {
		t.Errorf("in use: %v", err)
	}
	if err := explainOpening(fs.ErrPermission); errors.Is(err, refusal.ErrRetry) || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("no permission: %v", err)
	}
}

// A key of a TPM that another process serves.
func TestOpenSwtpm(t *testing.T) {
	path, ok := strings.CutPrefix(tpmsim.Swtpm(t, tpmsim.Options{}).TCTI(), "swtpm:path=")
	if !ok {
		t.Fatal("swtpm has no path")
	}
	key, err := tpmkey.Create(t.Context(), openTPM(t, path), tpmkey.ECDSAP256, tpmkey.Options{})
	testkit.NoError(t, err)
	digest := sha256.Sum256([]byte("swtpm"))
	signature, err := key.Sign(nil, digest[:], crypto.SHA256)
	testkit.NoError(t, err)
	if !ecdsa.VerifyASN1(key.Public().(*ecdsa.PublicKey), digest[:], signature) {
		t.Error("another signature")
	}
	if err := key.Close(); err != nil {
		t.Error(err)
	}
}
