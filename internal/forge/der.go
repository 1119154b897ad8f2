package forge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"
)

// Elements takes a SEQUENCE or SET apart, into elements with tag and length.
func Elements(der []byte) [][]byte {
	body := cryptobyte.String(Content(der))
	var tag cryptobyteasn1.Tag
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

// Behind puts bytes after the whole value.
func Behind(b ...byte) func([]byte) []byte {
	return func(der []byte) []byte { return append(der, b...) }
}

// Content is what follows tag and length.
func Content(der []byte) []byte {
	in, out := cryptobyte.String(der), cryptobyte.String(nil)
	var tag cryptobyteasn1.Tag
	if !in.ReadAnyASN1(&out, &tag) {
		panic(Failure{errors.New("no DER")})
	}
	return out
}

// LongLength writes the length in four bytes, of which the first are zero: BER.
func LongLength(der []byte) []byte {
	body := Content(der)
	return append(binary.BigEndian.AppendUint32([]byte{der[0], 0x84}, uint32(len(body))), body...)
}

// indefinite writes the indefinite length of BER.
func indefinite(der []byte) []byte {
	return slices.Concat([]byte{der[0], 0x80}, Content(der), []byte{0, 0})
}

// HugeLength says that nearly 4 GiB follow.
func HugeLength(der []byte) []byte {
	return append([]byte{der[0], 0x84, 0xff, 0xff, 0xff, 0xff}, Content(der)...)
}
