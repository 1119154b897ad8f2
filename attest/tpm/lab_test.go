package tpm

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "").Replace(s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A certify statement and a quote, field by field.
const (
	certifyHex = `ff544347 8017
		0022 000b 1111111111111111111111111111111111111111111111111111111111111111
		0004 00ff55aa
		0000000000000007 00000001 00000002 01
		2019102300163636
		0022 000b 2222222222222222222222222222222222222222222222222222222222222222
		0022 000b 3333333333333333333333333333333333333333333333333333333333333333`
	quoteHex = `ff544347 8018
		0022 000b 1111111111111111111111111111111111111111111111111111111111111111
		0000
		0000000000000007 00000001 00000002 00
		2019102300163636
		00000002 0004 03 000080 000b 03 810000
		0020 4444444444444444444444444444444444444444444444444444444444444444`
)

func digestName(fill byte) []byte {
	return append([]byte{0, 0x0b}, bytes.Repeat([]byte{fill}, 32)...)
}

// LabCert describes a certificate that is written by hand: crypto/x509 makes none over
// SHA-1, with a key that nobody has, or with a signature that is wrong.
type LabCert struct {
	Subject, Issuer string
	From, To        time.Time
	SPKI            []byte
	Algorithm       []byte        // AlgorithmIdentifier of the signature
	Key             crypto.Signer // of SPKI; nil where nobody has it
	Extensions      []pkix.Extension
	Serial          int64
	Version1        bool // without extensions, whatever Extensions says
}

const (
	labSHA1RSA     = "\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05\x05\x00"
	labSHA256RSA   = "\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00"
	labECDSASHA256 = "\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02"
	labPSSSHA256   = "\x30\x41\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a\x30\x34\xa0\x0f\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00" +
		"\xa1\x1c\x30\x1a\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x08\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\xa2\x03\x02\x01\x20"
)

// labAlgorithm is the one that a key signs with by default.
func labAlgorithm(key crypto.PublicKey) []byte {
	if _, ok := key.(*rsa.PublicKey); ok {
		return []byte(labSHA256RSA)
	}
	return []byte(labECDSASHA256)
}

// Sign writes the certificate, signed by the key where it can sign by that algorithm,
// else with a signature of its size that is none.
func (c *LabCert) Sign(t testing.TB, by crypto.Signer) []byte {
	t.Helper()
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		if !c.Version1 {
			b.AddASN1(cbasn1.Tag(0xa0), func(b *cryptobyte.Builder) { b.AddASN1Int64(2) })
		}
		b.AddASN1Int64(c.Serial + 1)
		b.AddBytes(c.Algorithm)
		b.AddBytes(labName(c.Issuer))
		b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
			b.AddASN1UTCTime(c.From.UTC())
			b.AddASN1UTCTime(c.To.UTC())
		})
		b.AddBytes(labName(c.Subject))
		b.AddBytes(c.SPKI)
		if len(c.Extensions) > 0 && !c.Version1 {
			b.AddASN1(cbasn1.Tag(0xa3), func(b *cryptobyte.Builder) {
				der, err := asn1.Marshal(c.Extensions)
				if err != nil {
					t.Fatal(err)
				}
				b.AddBytes(der)
			})
		}
	})
	tbs := b.BytesOrPanic()
	var whole cryptobyte.Builder
	whole.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddBytes(tbs)
		b.AddBytes(c.Algorithm)
		b.AddASN1BitString(labSignature(string(c.Algorithm), tbs, by))
	})
	return whole.BytesOrPanic()
}

func labSignature(algorithm string, tbs []byte, by crypto.Signer) (out []byte) {
	with1, with256 := sha1.Sum(tbs), sha256.Sum256(tbs)
	switch key := by.(type) {
	case *rsa.PrivateKey:
		switch algorithm {
		case labSHA1RSA:
			out, _ = rsa.SignPKCS1v15(nil, key, crypto.SHA1, with1[:])
		case labSHA256RSA:
			out, _ = rsa.SignPKCS1v15(nil, key, crypto.SHA256, with256[:])
		case labPSSSHA256:
			out, _ = rsa.SignPSS(rand.Reader, key, crypto.SHA256, with256[:], &rsa.PSSOptions{SaltLength: 32})
		}
	case *ecdsa.PrivateKey:
		if algorithm == labECDSASHA256 {
			out, _ = ecdsa.SignASN1(rand.Reader, key, with256[:])
		}
	}
	if out == nil {
		out = make([]byte, 256)
		out[1] = 1
	}
	return out
}

func labName(cn string) []byte {
	der, err := asn1.Marshal(pkix.Name{CommonName: cn}.ToRDNSequence())
	if err != nil {
		panic(err)
	}
	return der
}

// LabCA is the CA certificate of a key, valid at chainTime.
func LabCA(subject, issuer string, key crypto.Signer) *LabCert {
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		panic(err)
	}
	return &LabCert{Subject: subject, Issuer: issuer, From: chainTime.Add(-24 * time.Hour), To: chainTime.Add(24 * time.Hour),
		SPKI: spki, Key: key, Algorithm: labAlgorithm(key.Public()), Extensions: []pkix.Extension{labIsCA}}
}

var (
	labIsCA   = pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 3, 1, 1, 0xff}}
	labIsNoCA = pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 0}}
)

func labUsages(ids ...oid.OID) pkix.Extension {
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		for _, id := range ids {
			oid.Add(b, id)
		}
	})
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Value: b.BytesOrPanic()}
}

func LabAK(issuer string, key crypto.PublicKey) *LabCert {
	return labLeaf(issuer, key, []byte{3, 2, 7, 0x80}, oid.TCGKpAIKCertificate)
}

func labLeaf(issuer string, key crypto.PublicKey, usage []byte, purpose oid.OID) *LabCert {
	spki, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		panic(err)
	}
	return &LabCert{Subject: "leaf", Issuer: issuer, From: chainTime.Add(-24 * time.Hour), To: chainTime.Add(24 * time.Hour), SPKI: spki,
		Extensions: []pkix.Extension{labIsNoCA, {Id: asn1.ObjectIdentifier{2, 5, 29, 15}, Critical: true, Value: usage},
			labUsages(purpose), ekDirectory("id:49465800", "SLB9670", "id:00070055")}}
}

// labSPKI writes a key that nobody has: RSA of an odd number of so many bits, in the
// encoding rsaEncryption or RSAES-OAEP.
func labSPKI(bits int, e int64, oaep bool) []byte {
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	n.Add(n, big.NewInt(0x10001))
	algorithm := oid.OID("\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01")
	if oaep {
		algorithm = oid.RSAESOAEP
	}
	var b, key cryptobyte.Builder
	key.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1BigInt(n)
		b.AddASN1Int64(e)
	})
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
			oid.Add(b, algorithm)
			b.AddASN1NULL()
		})
		b.AddASN1BitString(key.BytesOrPanic())
	})
	return b.BytesOrPanic()
}

// labStrangeSPKIs are keys that no CA of ours has.
var labStrangeSPKIs = sync.OnceValue(func() map[string][]byte {
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		panic(err)
	}
	onP224, err := x509.MarshalPKIXPublicKey(p224.Public())
	if err != nil {
		panic(err)
	}
	return map[string][]byte{
		"RSA of 8192 bits":         labSPKI(8192, 65537, false),
		"RSA of 4104 bits":         labSPKI(4104, 65537, false),
		"RSA of 1024 bits":         labSPKI(1024, 65537, false),
		"RSA with a huge exponent": labSPKI(4096, 1<<31-1, false),
		"RSA with exponent 3":      labSPKI(2048, 3, false),
		"OAEP of 60000 bits":       labSPKI(60000, 1<<31-1, true),
		"OAEP of 8192 bits":        labSPKI(8192, 65537, true),
		"P-224":                    onP224,
		"Ed25519":                  append([]byte("\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00"), make([]byte, 32)...),
		"unknown":                  []byte("\x30\x0b\x30\x05\x06\x03\x2a\x03\x04\x03\x02\x00\x01"),
	}
})

// checkOutcome demands the check, or nil for "".
func checkOutcome(t *testing.T, err error, want refusal.Check) {
	t.Helper()
	if want == "" && err != nil || want != "" && !errors.Is(err, want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// leafUnder is an AK's certificate by the CA.
func leafUnder(t testing.TB, ca *LabCert) []byte {
	t.Helper()
	leaf := LabAK(ca.Subject, newTestKey(t).Public())
	leaf.Algorithm = labAlgorithm(ca.Key.Public())
	return leaf.Sign(t, ca.Key)
}

// sanOf wraps GeneralNames.
func sanOf(names ...[]byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		for _, n := range names {
			b.AddBytes(n)
		}
	})
	return b.BytesOrPanic()
}

type attribute struct {
	id    oid.OID
	value string
}

// directoryName encodes a directoryName of one RDN a group.
func directoryName(rdns ...[]attribute) []byte {
	var b cryptobyte.Builder
	b.AddASN1(tagDirectoryName, func(b *cryptobyte.Builder) {
		b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
			for _, rdn := range rdns {
				b.AddASN1(cbasn1.SET, func(b *cryptobyte.Builder) {
					for _, a := range rdn {
						b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
							oid.Add(b, a.id)
							der.AddText(b, a.value)
						})
					}
				})
			}
		})
	})
	return b.BytesOrPanic()
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

func ekVerifierOf(t testing.TB, c tpmcert.EKVerifierConfig) *tpmcert.EKVerifier {
	t.Helper()
	v, err := tpmcert.NewEKVerifier(c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func trusting(p tpmcert.EKProfile, roots ...*testCA) tpmcert.EKVerifierConfig {
	i := tpmcert.EKIssuer{Profile: p}
	for _, r := range roots {
		i.Roots = append(i.Roots, r.cert)
	}
	return tpmcert.EKVerifierConfig{Issuers: []tpmcert.EKIssuer{i}}
}

func verifyAt(v *tpmcert.EKVerifier, at time.Time, certs ...*x509.Certificate) (*tpmcert.EKFacts, error) {
	ek := &sentEK{}
	for _, c := range certs {
		ek.Certificates = append(ek.Certificates, c.Raw)
	}
	return verifyEKOf(context.Background(), v, ek, nil, at)
}

func filled(n int, first byte) []byte {
	b := bytes.Repeat([]byte{0xa5}, n)
	if n > 0 {
		b[0] = first
	}
	return b
}
