package tpm_test

import (
	"bytes"
	"crypto/x509/pkix"
	"encoding/asn1"
	"slices"

	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

// listExtensions are extensions of certificates with a list of each sort that crypto/x509 or package
// tpmcert reads; a subjectAltName and the constraints of a CA come first.
func listExtensions() []pkix.Extension {
	seq, element := tpmlab.Seq, tpmlab.Element
	object := []byte{6, 3, 0x2a, 3, 4}
	names := seq(element(0x82, []byte("a.b")), element(0x81, []byte("a@b.c")), element(0x86, []byte("http://a/b")), element(0x87, []byte{1, 2, 3, 4}),
		element(0xa0, slices.Concat(object, element(0xa0, []byte{5, 0}))), element(0xa4, tpmlab.NameOf("a")))
	trees := bytes.Join([][]byte{seq(element(0x82, []byte("c.d"))), seq(element(0x81, []byte("c.d"))), seq(element(0x86, []byte(".c.d"))),
		seq(element(0x87, []byte{5, 2, 3, 0, 255, 255, 255, 0}))}, nil)
	id := func(arc ...int) asn1.ObjectIdentifier { return arc }
	return []pkix.Extension{
		{Id: id(2, 5, 29, 17), Value: names},
		{Id: id(2, 5, 29, 30), Critical: true, Value: seq(element(0xa1, trees))},
		{Id: id(2, 5, 29, 31), Value: seq(seq(element(0xa0, element(0xa0, element(0x86, []byte("http://a/b"))))))},
		{Id: id(2, 5, 29, 32), Value: seq(seq(object), seq([]byte{6, 3, 0x2a, 3, 5}))},
		{Id: id(2, 5, 29, 33), Value: seq(seq(object, object))},
		{Id: id(2, 5, 29, 9), Value: seq(seq(object, element(0x31, seq(object))))},
		{Id: id(1, 3, 6, 1, 5, 5, 7, 1, 1), Value: seq(seq([]byte("\x06\x08\x2b\x06\x01\x05\x05\x07\x30\x02"), element(0x86, []byte("http://a/b"))))},
		{Id: id(2, 999, 1), Value: seq(object)},
	}
}
