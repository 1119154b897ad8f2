package statement

import (
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
)

// MarshalTCGAttestCertify returns the DER of the statement tcg-attest-tpm-certify
// ([oid.TCGAttestTPMCertify]) over e:
//
//	TcgAttestCertify ::= SEQUENCE { tpmSAttest OCTET STRING, signature OCTET STRING,
//	                                tpmTPublic OCTET STRING OPTIONAL }
//
// The signature goes in as it is, a TPMT_SIGNATURE unless e.RawSignature says
// otherwise. It returns a [*refusal.Error] with attest.CheckEncoding or attest.CheckSize.
func MarshalTCGAttestCertify(e *CertifyEvidence) ([]byte, error) {
	if e == nil {
		return nil, der.Fault("certify", "statement", "one")
	}
	return der.Marshal("certify", e.fields)
}

// fields are those of the statement, to be read or written.
func (e *CertifyEvidence) fields(c *der.Codec) {
	signed(c, &e.Attest, &e.Signature)
	c.Optional("tpmTPublic", &e.Public, asn1.OCTET_STRING, 1, der.MaxPublicSize)
}

// signed are the two fields with which each statement begins.
func signed(c *der.Codec, attest, signature *[]byte) {
	c.Octets("tpmSAttest", attest, asn1.OCTET_STRING, 1, der.MaxPublicSize)
	c.Octets("signature", signature, asn1.OCTET_STRING, 1, der.MaxPublicSize)
}

// ParseTCGAttestCertify reads the DER of a tcg-attest-tpm-certify statement. It
// looks at the frame only: the three parts are read by [VerifyCertify]. The
// result shares memory with data, its RawSignature is nil and its Public is nil
// where tpmTPublic is absent. It returns a [*refusal.Error] with attest.CheckEncoding or
// attest.CheckSize.
func ParseTCGAttestCertify(data []byte) (*CertifyEvidence, error) {
	return der.Parse(&CertifyEvidence{}, "certify", data, der.MaxEvidenceSize, (*CertifyEvidence).fields)
}
