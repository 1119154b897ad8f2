package forge

import (
	"bytes"
	"errors"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"
)

// Elements takes a SEQUENCE or SET apart, into elements with tag and length.
func Elements(der []byte) [][]byte {
	in := cryptobyte.String(der)
	var body cryptobyte.String
	var tag cryptobyteasn1.Tag
	if !in.ReadAnyASN1(&body, &tag) {
		panic(Failure{errors.New("no DER to take apart")})
	}
	var out [][]byte
	for !body.Empty() {
		var e cryptobyte.String
		if !body.ReadAnyASN1Element(&e, &tag) {
			panic(Failure{errors.New("no DER inside DER")})
		}
		out = append(out, e)
	}
	return out
}

// TLV puts elements under a tag.
func TLV(tag byte, elements ...[]byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(cryptobyteasn1.Tag(tag), func(b *cryptobyte.Builder) { b.AddBytes(bytes.Join(elements, nil)) })
	return Must(b.Bytes())
}

// Edited changes the elements of a SEQUENCE.
func Edited(how func([][]byte) [][]byte) func([]byte) []byte {
	return func(der []byte) []byte { return TLV(0x30, how(Elements(der))...) }
}

// Replaced changes element i of a SEQUENCE.
func Replaced(i int, how func([]byte) []byte) func([]byte) []byte {
	return Edited(func(e [][]byte) [][]byte {
		e[i] = how(e[i])
		return e
	})
}

// Appended puts an element at the end of a SEQUENCE.
func Appended(element ...byte) func([]byte) []byte {
	return Edited(func(e [][]byte) [][]byte { return append(e, element) })
}

// swapped changes the places of the first two elements of a SEQUENCE, doubled has the
// first once more at the end.
var (
	swapped = Edited(func(e [][]byte) [][]byte { e[0], e[1] = e[1], e[0]; return e })
	doubled = Edited(func(e [][]byte) [][]byte { return append(e, e[0]) })
)

// With is a function that returns always the same bytes.
func With(b ...byte) func([]byte) []byte { return func([]byte) []byte { return b } }

// Behind puts bytes behind the whole value.
func Behind(b ...byte) func([]byte) []byte {
	return func(der []byte) []byte { return append(der, b...) }
}

// Content is what stands behind tag and length, and header the size of these.
func Content(der []byte) (body []byte, header int) {
	in, out := cryptobyte.String(der), cryptobyte.String(nil)
	var tag cryptobyteasn1.Tag
	if !in.ReadAnyASN1(&out, &tag) {
		panic(Failure{errors.New("no DER")})
	}
	return out, len(der) - len(out)
}

// LongLength writes the length in four bytes, of which the first are zero: BER.
func LongLength(der []byte) []byte {
	body, _ := Content(der)
	n := len(body)
	return append([]byte{der[0], 0x84, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, body...)
}

// indefinite writes the indefinite length of BER.
func indefinite(der []byte) []byte {
	body, _ := Content(der)
	return append(append([]byte{der[0], 0x80}, body...), 0, 0)
}

// HugeLength says that nearly 4 GiB follow.
func HugeLength(der []byte) []byte {
	body, _ := Content(der)
	return append([]byte{der[0], 0x84, 0xff, 0xff, 0xff, 0xff}, body...)
}
