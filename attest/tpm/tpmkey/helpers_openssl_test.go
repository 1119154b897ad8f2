package tpmkey

import (
	"os/exec"
	"strings"
	"testing"
)

// openSSL runs one command of OpenSSL, if it is installed.
func openSSL(t *testing.T, stdin []byte, args ...string) {
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
