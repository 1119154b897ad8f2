package tpmkey

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

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// tpmPrograms runs tpm2-tools and OpenSSL's tpm2 provider against an swtpm that this
// test talks to as well.
type tpmPrograms struct {
	t   *testing.T
	tpm *tpmsim.TPM
	dir string
}

func startTPMPrograms(t *testing.T) *tpmPrograms {
	t.Helper()
	if _, err := exec.LookPath("tpm2_load"); err != nil {
		t.Skip("tpm2-tools are not installed: apt-get install -y tpm2-tools")
	}
	if out, err := exec.Command("openssl", "version", "-m").Output(); err != nil {
		t.Skip("openssl is not installed: apt-get install -y openssl tpm2-openssl")
	} else if _, modules, _ := strings.Cut(strings.TrimSpace(string(out)), ": "); true {
		if _, err := os.Stat(filepath.Join(strings.Trim(modules, `"`), "tpm2.so")); err != nil {
			t.Skip("OpenSSL's tpm2 provider is not installed: apt-get install -y tpm2-openssl")
		}
	}
	return &tpmPrograms{t: t, tpm: tpmsim.Swtpm(t, tpmlab.Bare()), dir: t.TempDir()}
}

// run runs one program. Without a resource manager they leave objects and sessions
// in the TPM.
func (p *tpmPrograms) run(line string) {
	p.t.Helper()
	commands := []string{line, "tpm2_flushcontext -t", "tpm2_flushcontext -l", "tpm2_flushcontext -s"}
	for _, line := range commands {
		words := strings.Fields(line)
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Dir = p.dir
		cmd.Env = append(os.Environ(), "TPM2TOOLS_TCTI="+p.tpm.TCTI(), "TPM2OPENSSL_TCTI="+p.tpm.TCTI())
		if out, err := cmd.CombinedOutput(); err != nil {
			p.t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
}

func (p *tpmPrograms) openssl(line string) {
	p.t.Helper()
	program, rest, _ := strings.Cut(line, " ")
	p.run("openssl " + program + " -provider tpm2 -provider default " + rest)
}

func (p *tpmPrograms) write(name string, b []byte) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), b, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// save writes a key of ours and its public key.
func (p *tpmPrograms) save(k *Key) {
	p.t.Helper()
	b, err := k.File().Marshal()
	if err != nil {
		p.t.Fatal(err)
	}
	p.write("key.pem", b)
	der, err := x509.MarshalPKIXPublicKey(k.Public())
	if err != nil {
		p.t.Fatal(err)
	}
	p.write("public.pem", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	p.write("key.pub", tpm2.Marshal(tpm2.BytesAs2B[tpm2.TPMTPublic](k.File().Public)))
	p.write("key.priv", tpm2.Marshal(tpm2.TPM2BPrivate{Buffer: k.File().Private}))
	p.write("message", []byte("message"))
}

// signWithOpenSSL has the provider sign with key.pem, and plain OpenSSL verify.
func (p *tpmPrograms) signWithOpenSSL(options string) {
	p.t.Helper()
	p.openssl("pkeyutl -propquery ?provider=tpm2 -sign -inkey key.pem " + options + " -rawin -digest sha256 -in message -out signature")
	p.run("openssl dgst -sha256 -verify public.pem -signature signature message")
}

// Keys of ours, used by OpenSSL's provider and by tpm2-tools.
func TestTPMKeyFileUsedByOthers(t *testing.T) {
	p := startTPMPrograms(t)
	tpmlab.Persist(t, p.tpm, tpm2.TPMRHOwner, tpmop.StorageRootKey(), 0x81000001)
	for _, kind := range []Algorithm{ECDSAP256, ECDSAP384, RSA2048} {
		for _, opts := range []Options{
			{}, {Parent: 0x81000001}, {Password: hidden([]byte("secret"))}, {Parent: 0x81000001, Password: hidden([]byte("secret"))},
		} {
			k, err := Create(t.Context(), p.tpm, kind, opts)
			testkit.NoError(t, err)
			p.save(k)
			passin, auth := "", ""
			if !opts.Password.IsZero() {
				passin, auth = "-passin pass:secret", "-p secret"
			}
			p.signWithOpenSSL(passin)

			parent := "0x81000001"
			if opts.Parent == 0 {
				parent = "owner.ctx"
				p.run("tpm2_createprimary -Q -C o -G ecc -c owner.ctx " +
					"-a restricted|decrypt|fixedtpm|fixedparent|sensitivedataorigin|userwithauth|noda")
			}
			p.run("tpm2_load -Q -C " + parent + " -u key.pub -r key.priv -c key.ctx")
			p.run("tpm2_sign -Q -c key.ctx " + auth + " -g sha256 -f plain -o signature message")
			p.run("openssl dgst -sha256 -verify public.pem -signature signature message")
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Keys of OpenSSL's provider and of tpm2-tools, used by us.
func TestTPMKeyFileOfOthers(t *testing.T) {
	p := startTPMPrograms(t)
	tpmlab.Persist(t, p.tpm, tpm2.TPMRHOwner, tpmop.StorageRootKey(), 0x81000001)
	p.openssl("genpkey -algorithm EC -pkeyopt group:P-256 -out openssl-ecc.pem")
	p.openssl("genpkey -algorithm EC -pkeyopt group:P-384 -pkeyopt parent:0x81000001 -out openssl-p384-parent.pem")
	p.openssl("genpkey -algorithm RSA -pkeyopt bits:2048 -pkeyopt user-auth:secret -out openssl-rsa-password.pem")
	p.run("tpm2_create -Q -C 0x81000001 -G ecc:ecdsa -u u -r r")
	p.run("tpm2_encodeobject -C 0x81000001 -u u -r r -o tools-ecc.pem")
	p.run("tpm2_create -Q -C 0x81000001 -G rsa2048 -p secret -u u -r r")
	p.run("tpm2_encodeobject -C 0x81000001 -p -u u -r r -o tools-rsa-password.pem")
	files, err := filepath.Glob(filepath.Join(p.dir, "*-*.pem"))
	if err != nil || len(files) != 5 {
		t.Fatalf("got %d files, %v", len(files), err)
	}
	testkit.NoError(t, p.tpm.Reset())
	for _, path := range files {
		b := readAll(t, path)
		file, err := ParseFile(b)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if again, err := file.Marshal(); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%s: encoded again it is another file, %v", path, err)
		}
		opts := LoadOptions{}
		if strings.Contains(path, "password") {
			opts.Password = hidden([]byte("secret"))
		}
		k, err := Load(t.Context(), p.tpm, file, opts)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		tpmlab.CheckSignature(t, k, crypto.SHA256)
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
	tpmlab.CheckNothingLoaded(t, p.tpm)
}
