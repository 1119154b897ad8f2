package attest

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
)

// Evidence is the part of a kind's messages next to the certificate request. It travels
// as the AttestationBundle of draft-ietf-lamps-csr-attestation-28 (attribute
// 1.2.840.113549.1.9.16.2.59) in the block KUBELET AUTHENTICATOR ATTESTATION DATA:
//
//	AttestationBundle    ::= SEQUENCE { attestations SEQUENCE SIZE (1..8) OF AttestationStatement,
//	                                    certs SEQUENCE SIZE (1..8) OF Certificate OPTIONAL }
//	AttestationStatement ::= SEQUENCE { type OBJECT IDENTIFIER, stmt ANY DEFINED BY type }
//
// Every such bundle conforms to the draft. The draft also allows others, which are refused on
// purpose, so that one meaning has one encoding and a limited size:
//
//   - LimitedCertChoices are plain certificates, never other [3], which nothing here could verify.
//   - Certificates are one chain, leaf first and root left out, for all statements together:
//     one machine answers. The draft specifies no order.
//   - There are at most 8 statements and 8 certificates of 16 KiB; the draft sets no limit.
//   - A statement has its type and its content, and no hint (a field of drafts up to -21);
//     its content is DER and is not wrapped in an OCTET STRING.
//
// TPM statements are those of draft-birkholz-rats-tcg-tpm2-attestation, to which the draft's
// own appendix about TPMs moved: tcg-attest-tpm-certify, with tpmTPublic always present in an
// answer and the signature a TPMT_SIGNATURE. Only the lower-level functions of
// attest/tpm/statement read a bare signature, and only they read tcg-attest-tpm-quote. Where
// those documents have no statement, a private one is used, such as [oid.NodeAttestHello].
type Evidence struct {
	// Version is the version of the kind's data format, of the provider block: 1 for "tpm/v1".
	Version int
	// Statements holds 1 to 8 statements.
	Statements []Statement
	// Certificates are DER, leaf first and root left out: 0 to 8, each at most 16 KiB.
	Certificates [][]byte
}

// Statement is one statement of [Evidence].
type Statement struct {
	Type oid.OID
	// DER is one element, including tag and length.
	DER []byte
}

// Is reports whether the evidence has statements of exactly these types, in this order.
func (e *Evidence) Is(types ...oid.OID) bool {
	return e != nil && slices.EqualFunc(e.Statements, types, func(s Statement, t oid.OID) bool { return s.Type == t })
}

// Types names the types of the statements, for an error: "nodeattest-hello, …".
func (e *Evidence) Types() string {
	e = cmp.Or(e, &Evidence{})
	names := make([]string, len(e.Statements))
	for n, s := range e.Statements {
		names[n] = cmp.Or(s.Type.Name(), s.Type.String())
	}
	return strings.Join(names, ", ")
}

// bundleOf returns the bundle of a request and its evidence.
func bundleOf(request []byte, format string, e *Evidence) (*csr.Bundle, error) {
	if e == nil {
		return nil, errors.New("attest: the Prover made no evidence")
	}
	b := &message.Bundle{Certificates: e.Certificates}
	for _, s := range e.Statements {
		b.Statements = append(b.Statements, message.Statement{Type: s.Type, Stmt: s.DER})
	}
	data, err := b.Marshal()
	if err != nil {
		return nil, err
	}
	return &csr.Bundle{Request: request, Provider: format, Data: data}, nil
}

// evidenceOf reads the evidence in a bundle.
func evidenceOf(b *csr.Bundle, version int) (*Evidence, error) {
	m, err := message.ParseBundle(b.Data)
	if err != nil {
		return nil, err
	}
	e := &Evidence{Version: version, Statements: make([]Statement, len(m.Statements)), Certificates: m.Certificates}
	for n, s := range m.Statements {
		e.Statements[n] = Statement{Type: s.Type, DER: s.Stmt}
	}
	return e, nil
}
