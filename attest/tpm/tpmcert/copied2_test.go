package tpmcert

import (
	"bytes"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

func seq(elements ...[]byte) []byte { return element(asn1.SEQUENCE, bytes.Join(elements, nil)) }

func octets(v []byte) []byte { return element(asn1.OCTET_STRING, v) }

func element(tag asn1.Tag, content []byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(tag, func(b *cryptobyte.Builder) { b.AddBytes(content) })
	return b.BytesOrPanic()
}
