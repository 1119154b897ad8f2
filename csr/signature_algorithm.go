package csr

import (
	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// signatureAlgorithms are the AlgorithmIdentifiers that a request may be signed with,
// whole: RSA with NULL parameters (RFC 4055, 5), ECDSA and Ed25519 with none (RFC 5758,
// 3.2; RFC 8410, 3). They are compared as bytes because crypto/x509 looks past changes
// in the parameters, which no signature covers. SHA-1 and RSASSA-PSS are not among
// them. It is never written.
var signatureAlgorithms = [...]struct {
	der string
	key keyAlgorithm
}{
	{"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02", keyECDSA},           // ecdsa-with-SHA256
	{"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x03", keyECDSA},           // ecdsa-with-SHA384
	{"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x04", keyECDSA},           // ecdsa-with-SHA512
	{"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00", keyRSA}, // sha256WithRSAEncryption
	{"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c\x05\x00", keyRSA}, // sha384WithRSAEncryption
	{"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d\x05\x00", keyRSA}, // sha512WithRSAEncryption
	{"\x30\x05\x06\x03\x2b\x65\x70", keyEd25519},                             // id-Ed25519
}

// checkSignatureAlgorithm holds an AlgorithmIdentifier, with tag and length, against
// the table and against the key that is to have signed.
func checkSignatureAlgorithm(algorithm cryptobyte.String, key keyAlgorithm) error {
	for i := range signatureAlgorithms {
		if string(algorithm) == signatureAlgorithms[i].der && key == signatureAlgorithms[i].key {
			return nil
		}
	}
	return &Error{
		Check: CheckSignatureAlgorithm,
		Got:   describeAlgorithm(algorithm),
		Want:  "RSASSA-PKCS1-v1_5, ECDSA or Ed25519 with SHA-256 or more, for the request's key",
	}
}

// checkForeignAlgorithm is checkSignatureAlgorithm, and takes RSA without parameters.
func checkForeignAlgorithm(algorithm cryptobyte.String, key keyAlgorithm) error {
	const header = len("\x30\x0b")
	if key == keyRSA && len(algorithm) > header {
		for i := range signatureAlgorithms {
			known := &signatureAlgorithms[i]
			absent := len(known.der) - len("\x05\x00")
			if known.key == keyRSA && len(algorithm) == absent && string(algorithm[header:]) == known.der[header:absent] {
				return nil
			}
		}
	}
	return checkSignatureAlgorithm(algorithm, key)
}

// describeAlgorithm shows an AlgorithmIdentifier, with tag and length, for people: the
// algorithm, and the parameters where they are a name too, such as that of a curve.
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

func describeOID(o oid.OID) string {
	if name := o.Name(); name != "" {
		return o.String() + " " + name
	}
	return o.String()
}
