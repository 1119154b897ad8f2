package der

import (
	"strconv"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/refusal"
)

const (
	// maxDepth is how deep elements are counted. No parser of ours, or of crypto/x509, goes so
	// deep.
	maxDepth = 24
	// maxObjectIdentifier bounds the content of an OBJECT IDENTIFIER, in bytes.
	maxObjectIdentifier = 128
)

// CountElements counts the elements of untrusted DER, before a parser makes something
// of each: those inside constructed elements, and inside an OCTET STRING around a SEQUENCE, as the
// value of an extension is, count too. More than most, or an OBJECT IDENTIFIER of over 128 bytes,
// is an error with [CheckSize]. It says nothing about whether the bytes are DER.
//
// message names the input, such as "an AK certificate".
func CountElements(message string, data []byte, most int) (int, error) {
	left := most
	if !countElements(data, &left, maxDepth) {
		return 0, &refusal.Error{Check: CheckSize, Got: message + " with over " + strconv.Itoa(most) + " elements, or with an identifier of over " +
			strconv.Itoa(maxObjectIdentifier) + " bytes", Want: "less"}
	}
	return most - left, nil
}

func countElements(in cryptobyte.String, left *int, depth int) bool {
	for !in.Empty() {
		var content cryptobyte.String
		var tag asn1.Tag
		if *left--; *left < 0 {
			return false
		}
		if !in.ReadAnyASN1(&content, &tag) {
			return true // the parser refuses it, or does not look
		}
		switch {
		case tag == asn1.OBJECT_IDENTIFIER && len(content) > maxObjectIdentifier:
			return false
		case depth == 0:
		case tag&0x20 != 0 || tag == asn1.OCTET_STRING && content.PeekASN1Tag(asn1.SEQUENCE):
			if !countElements(content, left, depth-1) {
				return false
			}
		}
	}
	return true
}
