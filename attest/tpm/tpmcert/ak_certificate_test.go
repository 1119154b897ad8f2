package tpmcert

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// microsoft is the issuer of the AIKs that Windows gets, as the corpus has it.
func microsoft(t *testing.T) Issuer {
	t.Helper()
	block, _ := pem.Decode(tpmlab.Corpus(t, "webauthn-tpm", "roots", "microsoft-tpm-root-ca-2014.pem"))
	if block == nil {
		t.Fatal("no PEM")
	}
	root, err := x509.ParseCertificate(block.Bytes)
	testkit.NoError(t, err)
	return Issuer{Roots: []*x509.Certificate{root}, Profile: ProfileMicrosoftAIK()}
}

// Statements of real TPMs hold from the Microsoft root to the certified key, at a
// time inside the validity, where the profile admits SHA-1 signatures. Without
// that each is refused for SHA-1 and nothing else; and no other issuer will do.
func TestRealStatementsUnderMicrosoft(t *testing.T) {
	issuer := microsoft(t)
	dirs, err := filepath.Glob(filepath.Join(tpmlab.CorpusDir(t), "webauthn-tpm", "real-*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("%d statements, %v", len(dirs), err)
	}
	for _, dir := range dirs {
		name := filepath.Base(dir)
		var meta struct {
			ExtraData string `json:"extraData"`
		}
		testkit.NoError(t, json.Unmarshal(tpmlab.Corpus(t, "webauthn-tpm", name, "meta.json"), &meta))
		var chain [][]byte
		for _, file := range []string{"x5c-0.der", "x5c-1.der", "x5c-2.der"} {
			if der, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
				chain = append(chain, der)
			}
		}
		at := insideValidity(t, chain)
		profile := issuer.Profile
		for _, allowed := range []bool{true, false} {
			profile.InsecureAllowSHA1Signature = allowed
			ak, err := VerifyAKCertificate([]Issuer{{Roots: issuer.Roots, Profile: profile}}, chain, at)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if ak.Directory.Model == "" || !strings.HasPrefix(string(ak.Machine), "ak:sha256:") || len(ak.Chain) < 3 {
				t.Errorf("%s: %+v", name, ak)
			}
			qualifying, err := hex.DecodeString(meta.ExtraData)
			testkit.NoError(t, err)
			_, err = statement.VerifyCertify(&statement.CertifyEvidence{
				Attest:    tpmlab.Corpus(t, "webauthn-tpm", name, "certinfo.bin"),
				Signature: tpmlab.Corpus(t, "webauthn-tpm", name, "sig.tpmt.bin"),
				Public:    tpmlab.Corpus(t, "webauthn-tpm", name, "pubarea.bin"),
			}, statement.CertifyOptions{AK: statement.AKFromIssuer(ak.Key, nil), QualifyingData: qualifying, InsecureAllowAnyKey: true,
				InsecureAllowSHA1Signature: ak.Profile.InsecureAllowSHA1Signature})
			if allowed && err != nil || !allowed && !errors.Is(err, statement.CheckSignatureHash) {
				t.Errorf("%s, SHA-1 allowed %v: %v", name, allowed, err)
			}
		}
		for _, other := range []Profile{ProfileGoogle(), ProfileAzure()} {
			if _, err := VerifyAKCertificate([]Issuer{{Roots: issuer.Roots, Profile: other}}, chain, at); !errors.Is(err, checkCertificateExtKeyUsage) {
				t.Errorf("%s under %s: %v", name, other.Name, err)
			}
		}
		if _, err := VerifyAKCertificate([]Issuer{issuer}, chain, at.AddDate(60, 0, 0)); !errors.Is(err, checkCertificateExpired) {
			t.Errorf("%s, later: %v", name, err)
		}
	}
}

// insideValidity is the last beginning of a validity in the chain, and a minute.
func insideValidity(t *testing.T, chain [][]byte) time.Time {
	t.Helper()
	var at time.Time
	for _, der := range chain {
		c, err := x509.ParseCertificate(der)
		testkit.NoError(t, err)
		if c.NotBefore.After(at) {
			at = c.NotBefore
		}
	}
	return at.Add(time.Minute)
}

func TestVerifyAKCertificateRefuses(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	leaf := tpmlab.Sign(t, root, "leaf", leafTemplate)
	good := []Issuer{{Roots: []*x509.Certificate{root.Cert}, Profile: ProfileTCG()}}
	chain := [][]byte{leaf.Cert.Raw}
	if ak, err := VerifyAKCertificate(good, chain, tpmlab.Time); err != nil || ak.Machine.Kind() != "ak" {
		t.Fatalf("%+v, %v", ak, err)
	}
	if _, err := VerifyAKCertificate(nil, chain, tpmlab.Time); err == nil {
		t.Error("no issuers: accepted")
	}
	if _, err := VerifyAKCertificate([]Issuer{{}}, chain, tpmlab.Time); err == nil {
		t.Error("a zero issuer: accepted")
	}
	if _, err := VerifyAKCertificate(good, chain, time.Time{}); err == nil {
		t.Error("no time: accepted")
	}
	if _, err := VerifyAKCertificate(good, nil, tpmlab.Time); !errors.Is(err, checkCertificateMissing) {
		t.Errorf("no certificate: %v", err)
	}
	if _, err := VerifyAKCertificate(good, [][]byte{{0x30, 0}}, tpmlab.Time); !errors.Is(err, CheckCertificateEncoding) {
		t.Errorf("no certificate's DER: %v", err)
	}
	if _, err := VerifyAKCertificate(good, chain, leaf.Cert.NotAfter.Add(time.Second)); !errors.Is(err, checkCertificateExpired) {
		t.Errorf("after its end: %v", err)
	}
	if _, err := VerifyAKCertificate(good, chain, leaf.Cert.NotBefore.Add(-time.Second)); !errors.Is(err, checkCertificateNotYetValid) {
		t.Errorf("before its beginning: %v", err)
	}
	for name, c := range map[string]struct {
		extension pkix.Extension
		want      refusal.Check
	}{
		"an unknown critical extension": {pkix.Extension{Id: asn1.ObjectIdentifier{1, 2, 3}, Critical: true}, checkCertificateExtension},
		"two manufacturers": {pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: tpmlab.Seq(tpmlab.DirectoryName(
			[]tpmlab.Attribute{{ID: oid.TCGAtTPMManufacturer, Value: "id:49465800"}}, []tpmlab.Attribute{{ID: oid.TCGAtTPMManufacturer, Value: "id:414D4400"}}))}, checkSubjectAltName},
	} {
		t.Run(name, func(t *testing.T) {
			strange := tpmlab.Sign(t, root, "leaf", func(cert *x509.Certificate) {
				leafTemplate(cert)
				cert.ExtraExtensions = append(cert.ExtraExtensions, c.extension)
			})
			if _, err := VerifyAKCertificate(good, [][]byte{strange.Cert.Raw}, tpmlab.Time); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	t.Run("a weak key", func(t *testing.T) {
		der, err := x509.CreateCertificate(rand.Reader, leaf.Cert, root.Cert, tpmlab.RSA1024().Public(), root.Key)
		testkit.NoError(t, err)
		if _, err := VerifyAKCertificate(good, [][]byte{der}, tpmlab.Time); !errors.Is(err, refusal.Check("tpm-key-strength")) {
			t.Errorf("got %v, want %s", err, refusal.Check("tpm-key-strength"))
		}
	})
	other := tpmlab.Sign(t, nil, "root", nil)
	if _, err := VerifyAKCertificate([]Issuer{{Roots: []*x509.Certificate{other.Cert}, Profile: ProfileTCG()}}, chain, tpmlab.Time); !errors.Is(err, CheckCertificateChain) {
		t.Errorf("another root: %v", err)
	}
}

// FuzzParseAKPresented: no bytes make the reader panic, and the leaf that it takes is the one
// that was sent.
func FuzzParseAKPresented(f *testing.F) {
	testkit.BeginFuzz(f)
	root := tpmlab.Sign(f, nil, "root", nil)
	a, b := tpmlab.Sign(f, root, "a", nil).Cert.Raw, tpmlab.Sign(f, root, "b", nil).Cert.Raw
	f.Add(a, b)
	f.Add(b, []byte{})
	f.Add(tpmlab.EKCertificate(f, root, tpmlab.NewP256(f).Public(), nil).Raw, a)
	f.Add(a[:100], a[100:])
	f.Fuzz(func(t *testing.T, leaf, above []byte) {
		p, err := ParseAKPresented([][]byte{leaf, above})
		if err != nil {
			if p != nil || !hasCheck(err) {
				t.Fatalf("%v, %v is no check", p, err)
			}
			return
		}
		if !bytes.Equal(p.Leaf().Raw, leaf) {
			t.Fatal("another leaf")
		}
	})
}
