package main

import (
	"crypto/x509"
	"fmt"

	"golang.org/x/crypto/cryptobyte/asn1"
)

// maxCertificate bounds the certificates that crypto/x509 gets to see.
const maxCertificate = 64 << 10

// showCertificate reads a certificate: RFC 5280, 4.1.
func showCertificate(r *reader) {
	r.strictly(func() {
		r.enter("Certificate", asn1.SEQUENCE, func(in *reader, _ []byte) {
			in.enter("TBSCertificate", asn1.SEQUENCE, func(in *reader, _ []byte) { in.toBeSigned() })
			in.algorithm("signature algorithm")
			if bits := in.bits("signature"); bits != nil {
				in.t.line("signature", sizeOf(len(bits.b)))
			}
		})
	}, func(raw []byte) error {
		if len(raw) > maxCertificate {
			return fmt.Errorf("certificate of %s, at most %d are read", sizeOf(len(raw)), maxCertificate)
		}
		c, err := x509.ParseCertificate(raw)
		if err == nil && len(r.t.parts.certificates) < maxChain {
			r.t.parts.certificates = append(r.t.parts.certificates, c)
		}
		return err
	})
}

func (r *reader) toBeSigned() {
	if r.peek() == tag0Constructed {
		r.enter("version", tag0Constructed, func(in *reader, _ []byte) {
			if v, ok := in.number("version", asn1.INTEGER); ok {
				in.t.line("version", fmt.Sprintf("%d (v%d)", v, v+1))
			}
		})
	}
	r.integer("serial")
	r.algorithm("signed with")
	r.distinguishedName("issuer")
	r.enter("validity", asn1.SEQUENCE, func(in *reader, _ []byte) {
		in.time("not before")
		in.time("not after")
	})
	r.distinguishedName("subject")
	r.part("public key", showKeyInfo)
	for _, name := range []string{"issuerUniqueID", "subjectUniqueID"} {
		if tag := r.peek(); tag == 0x81 || tag == 0x82 {
			if _, id, _, ok := r.element(name); ok {
				r.t.line(name, hexOf(id.b))
			}
		}
	}
	if r.more() {
		r.enter("extensions", tag3Constructed, func(in *reader, _ []byte) {
			in.enter("extensions", asn1.SEQUENCE, func(in *reader, _ []byte) { in.extensions() })
		})
	}
}
