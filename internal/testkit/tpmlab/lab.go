package tpmlab

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/oid"
)

// Cert describes a certificate that is written by hand: crypto/x509 makes none over
// SHA-1, with a key that does not exist, or with a signature that is wrong.
type Cert struct {
	Subject, Issuer string
	From, To        time.Time
	SPKI            []byte
	Algorithm       []byte        // AlgorithmIdentifier of the signature
	Key             crypto.Signer // of SPKI; nil where it does not exist
	Extensions      []pkix.Extension
	Serial          int64
	Version1        bool // without extensions, whatever Extensions says
}

// Sign writes the certificate, signed by the key where it can sign by that algorithm,
// else with random bytes of a signature's size.
func (c *Cert) Sign(t testing.TB, by crypto.Signer) []byte {
	t.Helper()
	version, extensions := Element(0xa0, value(2)), []byte(nil)
	if c.Version1 {
		version = nil
	} else if len(c.Extensions) > 0 {
		extensions = Element(0xa3, value(c.Extensions))
	}
	tbs := Seq(version, value(c.Serial+1), c.Algorithm, NameOf(c.Issuer), Seq(value(c.From.UTC()), value(c.To.UTC())),
		NameOf(c.Subject), c.SPKI, extensions)
	return Seq(tbs, c.Algorithm, bitString(signature(string(c.Algorithm), tbs, by)))
}

// Algorithm identifiers in DER.
const (
	SHA1RSA     = "\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05\x05\x00"
	SHA256RSA   = "\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00"
	ECDSASHA256 = "\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02"
	PSSSHA256   = "\x30\x41\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a\x30\x34\xa0\x0f\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00" +
		"\xa1\x1c\x30\x1a\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x08\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\xa2\x03\x02\x01\x20"
)

// AlgorithmOf is the one that a key signs with by default.
func AlgorithmOf(key crypto.PublicKey) []byte {
	if _, ok := key.(*rsa.PublicKey); ok {
		return []byte(SHA256RSA)
	}
	return []byte(ECDSASHA256)
}

// signs says how a key signs by each algorithm.
var signs = map[string]crypto.SignerOpts{
	SHA1RSA: crypto.SHA1, SHA256RSA: crypto.SHA256, ECDSASHA256: crypto.SHA256, PSSSHA256: &rsa.PSSOptions{SaltLength: 32, Hash: crypto.SHA256},
}

// rsaMade caches signatures by RSA keys, by key, algorithm and signed bytes. Each is made
// once: of thousands of chains most repeat some certificate, and nothing else takes as long.
var rsaMade sync.Map

func signature(algorithm string, tbs []byte, by crypto.Signer) []byte {
	opts := signs[algorithm]
	_, isECDSA := by.(*ecdsa.PrivateKey)
	if by == nil || opts == nil || isECDSA != (algorithm == ECDSASHA256) {
		return append([]byte{0, 1}, make([]byte, 254)...)
	}
	of := [3]any{by, algorithm, string(tbs)}
	if out, ok := rsaMade.Load(of); ok {
		return out.([]byte)
	}
	out := testkit.Must(crypto.SignMessage(by, rand.Reader, tbs, opts))
	if !isECDSA {
		rsaMade.Store(of, out)
	}
	return out
}

// NameOf is a name of one common name.
func NameOf(cn string) []byte {
	return value(pkix.Name{CommonName: cn}.ToRDNSequence())
}

// CACert is the CA certificate of a key, valid at Time.
func CACert(subject, issuer string, key crypto.Signer) *Cert {
	return &Cert{Subject: subject, Issuer: issuer, From: Time.Add(-24 * time.Hour), To: Time.Add(24 * time.Hour),
		SPKI: spkiOf(key.Public()), Key: key, Algorithm: AlgorithmOf(key.Public()), Extensions: []pkix.Extension{IsCA}}
}

// The extensions that the lab writes.
var (
	IsCA   = pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 3, 1, 1, 0xff}}
	IsNoCA = pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 0}}
)

// Usages is an extKeyUsage.
func Usages(ids ...oid.OID) pkix.Extension {
	var list [][]byte
	for _, id := range ids {
		list = append(list, identifier(id))
	}
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Value: Seq(list...)}
}

// EKCert is an EK's certificate, like [AKCert] with everything that the TCG's profiles ask for.
func EKCert(issuer string, key crypto.PublicKey) *Cert {
	usage := byte(0x08) // keyAgreement
	if _, ok := key.(*rsa.PublicKey); ok {
		usage = 0x20 // keyEncipherment
	}
	return leaf(issuer, key, []byte{3, 2, 3, usage}, oid.TCGKpEKCertificate)
}

// AKCert is an AK's certificate.
func AKCert(issuer string, key crypto.PublicKey) *Cert {
	return leaf(issuer, key, []byte{3, 2, 7, 0x80}, oid.TCGKpAIKCertificate)
}

func leaf(issuer string, key crypto.PublicKey, usage []byte, purpose oid.OID) *Cert {
	return &Cert{Subject: "leaf", Issuer: issuer, From: Time.Add(-24 * time.Hour), To: Time.Add(24 * time.Hour), SPKI: spkiOf(key),
		Extensions: []pkix.Extension{IsNoCA, {Id: asn1.ObjectIdentifier{2, 5, 29, 15}, Critical: true, Value: usage},
			Usages(purpose), EKDirectory("id:49465800", "SLB9670", "id:00070055")}}
}

// SPKI writes a public key without a private one: RSA of an odd number of so many bits, in the
// encoding rsaEncryption or RSAES-OAEP.
func SPKI(bits int, e int64, oaep bool) []byte {
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	n.Add(n, big.NewInt(0x10001))
	algorithm := oid.OID("\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01")
	if oaep {
		algorithm = oid.RSAESOAEP
	}
	return Seq(Seq(identifier(algorithm), []byte{5, 0}), bitString(Seq(value(n), value(e))))
}

// StrangeSPKIs are keys that no CA of ours has.
var StrangeSPKIs = sync.OnceValue(func() map[string][]byte {
	return map[string][]byte{
		"RSA of 8192 bits":         SPKI(8192, 65537, false),
		"RSA of 4104 bits":         SPKI(4104, 65537, false),
		"RSA of 1024 bits":         SPKI(1024, 65537, false),
		"RSA with a huge exponent": SPKI(4096, 1<<31-1, false),
		"RSA with exponent 3":      SPKI(2048, 3, false),
		"OAEP of 60000 bits":       SPKI(60000, 1<<31-1, true),
		"OAEP of 8192 bits":        SPKI(8192, 65537, true),
		"P-224":                    spkiOf(P224().Public()),
		"Ed25519":                  append([]byte("\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00"), make([]byte, 32)...),
		"unknown":                  []byte("\x30\x0b\x30\x05\x06\x03\x2a\x03\x04\x03\x02\x00\x01"),
	}
})
