package tpmlab

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// Tools runs tpm2-tools against a software TPM of its own.
type Tools struct {
	T   *testing.T
	TPM *tpmsim.TPM // nil for tools that need none
	Dir string      // where it runs them
	Env []string
}

// Run runs one command line in the directory; without a resource manager it leaves
// objects in the TPM, so it flushes them. It returns the command's output.
func (x *Tools) Run(line string) string {
	x.T.Helper()
	out, err := x.Try(line)
	if err != nil {
		x.T.Fatalf("%s: %v\n%s", line, err, out)
	}
	if strings.HasPrefix(line, "tpm2_") {
		if out, err := x.Try("tpm2_flushcontext -t"); err != nil {
			x.T.Fatalf("flush: %v\n%s", err, out)
		}
	}
	return out
}

// Try is Run where the command may fail, without the flushing.
func (x *Tools) Try(line string) (string, error) {
	words := strings.Fields(line)
	cmd := exec.CommandContext(x.T.Context(), words[0], words[1:]...)
	cmd.Dir, cmd.Env = x.Dir, x.Env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Read reads a file of the directory.
func (x *Tools) Read(name string) []byte {
	x.T.Helper()
	b, err := os.ReadFile(filepath.Join(x.Dir, name))
	testkit.NoError(x.T, err)
	return b
}

// Write writes a file in the directory.
func (x *Tools) Write(name string, b []byte) {
	x.T.Helper()
	testkit.NoError(x.T, os.WriteFile(filepath.Join(x.Dir, name), b, 0o600))
}

// Area is the TPMT_PUBLIC of a loaded object, and the key that the tools print as PEM.
func (x *Tools) Area(context string) ([]byte, crypto.PublicKey) {
	x.T.Helper()
	x.Run("tpm2_readpublic -Q -c " + context + ".ctx -o " + context + ".pub")
	x.Run("tpm2_readpublic -Q -c " + context + ".ctx -f pem -o " + context + ".pem")
	block, _ := pem.Decode(x.Read(context + ".pem"))
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	testkit.NoError(x.T, err)
	return x.Read(context + ".pub")[2:], key // a TPM2B_PUBLIC
}

// StartTools starts swtpm for the tools, or skips.
func StartTools(t *testing.T) *Tools {
	t.Helper()
	if _, err := exec.LookPath("tpm2_certify"); err != nil {
		t.Skip("tpm2-tools is not installed: apt-get install -y swtpm tpm2-tools")
	}
	tpm := tpmsim.Swtpm(t, Bare())
	return &Tools{T: t, TPM: tpm, Dir: t.TempDir(), Env: append(os.Environ(), "TPM2TOOLS_TCTI="+tpm.TCTI(), "TSS2_LOG=all+NONE")}
}

// ToolsAKAttributes are an attestation key's, as the tools spell them.
const ToolsAKAttributes = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign"
