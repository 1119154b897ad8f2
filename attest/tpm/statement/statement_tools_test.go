package statement

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"

	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// TestTPM2Tools verifies statements that tpm2_certify made: its qualifying data is a
// constant.
func TestTPM2Tools(t *testing.T) {
	x := tpmlab.StartTools(t)
	x.Run("tpm2_createek -Q -G rsa -c ek.ctx -u ek.pub")
	for ak, options := range map[string]string{
		"rsassa": "-G rsa -g sha256 -s rsassa", "rsapss": "-G rsa -g sha256 -s rsapss", "ecdsa": "-G ecc256 -g sha256 -s ecdsa",
	} {
		x.Run("tpm2_createak -Q -C ek.ctx " + options + " -c " + ak + ".ctx")
	}
	x.Run("tpm2_createprimary -Q -C e -g sha256 -G ecc256:ecdsa-sha256:null -a " + tpmlab.ToolsAKAttributes + " -c primary.ctx")
	x.Run("tpm2_createprimary -Q -C o -G ecc -c storage.ctx")
	for key, kind := range map[string]string{"tpmecc": "ecc256:null", "tpmrsa": "rsa2048:null"} {
		x.Run("tpm2_create -Q -C storage.ctx -G " + kind + " -a fixedtpm|fixedparent|sensitivedataorigin|userwithauth|sign -u " + key + ".pub -r " + key + ".priv")
		x.Run("tpm2_load -Q -C storage.ctx -u " + key + ".pub -r " + key + ".priv -c " + key + ".ctx")
	}
	der, err := x509.MarshalECPrivateKey(tpmlab.P256())
	testkit.NoError(t, err)
	x.Write("soft.key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	x.Run("tpm2_loadexternal -Q -C n -G ecc -r soft.key -a userwithauth|sensitivedataorigin|sign -c soft.ctx")
	for _, ak := range []string{"rsassa", "rsapss", "ecdsa", "primary"} {
		for _, key := range []string{"tpmecc", "tpmrsa", "soft"} {
			t.Run(ak+" certifies "+key, func(t *testing.T) {
				x := &tpmlab.Tools{T: t, Dir: x.Dir, Env: x.Env}
				verifyWithTools(x, ak, key)
			})
		}
	}
}

// TestTPM2ToolsAttributes: a TPM refuses to make, and to load, keys with attributes
// that the statement checks refuse as contradictions. So no honest key is lost.
func TestTPM2ToolsAttributes(t *testing.T) {
	x := tpmlab.StartTools(t)
	x.Run("tpm2_createprimary -Q -C o -G ecc -c storage.ctx")
	create := "tpm2_create -Q -C storage.ctx -G ecc256:null -u k.pub -r k.priv -a "
	x.Run(create + "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|sign")
	for _, attributes := range []string{
		"fixedtpm|sensitivedataorigin|userwithauth|sign",
		"fixedtpm|fixedparent|sensitivedataorigin|userwithauth|sign|encryptedduplication",
		"fixedtpm|fixedparent|sensitivedataorigin|userwithauth",
		"fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted",
		"fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign|decrypt",
	} {
		if out, err := x.Try(create + attributes); err == nil {
			t.Errorf("the TPM makes a key with %s: %s", attributes, out)
		}
		_, _ = x.Try("tpm2_flushcontext -t")
	}
	der, err := x509.MarshalECPrivateKey(tpmlab.P256())
	testkit.NoError(t, err)
	x.Write("soft.key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	load := "tpm2_loadexternal -Q -C n -G ecc -r soft.key -c soft.ctx -a userwithauth|sign"
	x.Run(load)
	for _, attribute := range []string{"fixedtpm", "fixedparent", "restricted"} {
		if out, err := x.Try(load + "|" + attribute); err == nil {
			t.Errorf("the TPM loads a software key with %s: %s", attribute, out)
		}
		_, _ = x.Try("tpm2_flushcontext -t")
	}
}

// opensslVerify lets OpenSSL verify a signature over a statement, and refuse it when
// the statement is changed.
func opensslVerify(t *testing.T, dir string, key crypto.PublicKey, e *CertifyEvidence) {
	t.Helper()
	x := &tpmlab.Tools{T: t, Dir: dir, Env: os.Environ()}
	spki, err := x509.MarshalPKIXPublicKey(key)
	testkit.NoError(t, err)
	v, err := ParseSignature(e.Signature)
	testkit.NoError(t, err)
	signature := v.RSA
	if v.Alg == tpm2.TPMAlgECDSA {
		if signature, err = v.MarshalECDSA(); err != nil {
			t.Fatal(err)
		}
	}
	x.Write("openssl.pem", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki}))
	x.Write("openssl.sig", signature)
	x.Write("openssl.attest", e.Attest)
	line := "openssl dgst -" + strings.ToLower(tpmwire.AlgorithmName(v.Hash)) + " -verify openssl.pem -signature openssl.sig"
	if v.Alg == tpm2.TPMAlgRSAPSS {
		line += " -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:digest"
	}
	x.Run(line + " openssl.attest")
	other := bytes.Clone(e.Attest)
	other[len(other)-1] ^= 1
	x.Write("openssl.attest", other)
	if out, err := x.Try(line + " openssl.attest"); err == nil {
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
			f := goodForgery(t, ak, tpmlab.P256b().Public())
			f.verify(t, "")
			opensslVerify(t, t.TempDir(), ak.private.Public(), f.evidence(t))
		})
	}
}

// verify certifies, verifies, and lets OpenSSL verify the same signature.
func verifyWithTools(x *tpmlab.Tools, ak, key string) {
	t, name := x.T, ak+"."+key
	scheme := ""
	if ak == "rsapss" {
		scheme = " --scheme rsapss"
	}
	x.Run("tpm2_certify -Q -C " + ak + ".ctx -c " + key + ".ctx -g sha256 -f tss -o " + name + ".attest -s " + name + ".sig" + scheme)
	akArea, area := areaOf(x, ak), areaOf(x, key)
	expected, err := area.Key()
	testkit.NoError(t, err)
	e := &CertifyEvidence{Attest: x.Read(name + ".attest"), Signature: x.Read(name + ".sig"), Public: area.Raw}
	o := CertifyOptions{AK: AKFromCredential(akArea.Raw), QualifyingData: testQualifyingData, Key: expected}
	got, err := VerifyCertify(e, o)
	testkit.NoError(t, err)
	if resident := key != "soft"; got.TPMResident != resident {
		t.Errorf("resident %v", got.TPMResident)
	}
	if trusted := ak == "primary"; got.ClockTrusted != trusted {
		t.Errorf("clock trusted %v", got.ClockTrusted)
	}
	o.QualifyingData = []byte("of another request")
	_, err = VerifyCertify(e, o)
	tpmlab.ExpectCheck(t, err, message.CheckQualifyingData)
	opensslWithTools(x, akArea, e)
}

func opensslWithTools(x *tpmlab.Tools, ak *Public, e *CertifyEvidence) {
	t := x.T
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed: apt-get install -y openssl")
	}
	key, err := ak.Key()
	testkit.NoError(t, err)
	opensslVerify(t, x.Dir, key, e)
}

// areaOf is the public area of a loaded object, held against the key that the tools print.
func areaOf(x *tpmlab.Tools, context string) *Public {
	x.T.Helper()
	raw, key := x.Area(context)
	p, err := ParsePublic(raw)
	if err != nil || !p.SameKey(key) {
		x.T.Fatalf("%s: another key than the tools print (%v)", context, err)
	}
	return p
}
