package ec2

import (
	"strings"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/refusal"
)

// Limits of the evidence, in bytes.
const (
	maxDocument = 8 << 10
	maxMethod   = 16
	maxURL      = 8 << 10
	maxHeaders  = 4
	maxName     = 64
	maxValue    = 256
)

// checkEncoding: the evidence is not the DER of an identity document and a request.
const checkEncoding refusal.Check = "ec2-encoding"

// evidence is the data of an answer.
//
//	Evidence ::= SEQUENCE { document OCTET STRING, method UTF8String, url UTF8String,
//	         headers SEQUENCE OF SEQUENCE { name UTF8String, value UTF8String } }
//
// The document is what /rsa2048 has, decoded, 1 to 8192 bytes. The method has up to 16 bytes, the
// URL 8192, and there are up to 4 headers, with names of 64 bytes and values of 256.
type evidence struct {
	document []byte
	request  sentRequest
}

// sentRequest is a request as the node wrote it. It is read, and never sent.
type sentRequest struct {
	method, url string
	headers     []header
}

type header struct{ name, value string }

func (e *evidence) marshal() ([]byte, error) {
	text := func(b *cryptobyte.Builder, s string) {
		b.AddASN1(asn1.UTF8String, func(b *cryptobyte.Builder) { b.AddBytes([]byte(s)) })
	}
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1OctetString(e.document)
		text(b, e.request.method)
		text(b, e.request.url)
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
			for _, h := range e.request.headers {
				b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
					text(b, h.name)
					text(b, h.value)
				})
			}
		})
	})
	return b.Bytes()
}

// parseEvidence reads exactly the encoding of marshal. The document shares memory with data.
func parseEvidence(data []byte) (*evidence, error) {
	e := &evidence{}
	in, body, headers, document := cryptobyte.String(data), cryptobyte.String(nil), cryptobyte.String(nil), cryptobyte.String(nil)
	ok := in.ReadASN1(&body, asn1.SEQUENCE) && in.Empty() &&
		body.ReadASN1(&document, asn1.OCTET_STRING) && len(document) > 0 && len(document) <= maxDocument &&
		readText(&body, &e.request.method, maxMethod) && readText(&body, &e.request.url, maxURL) &&
		body.ReadASN1(&headers, asn1.SEQUENCE) && body.Empty()
	for ok && !headers.Empty() {
		var one cryptobyte.String
		var h header
		ok = len(e.request.headers) < maxHeaders && headers.ReadASN1(&one, asn1.SEQUENCE) &&
			readText(&one, &h.name, maxName) && readText(&one, &h.value, maxValue) && one.Empty()
		e.request.headers = append(e.request.headers, h)
	}
	if !ok {
		return nil, checkEncoding.Refuse("something else", "the DER of an identity document, a method, a URL and headers")
	}
	e.document = document
	return e, nil
}

// readText reads a string of at most so many bytes, all of them printable ASCII.
func readText(in *cryptobyte.String, s *string, most int) bool {
	var text cryptobyte.String
	if !in.ReadASN1(&text, asn1.UTF8String) || len(text) > most {
		return false
	}
	*s = string(text)
	return !strings.ContainsFunc(*s, func(r rune) bool { return r < ' ' || r > '~' })
}
