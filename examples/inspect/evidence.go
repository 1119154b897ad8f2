package main

import (
	"strconv"

	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/oid"
)

// showEvidence reads an AttestationBundle: statements, and the certificates that they
// need.
func showEvidence(r *reader) {
	r.strictly(func() {
		r.enter("AttestationBundle", asn1.SEQUENCE, func(in *reader, _ []byte) {
			in.node("attestations", asn1.SEQUENCE, func(in *reader, _ []byte) {
				for n := 1; in.more(); n++ {
					in.showStatement("statement " + strconv.Itoa(n))
				}
			})
			if in.more() {
				in.node("certs", asn1.SEQUENCE, func(in *reader, _ []byte) {
					for n := 1; in.more(); n++ {
						in.part("certificate "+strconv.Itoa(n), showCertificate)
					}
				})
			}
		})
	}, func(raw []byte) error {
		_, err := attest.ParseAttestationBundle(raw)
		return err
	})
}

// showStatement reads an AttestationStatement: a type, and what the type says.
func (r *reader) showStatement(name string) {
	r.node(name, asn1.SEQUENCE, func(in *reader, _ []byte) {
		id := in.oid("type")
		if in.done {
			return
		}
		in.t.line("type", nameOf(id))
		show := map[oid.OID]func(*reader){
			oid.TCGAttestTPMCertify: showCertify,
			oid.NodeAttestHello:     showHello,
			oid.NodeAttestProof:     showProof,
			oid.NodeAttestQuote:     showQuote,
			oid.NodeAttestEventLog:  showEventLog,
		}[id]
		if show == nil {
			show = showOpaque
		}
		in.part("stmt", show)
	})
}

// showOpaque says how large something is that this program has no reader for.
func showOpaque(r *reader) {
	if tag, content, _, ok := r.element("content"); ok {
		r.t.line("content", sizeOf(len(content.b))+" under tag "+tagName(tag)+", not shown")
		if content.cut != "" {
			content.b, content.at = nil, content.at+len(content.b)
			content.end()
		}
	}
}

// showCertify reads a tcg-attest-tpm-certify statement: the result of TPM2_Certify.
func showCertify(r *reader) {
	r.strictly(func() {
		r.enter("TcgAttestCertify", asn1.SEQUENCE, func(in *reader, _ []byte) {
			in.structure("tpmSAttest", asn1.OCTET_STRING, showAttestation)
			in.structure("signature", asn1.OCTET_STRING, showAnySignature)
			if in.more() {
				in.structure("tpmTPublic", asn1.OCTET_STRING, func(in *reader) { showPublic(in, roleCertified) })
			}
		})
	}, func(raw []byte) error {
		_, err := tpm.ParseTCGAttestCertify(raw)
		return err
	})
}

// showQuote reads a quote statement: the result of TPM2_Quote, and the PCRs' values.
func showQuote(r *reader) {
	r.enter("Quote", asn1.SEQUENCE, func(in *reader, _ []byte) {
		in.structure("tpmSAttest", asn1.OCTET_STRING, showAttestation)
		in.structure("signature", asn1.OCTET_STRING, showAnySignature)
		in.node("pcrs", asn1.SEQUENCE, func(in *reader, _ []byte) {
			for in.more() {
				in.enter("PCR", asn1.SEQUENCE, func(in *reader, _ []byte) {
					bank, _ := in.number("bank", asn1.INTEGER)
					index, _ := in.number("index", asn1.INTEGER)
					in.octets("PCR " + strconv.FormatInt(index, 10) + " " + algorithmName(uint64(bank)))
				})
			}
		})
	})
	r.end()
}

// showEventLog tells the size of an event log, which has a format of its own.
func showEventLog(r *reader) {
	if content, _, ok := r.take("event log", asn1.OCTET_STRING); ok {
		r.t.line("event log", sizeOf(len(content.b))+", not shown")
	}
	r.end()
}
