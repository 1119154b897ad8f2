package tpm

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
)

// tools runs tpm2-tools against a software TPM of its own.
type tools struct {
	t   *testing.T
	dir string
	env []string
}

// startTools starts swtpm on a socket in a new directory, or skips.
func startTools(t *testing.T) *tools {
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
	return &tools{t: t, dir: dir, env: append(os.Environ(), "TPM2TOOLS_TCTI=swtpm:path="+socket, "TSS2_LOG=all+NONE")}
}

// run runs one command line in the directory; without a resource manager it leaves
// objects in the TPM, so it flushes them. It returns what the command printed.
func (x *tools) run(line string) string {
	x.t.Helper()
	out, err := x.try(line)
	if err != nil {
		x.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	if strings.HasPrefix(line, "tpm2_") {
		if out, err := x.try("tpm2_flushcontext -t"); err != nil {
			x.t.Fatalf("flush: %v\n%s", err, out)
		}
	}
	return out
}

func (x *tools) try(line string) (string, error) {
	words := strings.Fields(line)
	cmd := exec.CommandContext(x.t.Context(), words[0], words[1:]...)
	cmd.Dir, cmd.Env = x.dir, x.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (x *tools) read(name string) []byte {
	x.t.Helper()
	b, err := os.ReadFile(filepath.Join(x.dir, name))
	if err != nil {
		x.t.Fatal(err)
	}
	return b
}

func (x *tools) write(name string, b []byte) {
	x.t.Helper()
	if err := os.WriteFile(filepath.Join(x.dir, name), b, 0o600); err != nil {
		x.t.Fatal(err)
	}
}

// area is the TPMT_PUBLIC of a loaded object, held against the key that the tools
// print as PEM.
func (x *tools) area(context string) *statement.Public {
	x.t.Helper()
	x.run("tpm2_readpublic -Q -c " + context + ".ctx -o " + context + ".pub")
	x.run("tpm2_readpublic -Q -c " + context + ".ctx -f pem -o " + context + ".pem")
	p, err := statement.ParsePublic(x.read(context + ".pub")[2:]) // a TPM2B_PUBLIC
	if err != nil {
		x.t.Fatalf("%s: %v", context, err)
	}
	block, _ := pem.Decode(x.read(context + ".pem"))
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil || !p.SameKey(key) {
		x.t.Fatalf("%s: another key than the tools print (%v)", context, err)
	}
	return p
}

const toolsAKAttributes = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign"

func digestOf(hash crypto.Hash) []byte {
	h := hash.New()
	h.Write([]byte("message"))
	return h.Sum(nil)
}

func checkSignature(t testing.TB, k *tpmkey.Key, opts crypto.SignerOpts) {
	t.Helper()
	digest := digestOf(opts.HashFunc())
	sig, err := k.Sign(nil, digest, opts)
	if err != nil {
		t.Errorf("%v with %v: %v", k, opts, err)
		return
	}
	if err := verifyOwn(k.Public(), digest, sig, opts); err != nil {
		t.Errorf("%v with %v: %v", k, opts, err)
	}
	digest[0] ^= 1
	if verifyOwn(k.Public(), digest, sig, opts) == nil {
		t.Errorf("%v with %v: the signature verifies for another digest", k, opts)
	}
}

func openssl(t *testing.T, stdin []byte, args ...string) {
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

// The tools cut a label from their standard input in halves, and lose the last byte of an odd
// one: the last spelling of templates.
func TestToolsSpellIAKs(t *testing.T) {
	x := startTools(t)
	for name, c := range map[string]struct {
		curve elliptic.Curve
		hash  tpm2.TPMIAlgHash
		words string
	}{
		"P-256": {elliptic.P256(), tpm2.TPMAlgSHA256, "-G ecc256:ecdsa-sha256:null -g sha256"},
		"P-384": {elliptic.P384(), tpm2.TPMAlgSHA384, "-G ecc384:ecdsa-sha384:null -g sha384"},
	} {
		t.Run(name, func(t *testing.T) {
			x.write("policy", []byte(iakPolicies[c.hash]))
			x.write("iak.sh", []byte("printf IAK | tpm2_createprimary -Q -C e "+c.words+" -L policy -u - --template-data iak.template -c iak.ctx "+
				"-a 'fixedtpm|fixedparent|sensitivedataorigin|userwithauth|adminwithpolicy|restricted|sign'"))
			x.run("sh iak.sh")
			x.run("tpm2_flushcontext -t")
			templates := IAKTemplates(&ecdsa.PublicKey{Curve: c.curve})
			if got, want := x.read("iak.template"), tpm2.Marshal(templates[len(templates)-1]); !bytes.Equal(got, want) {
				t.Errorf("the tools' template is\n%x, ours\n%x", got, want)
			}
		})
	}
}
