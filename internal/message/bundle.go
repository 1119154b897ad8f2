package message

import (
	"strconv"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Limits of an attestation bundle.
const (
	// MaxStatements bounds the statements of a bundle.
	MaxStatements = 8
)

// Bundle is the evidence of a node as it travels: the structure of
// draft-ietf-lamps-csr-attestation (attribute [oid.IDAAAttestation]).
//
//	AttestationBundle    ::= SEQUENCE { attestations SEQUENCE SIZE (1..MAX) OF AttestationStatement,
//	                                    certs SEQUENCE SIZE (1..MAX) OF CertificateChoices OPTIONAL }
type Bundle struct {
	// Statements are 1 to [MaxStatements].
	Statements []Statement
	// Certificates are DER, leaf first, 0 to [der.MaxCertificates] of at most
	// [der.MaxCertificateSize] bytes each. Only plain certificates are read and
	// written, none of the other CertificateChoices.
	Certificates [][]byte
}

// Statement is one statement of an [Bundle].
//
//	AttestationStatement ::= SEQUENCE { type OBJECT IDENTIFIER, stmt ANY DEFINED BY type }
type Statement struct {
	Type oid.OID
	// Stmt is one DER element, tag and length included.
	Stmt []byte
}

// Marshal returns the DER of b. It returns a [*refusal.Error] with [der.CheckEncoding] or
// [der.CheckSize] if b is outside the limits.
func (b *Bundle) Marshal() ([]byte, error) {
	if len(b.Statements) == 0 || len(b.Statements) > MaxStatements {
		return nil, der.Fault("bundle", "attestations", "1 to "+strconv.Itoa(MaxStatements)+" statements")
	}
	if len(b.Certificates) > der.MaxCertificates {
		return nil, der.Fault("bundle", "certs", "at most "+strconv.Itoa(der.MaxCertificates)+" certificates")
	}
	for _, s := range b.Statements {
		if _, err := oid.Parse(s.Type.String()); err != nil {
			return nil, der.Fault("bundle", "type", "an OBJECT IDENTIFIER")
		}
		if !oneElement(s.Stmt) {
			return nil, der.Fault("bundle", "stmt", "one DER element")
		}
	}
	for _, c := range b.Certificates {
		if _, err := der.OpenSequence("bundle certificate", c, der.MaxCertificateSize); err != nil {
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
	data, err := out.Bytes()
	if err == nil && len(data) > der.MaxEvidenceSize {
		return nil, &refusal.Error{Check: der.CheckSize, Got: strconv.Itoa(len(data)) + " bytes of bundle",
			Want: "at most " + strconv.Itoa(der.MaxEvidenceSize)}
	}
	return data, err
}

// oneElement reports whether data is one DER element and nothing after it.
func oneElement(data []byte) bool {
	in := cryptobyte.String(data)
	var tag asn1.Tag
	var v cryptobyte.String
	return in.ReadAnyASN1(&v, &tag) && in.Empty()
}

// ParseBundle reads the DER of an Bundle of at most
// [der.MaxEvidenceSize] bytes. It looks at the frame only: neither statements nor
// certificates are read. It accepts exactly what
// [Bundle.Marshal] writes; the result shares memory with der. It
// returns a [*refusal.Error] with [der.CheckEncoding] or [der.CheckSize].
func ParseBundle(data []byte) (*Bundle, error) {
	body, err := der.OpenSequence("bundle", data, der.MaxEvidenceSize)
	if err != nil {
		return nil, err
	}
	b := &Bundle{}
	var list cryptobyte.String
	if !body.ReadASN1(&list, asn1.SEQUENCE) {
		return nil, der.Fault("bundle", "attestations", "a SEQUENCE OF")
	}
	if b.Statements, err = readStatements(list); err != nil {
		return nil, err
	}
	if body.Empty() {
		return b, nil
	}
	if !body.ReadASN1(&list, asn1.SEQUENCE) || !body.Empty() {
		return nil, der.Fault("bundle", "certs", "a SEQUENCE OF and nothing after it")
	}
	if b.Certificates, err = readCertificates(list); err != nil {
		return nil, err
	}
	return b, nil
}

func readStatements(list cryptobyte.String) ([]Statement, error) {
	statements := make([]Statement, 0, 2)
	for !list.Empty() {
		if len(statements) == MaxStatements {
			return nil, der.Fault("bundle", "attestations", "at most "+strconv.Itoa(MaxStatements)+" statements")
		}
		var s Statement
		var one, stmt cryptobyte.String
		var tag asn1.Tag
		if !list.ReadASN1(&one, asn1.SEQUENCE) || !oid.Read(&one, &s.Type) {
			return nil, der.Fault("bundle", "statement", "a SEQUENCE that starts with a type")
		}
		if !one.ReadAnyASN1Element(&stmt, &tag) || !one.Empty() {
			return nil, der.Fault("bundle", "stmt", "one DER element")
		}
		s.Stmt = stmt
		statements = append(statements, s)
	}
	if len(statements) == 0 {
		return nil, der.Fault("bundle", "attestations", "at least one statement")
	}
	return statements, nil
}

func readCertificates(list cryptobyte.String) ([][]byte, error) {
	certificates := make([][]byte, 0, 2)
	for !list.Empty() {
		if len(certificates) == der.MaxCertificates {
			return nil, der.Fault("bundle", "certs", "at most "+strconv.Itoa(der.MaxCertificates)+" certificates")
		}
		var one cryptobyte.String
		if !list.ReadASN1Element(&one, asn1.SEQUENCE) {
			return nil, der.Fault("bundle", "certs", "plain certificates")
		}
		if len(one) > der.MaxCertificateSize {
			return nil, &refusal.Error{Check: der.CheckSize, Got: strconv.Itoa(len(one)) + " bytes of certificate",
				Want: "at most " + strconv.Itoa(der.MaxCertificateSize)}
		}
		certificates = append(certificates, one)
	}
	if len(certificates) == 0 {
		return nil, der.Fault("bundle", "certs", "at least one certificate, or no certs at all")
	}
	return certificates, nil
}
