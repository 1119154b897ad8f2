// Package dn compares the distinguished names of certificates by their meaning, as RFC 5280,
// section 7.1, requires: CAs spell the name of the CA above them, and their own, in more than
// one way.
package dn

import (
	"bytes"
	"crypto/x509"
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

// maxSize bounds a name that is read, in bytes. Of 800 real certificates of TPMs and of their
// CAs, the longest name has 194.
const maxSize = 1024

// The first byte of a key, so that no name that cannot be read has the key of another.
const (
	unread = "\x00"
	read   = "\x01"
)

// Key converts a distinguished name, in DER, into a form that two names share if RFC 5280,
// section 7.1, considers them equal: the string type, letter case, and leading, trailing or
// repeated white space do not matter, nor does the order within one
// RelativeDistinguishedName. Values that are not strings are compared as they are, and so is
// a whole name that cannot be read or is longer than 1 KiB. Composed and decomposed characters
// are different here. The key is for lookups and proves nothing.
func Key(raw []byte) string {
	in, rdns := cryptobyte.String(raw), cryptobyte.String(nil)
	if len(raw) > maxSize || !in.ReadASN1(&rdns, asn1.SEQUENCE) || !in.Empty() {
		return unread + string(raw)
	}
	var room [2 * 128]byte // of most names, so that the key is the only allocation
	key := append(room[:0], read...)
	for !rdns.Empty() {
		var rdn cryptobyte.String
		if !rdns.ReadASN1(&rdn, asn1.SET) {
			return unread + string(raw)
		}
		var ok bool
		if key, ok = appendRDN(key, rdn); !ok {
			return unread + string(raw)
		}
	}
	return string(key)
}

// appendRDN appends the number of attributes of a RelativeDistinguishedName, and the attributes in the order of their
// forms. It reports whether the name can be read.
func appendRDN(key []byte, rdn cryptobyte.String) ([]byte, bool) {
	var others []string // if there is more than one
	for !rdn.Empty() {
		var attribute, id, value cryptobyte.String
		var tag asn1.Tag
		if !rdn.ReadASN1(&attribute, asn1.SEQUENCE) || !attribute.ReadASN1(&id, asn1.OBJECT_IDENTIFIER) ||
			!attribute.ReadAnyASN1(&value, &tag) || !attribute.Empty() {
			return nil, false
		}
		if len(others) == 0 && rdn.Empty() {
			return appendAttribute(append(key, 1), id, tag, value), true
		}
		others = append(others, string(appendAttribute(nil, id, tag, value)))
	}
	slices.Sort(others)
	key = binary.AppendUvarint(key, uint64(len(others)))
	for _, a := range others {
		key = append(key, a...)
	}
	return key, true
}

// appendAttribute appends the type and the value, each after its length.
func appendAttribute(b []byte, id []byte, tag asn1.Tag, value []byte) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(id))), id...)
	at := len(b)
	b = appendValue(append(b, 0, 0), tag, value)
	binary.BigEndian.PutUint16(b[at:], uint16(len(b)-at-2)) //nolint:gosec // at most three bytes for each of a name of 1 KiB
	return b
}

// Equal reports whether two names, in DER, mean the same.
func Equal(a, b []byte) bool { return bytes.Equal(a, b) || Key(a) == Key(b) }

// SelfIssued reports whether the issuer that a certificate names has its own name, as that of
// a root does.
func SelfIssued(c *x509.Certificate) bool { return Equal(c.RawSubject, c.RawIssuer) }

// NamesIssuer reports whether a certificate names that issuer: by its name and, where both
// state one, by its key identifier. An issuer renewed under the same name has another key. No
// signature is checked.
func NamesIssuer(c, issuer *x509.Certificate) bool {
	return SameKeyIdentifier(c, issuer) && Equal(c.RawIssuer, issuer.RawSubject)
}

// SameKeyIdentifier reports whether the key identifiers let a certificate be one of that
// issuer, which has the right name.
func SameKeyIdentifier(c, issuer *x509.Certificate) bool {
	return len(c.AuthorityKeyId) == 0 || len(issuer.SubjectKeyId) == 0 || bytes.Equal(c.AuthorityKeyId, issuer.SubjectKeyId)
}

// OneSpelling returns copies of certificates for crypto/x509 to build chains with, which
// compares the bytes of names: in the copies, names that mean the same have the same bytes.
func OneSpelling(certificates []*x509.Certificate) []*x509.Certificate {
	out := make([]*x509.Certificate, len(certificates))
	for n, c := range certificates {
		spelled := *c
		spelled.RawSubject, spelled.RawIssuer = []byte(Key(c.RawSubject)), []byte(Key(c.RawIssuer))
		out[n] = &spelled
	}
	return out
}

// appendValue appends a value without what does not matter; the first byte tells text from everything else.
func appendValue(b []byte, tag asn1.Tag, value []byte) []byte {
	if ascii(tag, value) {
		b = append(b, read...)
		at, space := len(b), false
		for _, c := range value {
			switch {
			case c == ' ' || '\t' <= c && c <= '\r':
				space = len(b) != at
				continue
			case space:
				b, space = append(b, ' '), false
			}
			if 'a' <= c && c <= 'z' {
				c -= 'a' - 'A' // as foldRune
			}
			b = append(b, c)
		}
		return b
	}
	text, ok := Text(tag, value)
	if !ok {
		return append(append(append(b, unread...), byte(tag)), value...)
	}
	return append(append(b, read...), strings.Map(foldRune, strings.Join(strings.Fields(text), " "))...)
}

// ascii reports whether a value is text of ASCII characters alone, each in one byte.
func ascii(tag asn1.Tag, value []byte) bool {
	switch tag {
	case asn1.UTF8String, asn1.PrintableString, asn1.IA5String, tagNumericString, tagVisibleString:
		return !slices.ContainsFunc(value, func(c byte) bool { return c >= 0x80 })
	}
	return false
}

// foldRune maps letters that differ only in case to one of them.
func foldRune(r rune) rune {
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	return least
}

// Text decodes the content of one of ASN.1's string types; ok is false for other types, and if it
// is no text. T61String is read as Latin-1, which is what certificates put in it.
func Text(tag asn1.Tag, value []byte) (text string, ok bool) {
	var runes []rune
	switch tag {
	case asn1.UTF8String:
		return string(value), utf8.Valid(value)
	case asn1.PrintableString, asn1.IA5String, tagNumericString, tagVisibleString:
		return string(value), !slices.ContainsFunc(value, func(c byte) bool { return c >= 0x80 })
	case asn1.T61String:
		runes = make([]rune, len(value))
		for n, c := range value {
			runes[n] = rune(c)
		}
	case tagBMPString:
		units := make([]uint16, len(value)/2)
		if n, err := binary.Decode(value, binary.BigEndian, units); err != nil || n != len(value) {
			return "", false
		}
		runes = utf16.Decode(units)
	case tagUniversalString:
		runes = make([]rune, len(value)/4)
		if n, err := binary.Decode(value, binary.BigEndian, runes); err != nil || n != len(value) {
			return "", false
		}
	default:
		return "", false
	}
	// Half a surrogate pair, or a number beyond the last code point, is no character.
	return string(runes), !slices.ContainsFunc(runes, func(r rune) bool { return !utf8.ValidRune(r) || r == utf8.RuneError })
}
