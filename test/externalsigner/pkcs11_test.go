package externalsigner

import (
	"crypto/elliptic"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nodeattest/nodeattest/externalsigner/extsignertest"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// TestPKCS11 runs the program with its key in a PKCS #11 module, that of SoftHSM.
func TestPKCS11(t *testing.T) {
	t.Parallel()
	util, err := exec.LookPath("softhsm2-util")
	if err != nil {
		t.Skip("no softhsm2-util; to install it, run as root: apt-get install softhsm2")
	}
	const module = "/usr/lib/softhsm/libsofthsm2.so"
	dir := signerFolder(t)
	tokens := filepath.Join(dir, "tokens")
	if err := os.Mkdir(tokens, 0o700); err != nil {
		t.Fatal(err)
	}
	config := fmt.Appendf(nil, "directories.tokendir = %s\nlog.level = ERROR\n", tokens)
	env := "SOFTHSM2_CONF=" + controlplane.Write(t, dir, "softhsm2.conf", config)
	key := filepath.Join(dir, "key.pem")
	writeKey(t, key, newECDSA(t, elliptic.P384()))
	for _, args := range [][]string{
		{"--init-token", "--free", "--label", "cluster", "--pin", "1234", "--so-pin", "5678"},
		{"--import", key, "--token", "cluster", "--label", "accounts", "--id", "01", "--pin", "1234"},
	} {
		cmd := exec.Command(util, args...)
		cmd.Env = append(os.Environ(), env)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if err := os.Remove(key); err != nil { // it is in the token alone
		t.Fatal(err)
	}
	s := newSigner(t, build(t, "pkcs11"), dir, map[string]any{"pkcs11": map[string]any{
		"module": module, "token": "cluster", "key": "accounts", "pinFile": controlplane.Write(t, dir, "pin", []byte("1234\n")),
	}})
	s.env = []string{env}
	s.begin(t)
	extsignertest.Run(t, controlplane.Issuer, s.dial)
}
