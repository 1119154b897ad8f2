package tpmlab

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Tools runs tpm2-tools against a software TPM of its own.
type Tools struct {
	T   *testing.T
	Dir string // where it runs them
	Env []string
}

// Run runs one command line in the directory; without a resource manager it leaves
// objects in the TPM, so it flushes them. It returns what the command printed.
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
	if err != nil {
		x.T.Fatal(err)
	}
	return b
}

// Write writes a file in the directory.
func (x *Tools) Write(name string, b []byte) {
	x.T.Helper()
	if err := os.WriteFile(filepath.Join(x.Dir, name), b, 0o600); err != nil {
		x.T.Fatal(err)
	}
}

// Area is the TPMT_PUBLIC of a loaded object, and the key that the tools print as PEM.
func (x *Tools) Area(context string) ([]byte, crypto.PublicKey) {
	x.T.Helper()
	x.Run("tpm2_readpublic -Q -c " + context + ".ctx -o " + context + ".pub")
	x.Run("tpm2_readpublic -Q -c " + context + ".ctx -f pem -o " + context + ".pem")
	block, _ := pem.Decode(x.Read(context + ".pem"))
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		x.T.Fatal(err)
	}
	return x.Read(context + ".pub")[2:], key // a TPM2B_PUBLIC
}

// StartTools starts swtpm on a socket in a new directory, or skips.
func StartTools(t *testing.T) *Tools {
	t.Helper()
	for _, name := range []string{"swtpm", "tpm2_certify"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed: apt-get install -y swtpm swtpm-tools tpm2-tools", name)
		}
	}
	// Not t.TempDir: its names are too long for a socket's path.
	dir, err := os.MkdirTemp("", "tools")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	var log bytes.Buffer
	cmd := exec.Command("swtpm", "socket", "--tpm2", "--tpmstate", "dir="+dir, "--flags", "not-need-init,startup-clear",
		"--server", "type=unixio,path="+socket, "--ctrl", "type=unixio,path="+socket+".ctrl")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	deadline := time.Now().Add(time.Minute)
	for {
		_, err1 := os.Stat(socket)
		_, err2 := os.Stat(socket + ".ctrl")
		if err1 == nil && err2 == nil {
			break
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Fatalf("swtpm does not start: %s", log.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return &Tools{T: t, Dir: dir, Env: append(os.Environ(), "TPM2TOOLS_TCTI=swtpm:path="+socket, "TSS2_LOG=all+NONE")}
}

// ToolsAKAttributes are an attestation key's, as the tools spell them.
const ToolsAKAttributes = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign"

// OpenSSL runs one command of OpenSSL, if it is installed.
func OpenSSL(t *testing.T, stdin []byte, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Log("openssl is not installed: not checked with it (Debian: apt-get install openssl)")
		return
	}
	cmd := exec.Command("openssl", args...)
	cmd.Stdin = strings.NewReader(string(stdin))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("openssl %s: %v: %s", strings.Join(args, " "), err, out)
	}
}
