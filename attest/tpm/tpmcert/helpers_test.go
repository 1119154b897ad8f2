package tpmcert

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
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

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// sentEK is an EK as a node sends it.
type sentEK struct {
	Certificates [][]byte
	PublicKey    []byte
}

// parseTolerating parses an EK certificate, and refuses faults that are not tolerated.
func parseTolerating(data []byte, tolerated EKEncoding) (*EKCertificate, error) {
	ek, err := ParseEK(data)
	if err != nil {
		return nil, err
	}
	return ek, tolerated.check(ek.Encoding)
}

// verifyEKOf parses and verifies a node's EK.
func verifyEKOf(ctx context.Context, v *EKVerifier, sent *sentEK, machine *csr.Machine, now time.Time) (*EKFacts, error) {
	if sent == nil {
		return v.Verify(ctx, nil, machine, now, nil)
	}
	p, err := ParseEKPresented(sent.Certificates, sent.PublicKey)
	if err != nil {
		return nil, err
	}
	return v.Verify(ctx, p, machine, now, nil)
}

func mustECDSA(c elliptic.Curve) *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		panic(err)
	}
	return k
}

func newTestLinks(signatures int) *links { return newLinks(attest.NewBudget(signatures)) }

// issuerURL says where the certificate of the issuer is.
func issuerURL(url string) pkix.Extension {
	return pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 1}, Value: tpmlab.Seq(tpmlab.Seq(
		tpmlab.Element(cbasn1.OBJECT_IDENTIFIER, []byte{0x2b, 6, 1, 5, 5, 7, 48, 2}), tpmlab.Element(cbasn1.Tag(0x86), []byte(url))))}
}

func utf8String(v string) []byte { return tpmlab.Element(cbasn1.UTF8String, []byte(v)) }

// certificateOfSize is a certificate of exactly so many bytes.
func certificateOfSize(t *testing.T, size int) []byte {
	t.Helper()
	for extra := max(0, size-400); ; { // signatures differ in length
		der := tpmlab.CertificateOf(t, extra)
		if len(der) == size {
			return der
		}
		extra = max(0, extra+size-len(der))
	}
}

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
func rsaCA(t testing.TB, parent *tpmlab.CA, name string, key *rsa.PrivateKey, edit func(*x509.Certificate)) *tpmlab.CA {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: tpmlab.Time.Add(-24 * time.Hour), NotAfter: tpmlab.Time.Add(24 * time.Hour),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if edit != nil {
		edit(template)
	}
	if parent == nil {
		parent = &tpmlab.CA{Cert: template, Key: key}
	}
	return &tpmlab.CA{Cert: tpmlab.Issued(t, template, parent, key.Public()), Key: key}
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
	testkit.NoError(t, err)
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddBytes(tbs)
		b.AddBytes(with1)
		b.AddASN1BitString(signature)
	})
	out, err := x509.ParseCertificate(b.BytesOrPanic())
	testkit.NoError(t, err)
	return out
}

func ekVerifierOf(t testing.TB, c EKVerifierConfig) *EKVerifier {
	t.Helper()
	v, err := NewEKVerifier(c)
	testkit.NoError(t, err)
	return v
}

func trusting(p EKProfile, roots ...*tpmlab.CA) EKVerifierConfig {
	i := EKIssuer{Profile: p}
	for _, r := range roots {
		i.Roots = append(i.Roots, r.Cert)
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

// noDepth is the basic constraints of a CA that certifies no CA.
var noDepth = pkix.Extension{Id: tpmlab.IsCA.Id, Critical: true, Value: []byte{0x30, 6, 1, 1, 0xff, 2, 1, 0}}

// keyID is a subjectKeyIdentifier.
func keyID(id ...byte) []pkix.Extension {
	return []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 14}, Value: tpmlab.Octets(id)}}
}

// authority is an authorityKeyIdentifier.
func authority(id ...byte) pkix.Extension {
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 35}, Value: tpmlab.Seq(tpmlab.Element(0x80, id))}
}

// Algorithms of signatures that are not accepted.
const (
	md5RSA      = "\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x04\x05\x00"
	ecdsaSHA1   = "\x30\x09\x06\x07\x2a\x86\x48\xce\x3d\x04\x01"
	withEd25519 = "\x30\x05\x06\x03\x2b\x65\x70"
	unknown     = "\x30\x05\x06\x03\x2a\x03\x04"
)
