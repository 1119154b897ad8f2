package statement

import (
	"golang.org/x/crypto/cryptobyte"
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
	if err := checkCertifySizes(e); err != nil {
		return nil, err
	}
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1OctetString(e.Attest)
		b.AddASN1OctetString(e.Signature)
		if e.Public != nil {
			b.AddASN1OctetString(e.Public)
		}
	})
	return b.Bytes()
}

func checkCertifySizes(e *CertifyEvidence) error {
	switch {
	case e == nil:
		return der.Fault("certify", "statement", "one")
	case len(e.Attest) == 0 || len(e.Attest) > der.MaxPublicSize:
		return der.Fault("certify", "tpmSAttest", "a TPMS_ATTEST")
	case len(e.Signature) == 0 || len(e.Signature) > der.MaxPublicSize:
		return der.Fault("certify", "signature", "a signature")
	case e.Public != nil && (len(e.Public) == 0 || len(e.Public) > der.MaxPublicSize):
		return der.Fault("certify", "tpmTPublic", "a TPMT_PUBLIC")
	}
	return nil
}

// ParseTCGAttestCertify reads the DER of a tcg-attest-tpm-certify statement. It
// looks at the frame only: the three parts are read by [VerifyCertify]. The
// result shares memory with data, its RawSignature is nil and its Public is nil
// where tpmTPublic is absent. It returns a [*refusal.Error] with attest.CheckEncoding or
// attest.CheckSize.
func ParseTCGAttestCertify(data []byte) (*CertifyEvidence, error) {
	body, err := der.OpenSequence("certify", data, der.MaxEvidenceSize)
	if err != nil {
		return nil, err
	}
	e := &CertifyEvidence{}
	if e.Attest, err = der.ReadOctets("certify", "tpmSAttest", &body, asn1.OCTET_STRING, 1, der.MaxPublicSize); err != nil {
		return nil, err
	}
	if e.Signature, err = der.ReadOctets("certify", "signature", &body, asn1.OCTET_STRING, 1, der.MaxPublicSize); err != nil {
		return nil, err
	}
	if !body.Empty() {
		if e.Public, err = der.ReadOctets("certify", "tpmTPublic", &body, asn1.OCTET_STRING, 1, der.MaxPublicSize); err != nil {
			return nil, err
		}
	}
	if !body.Empty() {
		return nil, der.Fault("certify", "frame", "nothing after tpmTPublic")
	}
	return e, nil
}
