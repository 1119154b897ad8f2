package main

import (
	"crypto/x509"
	"strconv"

	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

// showRequest reads a PKCS#10 request: RFC 2986.
func showRequest(r *reader) {
	whole := r.b
	r.strictly(func() {
		r.enter("CertificationRequest", asn1.SEQUENCE, func(in *reader, _ []byte) {
			in.enter("CertificationRequestInfo", asn1.SEQUENCE, func(in *reader, _ []byte) {
				in.version()
				in.distinguishedName("subject")
				in.part("public key", showKeyInfo)
				in.enter("attributes", tag0Constructed, func(in *reader, _ []byte) {
					for in.more() {
						in.attribute()
					}
				})
			})
			in.algorithm("signature algorithm")
			if bits := in.bits("signature"); bits != nil {
				in.t.line("signature", sizeOf(len(bits.b)))
			}
		})
	}, func(raw []byte) error {
		p, err := csr.ParsePKCS10(raw)
		if err == nil && r.t.parts.request == nil {
			r.t.parts.request = p
		}
		return err
	})
	r.t.selfSignature(whole)
}

// selfSignature says whether a request is signed by its own key, as far as crypto/x509
// can say.
func (t *tree) selfSignature(der []byte) {
	if len(der) > csr.MaxRequestSize {
		return
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil || !computable(request.PublicKey) {
		t.line("self-signature", "not checked: the request is malformed, or its key too large")
		return
	}
	if err := request.CheckSignature(); err != nil {
		t.line("self-signature", "DOES NOT HOLD: "+err.Error())
		return
	}
	t.line("self-signature", "holds")
}

// attribute reads one attribute of a request.
func (r *reader) attribute() {
	r.enter("attribute", asn1.SEQUENCE, func(in *reader, _ []byte) {
		id := in.oid("attribute")
		if in.done {
			return
		}
		in.t.in("attribute "+nameOf(id), "", func() {
			in.enter("values", asn1.SET, func(in *reader, _ []byte) {
				for n := 1; in.more(); n++ {
					in.attributeValue(id, n)
				}
			})
		})
	})
}

func (r *reader) attributeValue(id oid.OID, n int) {
	name := "value " + strconv.Itoa(n)
	switch id {
	case oid.ExtensionRequest:
		r.enter(name, asn1.SEQUENCE, func(in *reader, _ []byte) { in.extensions() })
	case oid.IDAAAttestation:
		r.part("AttestationBundle", showEvidence)
	case oid.ChallengePassword:
		if _, content, _, ok := r.element(name); ok {
			r.t.line(name, sizeOf(len(content.b))+", not shown")
		}
	default:
		r.part(name, showOpaque)
	}
}
