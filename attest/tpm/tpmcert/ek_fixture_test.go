package tpmcert

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// rsaTestKeys are RSA keys that several tests share: making them is slow.
var rsaTestKeys = sync.OnceValue(func() (keys [2]*rsa.PrivateKey) {
	for i := range keys {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		keys[i] = key
	}
	return keys
})

// rsaCA is a CA with an RSA key; a nil parent makes a root.
func rsaCA(t testing.TB, parent *testCA, name string, key *rsa.PrivateKey, edit func(*x509.Certificate)) *testCA {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: chainTime.Add(-24 * time.Hour), NotAfter: chainTime.Add(24 * time.Hour),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if edit != nil {
		edit(template)
	}
	if parent == nil {
		parent = &testCA{template, key}
	}
	return &testCA{issued(t, template, parent, key.Public()), key}
}

func issued(t testing.TB, template *x509.Certificate, parent *testCA, pub crypto.PublicKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, pub, parent.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// specificationOf is a subjectDirectoryAttributes extension.
func specificationOf(family string, level, revision int64) pkix.Extension {
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
			oid.Add(b, oid.TCGAtTPMSpecification)
			b.AddASN1(cbasn1.SET, func(b *cryptobyte.Builder) {
				b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
					der.AddText(b, family)
					b.AddASN1Int64(level)
					b.AddASN1Int64(revision)
				})
			})
		})
	})
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 9}, Value: b.BytesOrPanic()}
}

// ekDirectory is the critical subjectAltName of an EK certificate.
func ekDirectory(manufacturer, model, version string) pkix.Extension {
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Critical: true,
		Value: sanOf(directoryName([]attribute{{oid.TCGAtTPMManufacturer, manufacturer}},
			[]attribute{{oid.TCGAtTPMModel, model}}, []attribute{{oid.TCGAtTPMVersion, version}}))}
}

// ekCert is an EK certificate to the letter of the TCG's profile; edit spoils it.
func ekCert(t testing.TB, ca *testCA, pub crypto.PublicKey, edit func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(77),
		NotBefore:    chainTime.Add(-24 * time.Hour), NotAfter: chainTime.Add(24 * time.Hour),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageKeyAgreement,
		UnknownExtKeyUsage: []asn1.ObjectIdentifier{{2, 23, 133, 8, 1}},
		ExtraExtensions:    []pkix.Extension{ekDirectory("id:49465800", "SLB9670", "id:00070055"), specificationOf("2.0", 0, 138)},
	}
	if _, ok := pub.(*rsa.PublicKey); ok {
		template.KeyUsage = x509.KeyUsageKeyEncipherment
	}
	if edit != nil {
		edit(template)
	}
	return issued(t, template, ca, pub)
}

// sha1Signed signs a certificate again, over SHA-1: crypto/x509 makes none.
func sha1Signed(t testing.TB, cert *x509.Certificate, key *rsa.PrivateKey) *x509.Certificate {
	t.Helper()
	// The identifiers of the two algorithms differ in their last octet, so that no
	// length changes.
	with256 := []byte("\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00")
	with1 := []byte("\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05\x05\x00")
	tbs := bytes.Replace(cert.RawTBSCertificate, with256, with1, 1)
	sum := sha1.Sum(tbs)
	signature, err := rsa.SignPKCS1v15(nil, key, crypto.SHA1, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddBytes(tbs)
		b.AddBytes(with1)
		b.AddASN1BitString(signature)
	})
	out, err := x509.ParseCertificate(b.BytesOrPanic())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func ekVerifierOf(t testing.TB, c EKVerifierConfig) *EKVerifier {
	t.Helper()
	v, err := NewEKVerifier(c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func trusting(p EKProfile, roots ...*testCA) EKVerifierConfig {
	i := EKIssuer{Profile: p}
	for _, r := range roots {
		i.Roots = append(i.Roots, r.cert)
	}
	return EKVerifierConfig{Issuers: []EKIssuer{i}}
}

func verifyAt(v *EKVerifier, at time.Time, certs ...*x509.Certificate) (*EKFacts, error) {
	ek := &sentEK{}
	for _, c := range certs {
		ek.Certificates = append(ek.Certificates, c.Raw)
	}
	return verifyEKOf(context.Background(), v, ek, nil, at)
}

// wantEKCheck demands a refusal with the check, and its text.
func wantEKCheck(t *testing.T, name string, err error, want refusal.Check, text string) {
	t.Helper()
	if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got %v, want %s with %q", name, err, want, text)
	}
}

func criticalExtension() pkix.Extension {
	return pkix.Extension{Id: asn1.ObjectIdentifier{1, 2, 3}, Critical: true, Value: []byte{5, 0}}
}

// rocaPrime makes a prime of the flawed form: k·M + 65537^a mod M, where M is the
// product of the first primes.
func rocaPrime(t testing.TB, bits int) *big.Int {
	t.Helper()
	m := big.NewInt(1)
	for n, count := int64(2), 0; count < 39; n++ { // the 512-bit keys' M
		if p := big.NewInt(n); p.ProbablyPrime(0) {
			m.Mul(m, p)
			count++
		}
	}
	for {
		a, err := rand.Int(rand.Reader, m)
		if err != nil {
			t.Fatal(err)
		}
		k, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), uint(bits-m.BitLen())))
		if err != nil {
			t.Fatal(err)
		}
		p := new(big.Int).Exp(big.NewInt(65537), a, m)
		if p.Add(p, k.Mul(k, m)); p.BitLen() == bits && p.ProbablyPrime(10) {
			return p
		}
	}
}
