package attest

import (
	"strconv"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
)

// Limits of an attestation bundle.
const (
	// MaxStatements bounds the statements of a bundle.
	MaxStatements = 8
	// MaxCertificates bounds the certificates of a bundle.
	MaxCertificates = 8
	// MaxCertificateSize bounds one certificate, in bytes of DER.
	MaxCertificateSize = 16 << 10
)

// Provider is the name and version of the evidence that this package writes,
// the six bytes of the PEM block KUBELET AUTHENTICATOR ATTESTATION PROVIDER.
const Provider = "tpm/v1"

// AttestationBundle is the evidence of a node as it travels: the structure of
// draft-ietf-lamps-csr-attestation (attribute [oid.IDAAAttestation]).
//
//	AttestationBundle    ::= SEQUENCE { attestations SEQUENCE SIZE (1..MAX) OF AttestationStatement,
//	                                    certs SEQUENCE SIZE (1..MAX) OF CertificateChoices OPTIONAL }
type AttestationBundle struct {
	// Statements are 1 to [MaxStatements].
	Statements []AttestationStatement
	// Certificates are DER, leaf first, 0 to [MaxCertificates] of at most
	// [MaxCertificateSize] bytes each. Only plain certificates are read and
	// written, none of the other CertificateChoices.
	Certificates [][]byte
}

// AttestationStatement is one statement of an [AttestationBundle].
//
//	AttestationStatement ::= SEQUENCE { type OBJECT IDENTIFIER, stmt ANY DEFINED BY type }
type AttestationStatement struct {
	Type oid.OID
	// Stmt is one DER element, tag and length included.
	Stmt []byte
}

// Marshal returns the DER of b. It returns an [*Error] with [CheckEncoding] or
// [CheckSize] if b is outside the limits.
func (b *AttestationBundle) Marshal() ([]byte, error) {
	if len(b.Statements) == 0 || len(b.Statements) > MaxStatements {
		return nil, fault("bundle", "attestations", "1 to "+strconv.Itoa(MaxStatements)+" statements")
	}
	if len(b.Certificates) > MaxCertificates {
		return nil, fault("bundle", "certs", "at most "+strconv.Itoa(MaxCertificates)+" certificates")
	}
	for _, s := range b.Statements {
		if _, err := oid.Parse(s.Type.String()); err != nil {
			return nil, fault("bundle", "type", "an OBJECT IDENTIFIER")
		}
		if !oneElement(s.Stmt) {
			return nil, fault("bundle", "stmt", "one DER element")
		}
	}
	for _, c := range b.Certificates {
		if _, err := openSequence("bundle certificate", c, MaxCertificateSize); err != nil {
			return nil, err
		}
	}
	var out cryptobyte.Builder
	out.AddASN1(asn1.SEQUENCE, func(out *cryptobyte.Builder) {
		out.AddASN1(asn1.SEQUENCE, func(out *cryptobyte.Builder) {
			for _, s := range b.Statements {
				out.AddASN1(asn1.SEQUENCE, func(out *cryptobyte.Builder) {
					oid.Add(out, s.Type)
					out.AddBytes(s.Stmt)
				})
			}
		})
		if len(b.Certificates) == 0 {
			return
		}
		out.AddASN1(asn1.SEQUENCE, func(out *cryptobyte.Builder) {
			for _, c := range b.Certificates {
				out.AddBytes(c)
			}
		})
	})
	der, err := out.Bytes()
	if err == nil && len(der) > MaxEvidenceSize {
		return nil, &Error{Check: CheckSize, Got: strconv.Itoa(len(der)) + " bytes of bundle",
			Want: "at most " + strconv.Itoa(MaxEvidenceSize)}
	}
	return der, err
}

// oneElement reports whether der is one DER element and nothing behind it.
func oneElement(der []byte) bool {
	in := cryptobyte.String(der)
	var tag asn1.Tag
	var v cryptobyte.String
	return in.ReadAnyASN1(&v, &tag) && in.Empty()
}

// ParseAttestationBundle reads the DER of an AttestationBundle of at most
// [MaxEvidenceSize] bytes. It looks at the frame only: neither statements nor
// certificates are read. It accepts exactly what
// [AttestationBundle.Marshal] writes; the result shares memory with der. It
// returns an [*Error] with [CheckEncoding] or [CheckSize].
func ParseAttestationBundle(der []byte) (*AttestationBundle, error) {
	body, err := openSequence("bundle", der, MaxEvidenceSize)
	if err != nil {
		return nil, err
	}
	b := &AttestationBundle{}
	var list cryptobyte.String
	if !body.ReadASN1(&list, asn1.SEQUENCE) {
		return nil, fault("bundle", "attestations", "a SEQUENCE OF")
	}
	if b.Statements, err = readStatements(list); err != nil {
		return nil, err
	}
	if body.Empty() {
		return b, nil
	}
	if !body.ReadASN1(&list, asn1.SEQUENCE) || !body.Empty() {
		return nil, fault("bundle", "certs", "a SEQUENCE OF and nothing behind it")
	}
	if b.Certificates, err = readCertificates(list); err != nil {
		return nil, err
	}
	return b, nil
}

func readStatements(list cryptobyte.String) ([]AttestationStatement, error) {
	statements := make([]AttestationStatement, 0, 2)
	for !list.Empty() {
		if len(statements) == MaxStatements {
			return nil, fault("bundle", "attestations", "at most "+strconv.Itoa(MaxStatements)+" statements")
		}
		var s AttestationStatement
		var one, stmt cryptobyte.String
		var tag asn1.Tag
		if !list.ReadASN1(&one, asn1.SEQUENCE) || !oid.Read(&one, &s.Type) {
			return nil, fault("bundle", "statement", "a SEQUENCE that starts with a type")
		}
		if !one.ReadAnyASN1Element(&stmt, &tag) || !one.Empty() {
			return nil, fault("bundle", "stmt", "one DER element")
		}
		s.Stmt = stmt
		statements = append(statements, s)
	}
	if len(statements) == 0 {
		return nil, fault("bundle", "attestations", "at least one statement")
	}
	return statements, nil
}

func readCertificates(list cryptobyte.String) ([][]byte, error) {
	certificates := make([][]byte, 0, 2)
	for !list.Empty() {
		if len(certificates) == MaxCertificates {
			return nil, fault("bundle", "certs", "at most "+strconv.Itoa(MaxCertificates)+" certificates")
		}
		var one cryptobyte.String
		if !list.ReadASN1Element(&one, asn1.SEQUENCE) {
			return nil, fault("bundle", "certs", "plain certificates")
		}
		if len(one) > MaxCertificateSize {
			return nil, &Error{Check: CheckSize, Got: strconv.Itoa(len(one)) + " bytes of certificate",
				Want: "at most " + strconv.Itoa(MaxCertificateSize)}
		}
		certificates = append(certificates, one)
	}
	if len(certificates) == 0 {
		return nil, fault("bundle", "certs", "at least one certificate, or no certs at all")
	}
	return certificates, nil
}

// MarshalTCGAttestCertify returns the DER of the statement tcg-attest-tpm-certify
// ([oid.TCGAttestTPMCertify]) over e:
//
//	TcgAttestCertify ::= SEQUENCE { tpmSAttest OCTET STRING, signature OCTET STRING,
//	                                tpmTPublic OCTET STRING OPTIONAL }
//
// The signature goes in as it is, a TPMT_SIGNATURE unless e.RawSignature says
// otherwise. It returns an [*Error] with [CheckEncoding] or [CheckSize].
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
		return fault("certify", "statement", "one")
	case len(e.Attest) == 0 || len(e.Attest) > MaxPublicSize:
		return fault("certify", "tpmSAttest", "a TPMS_ATTEST")
	case len(e.Signature) == 0 || len(e.Signature) > MaxPublicSize:
		return fault("certify", "signature", "a signature")
	case e.Public != nil && (len(e.Public) == 0 || len(e.Public) > MaxPublicSize):
		return fault("certify", "tpmTPublic", "a TPMT_PUBLIC")
	}
	return nil
}

// ParseTCGAttestCertify reads the DER of a tcg-attest-tpm-certify statement. It
// looks at the frame only: the three parts are read by [VerifyCertify]. The
// result shares memory with der, its RawSignature is nil and its Public is nil
// where tpmTPublic is absent. It returns an [*Error] with [CheckEncoding] or
// [CheckSize].
func ParseTCGAttestCertify(der []byte) (*CertifyEvidence, error) {
	body, err := openSequence("certify", der, MaxEvidenceSize)
	if err != nil {
		return nil, err
	}
	e := &CertifyEvidence{}
	if e.Attest, err = readOctets("certify", "tpmSAttest", &body, asn1.OCTET_STRING, 1, MaxPublicSize); err != nil {
		return nil, err
	}
	if e.Signature, err = readOctets("certify", "signature", &body, asn1.OCTET_STRING, 1, MaxPublicSize); err != nil {
		return nil, err
	}
	if !body.Empty() {
		if e.Public, err = readOctets("certify", "tpmTPublic", &body, asn1.OCTET_STRING, 1, MaxPublicSize); err != nil {
			return nil, err
		}
	}
	if !body.Empty() {
		return nil, fault("certify", "frame", "nothing behind tpmTPublic")
	}
	return e, nil
}
