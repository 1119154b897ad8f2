package csr

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// keyAlgorithms are the complete AlgorithmIdentifiers of the keys that are supported, and how many
// bytes such a key has: for a curve, the size of an uncompressed point; 0 for RSA, whose keys are of
// any size. It is never modified.
var keyAlgorithms = map[string]struct {
	algorithm x509.PublicKeyAlgorithm
	size      int
}{
	"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00":                         {x509.RSA, 0},
	"\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07": {x509.ECDSA, 65},  // P-256
	"\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22":             {x509.ECDSA, 97},  // P-384
	"\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x23":             {x509.ECDSA, 133}, // P-521
	"\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x21":             {x509.ECDSA, 57},  // P-224
	"\x30\x05\x06\x03\x2b\x65\x70":                                                         {x509.Ed25519, 32},
}

// CanonicalSPKI encodes a public key as a DER SubjectPublicKeyInfo (RFC 5280, 4.1.2.7) in
// the one form that this SDK accepts: RSA as rsaEncryption with NULL parameters (RFC 3279,
// 2.3.1), ECDSA as id-ecPublicKey with a named curve and a full-width uncompressed point
// (RFC 5480, 2), Ed25519 without parameters (RFC 8410, 4). pub is a pointer to an
// [rsa.PublicKey] or [ecdsa.PublicKey] (P-224, P-256, P-384, P-521), or an
// [ed25519.PublicKey]. CanonicalSPKI does not decide whether a key is strong enough.
//
// The error matches "unsupported-key": another type, a point that is not on its curve, or
// an RSA modulus or exponent that is not positive.
func CanonicalSPKI(pub crypto.PublicKey) ([]byte, error) {
	whole := false
	switch key := pub.(type) {
	case *rsa.PublicKey:
		whole = key != nil && key.N != nil && key.N.Sign() > 0 && key.E > 0
	case *ecdsa.PublicKey:
		//nolint:staticcheck // crypto/ecdsa panics where a coordinate is nil, and nothing else tells
		whole = key != nil && key.Curve != nil && key.X != nil && key.Y != nil
	case ed25519.PublicKey:
		whole = len(key) == ed25519.PublicKeySize
	}
	if !whole {
		return nil, fmt.Errorf("%w: an incomplete %T, or another type", checkUnsupportedKey, pub)
	}
	spki, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", checkUnsupportedKey, err)
	}
	return spki, nil
}

// IsCanonicalSPKI reports whether the encoding of a SubjectPublicKeyInfo, with tag and
// length, is what [CanonicalSPKI] writes for its key. It says nothing about the key itself,
// such as whether a point is on its curve: crypto/x509 checked that when it read the key.
func IsCanonicalSPKI(spki []byte) bool {
	_, err := checkSPKI(spki)
	return err == nil
}

// SPKIHash returns the SHA-256 of [CanonicalSPKI], which identifies a key whatever its
// original encoding. Errors are as for CanonicalSPKI.
func SPKIHash(pub crypto.PublicKey) ([32]byte, error) {
	spki, err := CanonicalSPKI(pub)
	if err != nil {
		return [32]byte{}, err
	}
	return sha256.Sum256(spki), nil
}

// completeKey reports whether a private key can be asked for its public key, and that public
// key is of a type supported here. crypto's own types panic if a part is missing.
func completeKey(key crypto.Signer) bool {
	missing := key == nil
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		missing = k == nil || k.D == nil //nolint:staticcheck // nothing else tells whether there is a private part
	case *rsa.PrivateKey:
		missing = k == nil || k.D == nil
	case ed25519.PrivateKey:
		missing = len(k) != ed25519.PrivateKeySize
	}
	if missing {
		return false
	}
	_, err := CanonicalSPKI(key.Public())
	return err == nil
}

// checkSPKI refuses a SubjectPublicKeyInfo, with tag and length, that is not what
// CanonicalSPKI writes for its key. Whether a point is on its curve is left to
// crypto/x509.
func checkSPKI(spki cryptobyte.String) (x509.PublicKeyAlgorithm, error) {
	var content, algorithm cryptobyte.String
	got := "a malformed SubjectPublicKeyInfo"
	if spki.ReadASN1(&content, cryptobyteasn1.SEQUENCE) && content.ReadASN1Element(&algorithm, cryptobyteasn1.SEQUENCE) {
		known := keyAlgorithms[string(algorithm)]
		if spki.Empty() && isKeyOf(known.algorithm, known.size, content) {
			return known.algorithm, nil
		}
		got = "a key of " + describeAlgorithm(algorithm) + ", in " + strconv.Itoa(len(content)) + " bytes"
	}
	return 0, &Error{Check: checkRequestKey, Got: got, Want: "RSA with NULL parameters, an uncompressed point on P-224, P-256, P-384 or P-521, or Ed25519"}
}

// isKeyOf reports whether what follows an AlgorithmIdentifier is one BIT STRING with a key of the
// algorithm.
func isKeyOf(algorithm x509.PublicKeyAlgorithm, size int, content cryptobyte.String) bool {
	var bits []byte
	if !content.ReadASN1BitStringAsBytes(&bits) || !content.Empty() {
		return false
	}
	switch algorithm {
	case x509.RSA:
		var key cryptobyte.String
		content = bits
		return content.ReadASN1(&key, cryptobyteasn1.SEQUENCE) && content.Empty() && skipPositive(&key) && skipPositive(&key) && key.Empty()
	case x509.ECDSA:
		return len(bits) == size && bits[0] == 4 // uncompressed
	}
	return len(bits) == size && algorithm == x509.Ed25519
}

// skipPositive skips a positive INTEGER in its shortest form.
func skipPositive(s *cryptobyte.String) bool {
	var n []byte // cryptobyte strips the leading zero byte
	return s.ReadASN1Integer(&n) && len(bytes.Trim(n, "\x00")) > 0
}

// signatureAlgorithms are the complete AlgorithmIdentifiers that a request may be signed
// with: RSA with NULL parameters (RFC 4055, 5), ECDSA and Ed25519 with none (RFC 5758, 3.2;
// RFC 8410, 3). They are compared as bytes because crypto/x509 overlooks changes in the
// parameters, which no signature covers. SHA-1 and RSASSA-PSS are not among them. It is
// never modified.
var signatureAlgorithms = map[string]x509.PublicKeyAlgorithm{
	"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02":             x509.ECDSA,   // ecdsa-with-SHA256
	"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x03":             x509.ECDSA,   // ecdsa-with-SHA384
	"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x04":             x509.ECDSA,   // ecdsa-with-SHA512
	"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00": x509.RSA,     // sha256WithRSAEncryption
	"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c\x05\x00": x509.RSA,     // sha384WithRSAEncryption
	"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d\x05\x00": x509.RSA,     // sha512WithRSAEncryption
	"\x30\x05\x06\x03\x2b\x65\x70":                                 x509.Ed25519, // id-Ed25519
}

// foreignAlgorithms are the algorithms that other software also writes: RSA without parameters. It is
// never modified.
var foreignAlgorithms = map[string]x509.PublicKeyAlgorithm{
	"\x30\x0b\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b": x509.RSA,
	"\x30\x0b\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c": x509.RSA,
	"\x30\x0b\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d": x509.RSA,
}

// checkSignatureAlgorithm checks an AlgorithmIdentifier, with tag and length, against the
// tables and against the type of the key that should have signed.
func checkSignatureAlgorithm(algorithm cryptobyte.String, key x509.PublicKeyAlgorithm, foreign bool) error {
	if signatureAlgorithms[string(algorithm)] == key || foreign && foreignAlgorithms[string(algorithm)] == key {
		return nil
	}
	return &Error{Check: ruleSignatureAlgorithm, Got: describeAlgorithm(algorithm),
		Want: "RSASSA-PKCS1-v1_5, ECDSA or Ed25519 with SHA-256 or more, for the request's key"}
}

// describeAlgorithm describes an AlgorithmIdentifier, with tag and length, for people: the
// algorithm, and the parameters if they are an identifier too, such as that of a curve.
func describeAlgorithm(algorithm cryptobyte.String) string {
	var content cryptobyte.String
	var id, parameter oid.OID
	raw := refusal.Hex(algorithm)
	if !algorithm.ReadASN1(&content, cryptobyteasn1.SEQUENCE) || !oid.Read(&content, &id) {
		return "a malformed algorithm " + raw
	}
	if content.Empty() {
		return describeOID(id)
	}
	if oid.Read(&content, &parameter) && content.Empty() {
		return describeOID(id) + " on " + describeOID(parameter)
	}
	return describeOID(id) + " (" + raw + ")"
}

func describeOID(o oid.OID) string { return strings.TrimSuffix(o.String()+" "+o.Name(), " ") }
