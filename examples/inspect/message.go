package main

import (
	"encoding/hex"
	"strconv"

	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
)

// showHello reads a Hello, the node's first message.
func showHello(r *reader) {
	r.strictly(func() {
		r.enter("Hello", asn1.SEQUENCE, func(in *reader, _ []byte) {
			in.version()
			in.road()
			in.text("clusterID")
			in.text("targetSigner")
			in.showKeys()
		})
	}, func(raw []byte) error {
		_, err := attest.ParseHello(raw)
		return err
	})
}

// showKeys reads the keys that end a Hello and a Proof.
func (r *reader) showKeys() {
	if r.peek() == tag0 {
		r.structure("ekPublic", tag0, showKeyInfo)
	}
	r.structure("akPublic", asn1.OCTET_STRING, func(in *reader) { showPublic(in, roleAK) })
}

// showProof reads a Proof: the Binding that is echoed, and the keys that were used.
func showProof(r *reader) {
	r.strictly(func() {
		r.enter("Proof", asn1.SEQUENCE, func(in *reader, _ []byte) {
			in.part("binding", showBinding)
			in.showKeys()
		})
	}, func(raw []byte) error {
		_, err := attest.ParseProof(raw)
		return err
	})
}

// part takes one element whole and shows it below a line.
func (r *reader) part(name string, show func(*reader)) {
	if r.done {
		return
	}
	r.t.in(name, "", func() {
		at := r.at
		_, content, raw, ok := r.element(name)
		if !ok {
			return
		}
		whole := newReader(r.t, raw, at)
		whole.cut = content.cut
		show(whole)
	})
}

// showBinding reads a Binding: what a proof is bound to.
func showBinding(r *reader) {
	r.strictly(func() {
		r.enter("Binding", asn1.SEQUENCE, func(in *reader, _ []byte) {
			in.version()
			in.road()
			in.octets("keyID")
			in.octets("nonce")
			in.unixTime("issuedAt")
			in.unixTime("notAfter")
			in.text("clusterID")
			in.text("signerName")
			in.text("requester")
			if v, ok := in.number("expirationSeconds", asn1.INTEGER); ok {
				in.t.line("expirationSeconds", seconds(v))
			}
			in.octets("machineKey")
			in.octets("akName")
			in.octets("requestHash")
		})
	}, func(raw []byte) error {
		b, err := attest.ParseBinding(raw)
		if err == nil && r.t.parts.binding == nil {
			r.t.parts.binding = b
		}
		return err
	})
}

// showChallenge reads a Challenge. Its clear secret only shows that the AK signed after
// the control plane spoke, and whoever may read the object reads it too; still it is
// not for logs. A credential's two parts are shown by size alone.
func showChallenge(r *reader) {
	r.strictly(func() {
		r.enter("Challenge", asn1.SEQUENCE, func(in *reader, _ []byte) {
			in.part("binding", showBinding)
			switch in.peek() {
			case tag0:
				if secret, _, ok := in.take("secret", tag0); ok {
					in.t.line("secret", "clear, "+hex.EncodeToString(secret.b[:min(4, len(secret.b))])+"… ("+sizeOf(len(secret.b))+")")
				}
			case tag1Constructed:
				in.node("secret: credential", tag1Constructed, func(in *reader, _ []byte) {
					in.hidden("idObject")
					in.hidden("encryptedSecret")
				})
			default:
				in.stop("secret: neither clear [0] nor credential [1]")
			}
		})
	}, func(raw []byte) error {
		_, err := attest.ParseChallenge(raw)
		return err
	})
}

// hidden takes an OCTET STRING whose content is not shown.
func (r *reader) hidden(name string) {
	if content, _, ok := r.take(name, asn1.OCTET_STRING); ok {
		r.t.line(name, sizeOf(len(content.b))+", not shown")
	}
}

// seconds writes a lifetime, of which 0 means that none was asked for.
func seconds(v int64) string {
	if v == 0 {
		return "0, absent"
	}
	return strconv.FormatInt(v, 10)
}
