package statement

import (
	"cmp"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
)

// MarshalTCGAttestCertify returns the DER of the tcg-attest-tpm-certify statement
// (oid.TCGAttestTPMCertify) for e:
//
//	TcgAttestCertify ::= SEQUENCE { tpmSAttest OCTET STRING, signature OCTET STRING,
//	                                tpmTPublic OCTET STRING OPTIONAL }
//
// The signature is included as it is, a TPMT_SIGNATURE unless e.RawSignature says otherwise.
// It returns a [*refusal.Error] with "message-encoding" or "message-size".
func MarshalTCGAttestCertify(e *CertifyEvidence) ([]byte, error) {
	return der.Marshal("certify", cmp.Or(e, new(CertifyEvidence)).fields)
}

// fields reads or writes the fields of the statement.
func (e *CertifyEvidence) fields(c *der.Codec) {
	signed(c, &e.Attest, &e.Signature)
	c.Optional("tpmTPublic", &e.Public, asn1.OCTET_STRING, 1, der.MaxPublicSize)
}

// signed reads or writes the two fields with which each statement begins.
func signed(c *der.Codec, attest, signature *[]byte) {
	c.Octets("tpmSAttest", attest, asn1.OCTET_STRING, 1, der.MaxPublicSize)
	c.Octets("signature", signature, asn1.OCTET_STRING, 1, der.MaxPublicSize)
}

// ParseTCGAttestCertify parses the DER of a tcg-attest-tpm-certify statement. It looks only
// at the frame: [VerifyCertify] parses the three parts. The result shares memory with data,
// its RawSignature is nil, and its Public is nil if tpmTPublic is absent. It returns a
// [*refusal.Error] with "message-encoding" or "message-size".
func ParseTCGAttestCertify(data []byte) (*CertifyEvidence, error) {
	return der.Parse(&CertifyEvidence{}, "certify", data, der.MaxEvidenceSize, (*CertifyEvidence).fields)
}
