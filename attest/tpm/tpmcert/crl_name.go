package tpmcert

import (
	"encoding/binary"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// String types of attribute values (RFC 5280, appendix A.1) that cryptobyte does not
// name.
const (
	tagNumericString   asn1.Tag = 18
	tagVisibleString   asn1.Tag = 26
	tagUniversalString asn1.Tag = 28
	tagBMPString       asn1.Tag = 30
)

// nameKey converts a distinguished name, in DER, into a form in which names that RFC 5280,
// section 7.1, considers equal are equal: the string type, letter case, and leading, trailing
// or repeated white space do not matter, nor does the order within one
// RelativeDistinguishedName. Values that are not strings are compared as they are. The key is
// for lookups and proves nothing. Composed and decomposed characters are different here.
func nameKey(raw []byte) string {
	in, rdns := cryptobyte.String(raw), cryptobyte.String(nil)
	if !in.ReadASN1(&rdns, asn1.SEQUENCE) || !in.Empty() {
		return string(raw)
	}
	var key []byte
	for !rdns.Empty() {
		var rdn cryptobyte.String
		if !rdns.ReadASN1(&rdn, asn1.SET) {
			return string(raw)
		}
		var attributes []string
		for !rdn.Empty() {
			var attribute, id, value cryptobyte.String
			var tag asn1.Tag
			if !rdn.ReadASN1(&attribute, asn1.SEQUENCE) || !attribute.ReadASN1(&id, asn1.OBJECT_IDENTIFIER) ||
				!attribute.ReadAnyASN1(&value, &tag) || !attribute.Empty() {
				return string(raw)
			}
			attributes = append(attributes, string(appendPart(appendPart(nil, string(id)), valueKey(tag, value))))
		}
		slices.Sort(attributes)
		key = binary.AppendUvarint(key, uint64(len(attributes)))
		for _, a := range attributes {
			key = appendPart(key, a)
		}
	}
	return string(key)
}

func appendPart(b []byte, part string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}

// valueKey returns a value without what does not matter; the first byte tells text from
// everything else.
func valueKey(tag asn1.Tag, value []byte) string {
	text, ok := decodeText(tag, value)
	if !ok {
		return string([]byte{byte(tag)}) + string(value)
	}
	return "\x00" + strings.Map(foldRune, strings.Join(strings.Fields(text), " "))
}

// foldRune maps letters that differ only in case to one of them.
func foldRune(r rune) rune {
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	return least
}

// decodeText decodes a value of one of ASN.1's string types. T61String is read as Latin-1,
// which is what certificates put in it.
func decodeText(tag asn1.Tag, value []byte) (string, bool) {
	switch tag {
	case asn1.UTF8String:
		return string(value), utf8.Valid(value)
	case asn1.PrintableString, asn1.IA5String, tagNumericString, tagVisibleString:
		return string(value), !slices.ContainsFunc(value, func(c byte) bool { return c >= 0x80 })
	case asn1.T61String:
		runes := make([]rune, len(value))
		for n, c := range value {
			runes[n] = rune(c)
		}
		return string(runes), true
	case tagBMPString:
		if len(value)%2 != 0 {
			return "", false
		}
		units := make([]uint16, len(value)/2)
		for n := range units {
			units[n] = binary.BigEndian.Uint16(value[2*n:])
		}
		return validText(utf16.Decode(units))
	case tagUniversalString:
		if len(value)%4 != 0 {
			return "", false
		}
		runes := make([]rune, len(value)/4)
		for n := range runes {
			runes[n] = rune(binary.BigEndian.Uint32(value[4*n:]))
		}
		return validText(runes)
	}
	return "", false
}

// validText refuses what is not a character: half a surrogate pair, or a number beyond the
// last code point.
func validText(runes []rune) (string, bool) {
	return string(runes), !slices.ContainsFunc(runes, func(r rune) bool { return !utf8.ValidRune(r) || r == utf8.RuneError })
}
