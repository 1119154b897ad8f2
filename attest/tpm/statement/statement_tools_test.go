package statement

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

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
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
func (x *tools) area(context string) *Public {
	x.t.Helper()
	x.run("tpm2_readpublic -Q -c " + context + ".ctx -o " + context + ".pub")
	x.run("tpm2_readpublic -Q -c " + context + ".ctx -f pem -o " + context + ".pem")
	p, err := ParsePublic(x.read(context + ".pub")[2:]) // a TPM2B_PUBLIC
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

// TestTPM2Tools verifies statements that tpm2_certify made: its qualifying data is a
// constant.
func TestTPM2Tools(t *testing.T) {
	x := startTools(t)
	x.run("tpm2_createek -Q -G rsa -c ek.ctx -u ek.pub")
	for ak, options := range map[string]string{
		"rsassa": "-G rsa -g sha256 -s rsassa", "rsapss": "-G rsa -g sha256 -s rsapss", "ecdsa": "-G ecc256 -g sha256 -s ecdsa",
	} {
		x.run("tpm2_createak -Q -C ek.ctx " + options + " -c " + ak + ".ctx")
	}
	x.run("tpm2_createprimary -Q -C e -g sha256 -G ecc256:ecdsa-sha256:null -a " + toolsAKAttributes + " -c primary.ctx")
	x.run("tpm2_createprimary -Q -C o -G ecc -c storage.ctx")
	for key, kind := range map[string]string{"tpmecc": "ecc256:null", "tpmrsa": "rsa2048:null"} {
		x.run("tpm2_create -Q -C storage.ctx -G " + kind + " -a fixedtpm|fixedparent|sensitivedataorigin|userwithauth|sign -u " + key + ".pub -r " + key + ".priv")
		x.run("tpm2_load -Q -C storage.ctx -u " + key + ".pub -r " + key + ".priv -c " + key + ".ctx")
	}
	der, err := x509.MarshalECPrivateKey(softwareKeys.p256())
	if err != nil {
		t.Fatal(err)
	}
	x.write("soft.key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	x.run("tpm2_loadexternal -Q -C n -G ecc -r soft.key -a userwithauth|sensitivedataorigin|sign -c soft.ctx")
	for _, ak := range []string{"rsassa", "rsapss", "ecdsa", "primary"} {
		for _, key := range []string{"tpmecc", "tpmrsa", "soft"} {
			t.Run(ak+" certifies "+key, func(t *testing.T) {
				x := &tools{t: t, dir: x.dir, env: x.env}
				x.verify(ak, key)
			})
		}
	}
}

// TestTPM2ToolsAttributes: a TPM refuses to make, and to load, keys with attributes
// that the statement checks refuse as contradictions. So no honest key is lost.
func TestTPM2ToolsAttributes(t *testing.T) {
	x := startTools(t)
	x.run("tpm2_createprimary -Q -C o -G ecc -c storage.ctx")
	create := "tpm2_create -Q -C storage.ctx -G ecc256:null -u k.pub -r k.priv -a "
	x.run(create + "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|sign")
	for _, attributes := range []string{
		"fixedtpm|sensitivedataorigin|userwithauth|sign",
		"fixedtpm|fixedparent|sensitivedataorigin|userwithauth|sign|encryptedduplication",
		"fixedtpm|fixedparent|sensitivedataorigin|userwithauth",
		"fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted",
		"fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign|decrypt",
	} {
		if out, err := x.try(create + attributes); err == nil {
			t.Errorf("the TPM makes a key with %s: %s", attributes, out)
		}
		_, _ = x.try("tpm2_flushcontext -t")
	}
	der, err := x509.MarshalECPrivateKey(softwareKeys.p256())
	if err != nil {
		t.Fatal(err)
	}
	x.write("soft.key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	load := "tpm2_loadexternal -Q -C n -G ecc -r soft.key -c soft.ctx -a userwithauth|sign"
	x.run(load)
	for _, attribute := range []string{"fixedtpm", "fixedparent", "restricted"} {
		if out, err := x.try(load + "|" + attribute); err == nil {
			t.Errorf("the TPM loads a software key with %s: %s", attribute, out)
		}
		_, _ = x.try("tpm2_flushcontext -t")
	}
}

// verify certifies, verifies, and lets OpenSSL verify the same signature.
func (x *tools) verify(ak, key string) {
	t, name := x.t, ak+"."+key
	scheme := ""
	if ak == "rsapss" {
		scheme = " --scheme rsapss"
	}
	x.run("tpm2_certify -Q -C " + ak + ".ctx -c " + key + ".ctx -g sha256 -f tss -o " + name + ".attest -s " + name + ".sig" + scheme)
	akArea, area := x.area(ak), x.area(key)
	expected, err := area.Key()
	if err != nil {
		t.Fatal(err)
	}
	e := &CertifyEvidence{Attest: x.read(name + ".attest"), Signature: x.read(name + ".sig"), Public: area.Raw}
	o := CertifyOptions{AK: AKFromCredential(akArea.Raw), QualifyingData: testQualifyingData, Key: expected}
	got, err := VerifyCertify(e, o)
	if err != nil {
		t.Fatal(err)
	}
	if resident := key != "soft"; got.TPMResident != resident {
		t.Errorf("resident %v", got.TPMResident)
	}
	if trusted := ak == "primary"; got.ClockTrusted != trusted {
		t.Errorf("clock trusted %v", got.ClockTrusted)
	}
	o.QualifyingData = []byte("of another request")
	_, err = VerifyCertify(e, o)
	expectCheck(t, err, message.CheckQualifyingData)
	x.openssl(akArea, e)
}

func (x *tools) openssl(ak *Public, e *CertifyEvidence) {
	t := x.t
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed: apt-get install -y openssl")
	}
	key, err := ak.Key()
	if err != nil {
		t.Fatal(err)
	}
	opensslVerify(t, x.dir, key, e)
}

// opensslVerify lets OpenSSL verify a signature over a statement, and refuse it when
// the statement is changed.
func opensslVerify(t *testing.T, dir string, key crypto.PublicKey, e *CertifyEvidence) {
	t.Helper()
	x := &tools{t: t, dir: dir, env: os.Environ()}
	spki, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	v, err := ParseSignature(e.Signature)
	if err != nil {
		t.Fatal(err)
	}
	signature := v.RSA
	if v.Alg == tpm2.TPMAlgECDSA {
		if signature, err = v.MarshalECDSA(); err != nil {
			t.Fatal(err)
		}
	}
	x.write("openssl.pem", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki}))
	x.write("openssl.sig", signature)
	x.write("openssl.attest", e.Attest)
	line := "openssl dgst -" + strings.ToLower(tpmwire.AlgorithmName(v.Hash)) + " -verify openssl.pem -signature openssl.sig"
	if v.Alg == tpm2.TPMAlgRSAPSS {
		line += " -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:digest"
	}
	x.run(line + " openssl.attest")
	other := bytes.Clone(e.Attest)
	other[len(other)-1] ^= 1
	x.write("openssl.attest", other)
	if out, err := x.try(line + " openssl.attest"); err == nil {
		t.Errorf("OpenSSL accepts a changed statement: %s", out)
	}
}

// TestOpenSSL: the signatures that this package accepts, OpenSSL accepts too.
func TestOpenSSL(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed: apt-get install -y openssl")
	}
	for name, ak := range forgers(t) {
		t.Run(name, func(t *testing.T) {
			f := goodForgery(t, ak, softwareKeys.p256b().Public())
			f.verify(t, "")
			opensslVerify(t, t.TempDir(), ak.private.Public(), f.evidence(t))
		})
	}
}
