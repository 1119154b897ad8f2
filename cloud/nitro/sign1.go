package nitro

import (
	"strconv"

	"github.com/nodeattest/nodeattest/refusal"
)

// maxDocumentSize bounds a document, in bytes. Real ones are 4.4 to 5.0 KB long.
const maxDocumentSize = 16 << 10

const signatureSize = 96 // r and s on P-384

// Checks on a document's form.
const (
	// checkEncoding: it does not have the one shape of COSE and CBOR that NitroTPM documents
	// have.
	checkEncoding refusal.Check = "nitro-document-encoding"
	// checkAlgorithm: its protected header is not exactly ES384, it has an unprotected header,
	// or its digests are not SHA-384.
	checkAlgorithm refusal.Check = "nitro-document-algorithm"
)

// sign1 is the envelope: COSE_Sign1 (RFC 9052, 4.2).
type sign1 struct{ payload, signature []byte }

// protected is the protected header of every document: {1: -35}, which is ES384 (RFC 9053,
// 2.1). Any other is refused: nothing in a document chooses an algorithm.
const protected = "\xa1\x01\x38\x22"

// readSign1 reads the envelope, which has no tag, an empty unprotected header, and no trailing
// bytes.
func readSign1(document []byte) (s sign1, err error) {
	if len(document) > maxDocumentSize {
		return s, checkEncoding.Refuse(strconv.Itoa(len(document))+" bytes", "at most "+strconv.Itoa(maxDocumentSize))
	}
	r := &reader{data: document}
	r.array(4, 4)
	header := r.bytes(0, maxDocumentSize)
	if err := r.err("COSE_Sign1"); err != nil {
		return s, err
	}
	if string(header) != protected {
		return s, checkAlgorithm.Refuse("protected header "+refusal.Hex(header), "ES384 alone")
	}
	if !r.next(majorMap << 5) {
		return s, checkAlgorithm.Refuse("an unprotected header that is not empty", "an empty one")
	}
	s.payload = r.bytes(1, maxDocumentSize)
	s.signature = r.bytes(signatureSize, signatureSize)
	r.end()
	return s, r.err("COSE_Sign1")
}

// toBeSigned is the Sig_structure of RFC 9052, 4.4: ["Signature1", protected, h”, payload].
// A payload that contains a certificate has 256 bytes or more, and at most maxDocumentSize, so
// its length takes two bytes.
func (s *sign1) toBeSigned() []byte {
	b := append(make([]byte, 0, 32+len(s.payload)), "\x84\x6aSignature1\x44"+protected+"\x40"...)
	b = append(b, majorBytes<<5|25, byte(len(s.payload)>>8), byte(len(s.payload)))
	return append(b, s.payload...)
}
