package message

import (
	"bytes"
	"strconv"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/oid"
)

// MaxStatements bounds the number of statements in a bundle.
const MaxStatements = 8

// Bundle is a node's evidence in transit: the structure of draft-ietf-lamps-csr-attestation-28
// (attribute [oid.IDAAAttestation]).
//
//	AttestationBundle ::= SEQUENCE { attestations SEQUENCE SIZE (1..MAX) OF AttestationStatement,
//	                                 certs SEQUENCE SIZE (1..MAX) OF LimitedCertChoices OPTIONAL }
type Bundle struct {
	// Statements has 1 to [MaxStatements] elements.
	Statements []Statement
	// Certificates are DER, leaf first, 0 to [der.MaxCertificates] of at most
	// [der.MaxCertificateSize] bytes each. Only plain certificates are read and written, not
	// the other form of LimitedCertChoices.
	Certificates [][]byte
}

// Statement is one statement of a [Bundle].
//
//	AttestationStatement ::= SEQUENCE { type OBJECT IDENTIFIER, stmt ANY DEFINED BY type }
type Statement struct {
	Type oid.OID
	// Stmt is one DER element, tag and length included.
	Stmt []byte
}

// Marshal returns the DER of b. It returns a [*refusal.Error] with [der.CheckEncoding] or
// [der.CheckSize] if b is outside the limits: it parses its own output.
func (b *Bundle) Marshal() ([]byte, error) {
	for _, c := range b.Certificates {
		if _, err := readCertificate(c); err != nil {
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
		if len(b.Certificates) > 0 {
			out.AddASN1(asn1.SEQUENCE, func(out *cryptobyte.Builder) { out.AddBytes(bytes.Join(b.Certificates, nil)) })
		}
	})
	data, err := out.Bytes()
	if err != nil {
		return nil, der.Fault("bundle", "type", "an OBJECT IDENTIFIER")
	}
	if _, err := ParseBundle(data); err != nil {
		return nil, err
	}
	return data, nil
}

// ParseBundle reads the DER of a Bundle of at most [der.MaxEvidenceSize] bytes. It examines
// only the frame: neither statements nor certificates are read. It accepts exactly what
// [Bundle.Marshal] writes; the result shares memory with data. It returns a [*refusal.Error]
// with [der.CheckEncoding] or [der.CheckSize].
func ParseBundle(data []byte) (*Bundle, error) {
	body, err := der.OpenSequence("bundle", data, der.MaxEvidenceSize)
	if err != nil {
		return nil, err
	}
	b := &Bundle{}
	b.Statements, err = readList(&body, "attestations", MaxStatements, readStatement)
	if err == nil && !body.Empty() {
		b.Certificates, err = readList(&body, "certs", der.MaxCertificates, readCertificate)
	}
	if err == nil && !body.Empty() {
		err = der.Fault("bundle", "frame", "nothing after certs")
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// readList reads a SEQUENCE of 1 to most elements.
func readList[T any](s *cryptobyte.String, field string, most int, read func(cryptobyte.String) (T, error)) ([]T, error) {
	var list cryptobyte.String
	whole := s.ReadASN1(&list, asn1.SEQUENCE)
	all := make([]T, 0, 2)
	for !list.Empty() && len(all) <= most {
		var element cryptobyte.String
		if !list.ReadASN1Element(&element, asn1.SEQUENCE) {
			element = nil // which read refuses
		}
		one, err := read(element)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	if !whole || len(all) == 0 || len(all) > most {
		return nil, der.Fault("bundle", field, "a SEQUENCE OF 1 to "+strconv.Itoa(most))
	}
	return all, nil
}

func readStatement(element cryptobyte.String) (s Statement, err error) {
	var one cryptobyte.String
	var tag asn1.Tag
	if !element.ReadASN1(&one, asn1.SEQUENCE) || !oid.Read(&one, &s.Type) {
		return s, der.Fault("bundle", "statement", "a SEQUENCE that starts with a type")
	}
	if !one.ReadAnyASN1Element((*cryptobyte.String)(&s.Stmt), &tag) || !one.Empty() {
		return s, der.Fault("bundle", "stmt", "one DER element")
	}
	return s, nil
}

// readCertificate takes a plain certificate, and no other choice.
func readCertificate(c cryptobyte.String) ([]byte, error) {
	_, err := der.OpenSequence("bundle certificate", c, der.MaxCertificateSize)
	return c, err
}
