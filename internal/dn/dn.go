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
	key := []byte(read)
	for !rdns.Empty() {
		var rdn cryptobyte.String
		if !rdns.ReadASN1(&rdn, asn1.SET) {
			return unread + string(raw)
		}
		var attributes []string
		for !rdn.Empty() {
			var attribute, id, value cryptobyte.String
			var tag asn1.Tag
			if !rdn.ReadASN1(&attribute, asn1.SEQUENCE) || !attribute.ReadASN1(&id, asn1.OBJECT_IDENTIFIER) ||
				!attribute.ReadAnyASN1(&value, &tag) || !attribute.Empty() {
				return unread + string(raw)
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

func appendPart(b []byte, part string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}

// valueKey returns a value without what does not matter; the first byte tells text from
// everything else.
func valueKey(tag asn1.Tag, value []byte) string {
	text, ok := Text(tag, value)
	if !ok {
		return unread + string([]byte{byte(tag)}) + string(value)
	}
	return read + strings.Map(foldRune, strings.Join(strings.Fields(text), " "))
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
		units := make([]uint16, len(value)/2)
		if n, err := binary.Decode(value, binary.BigEndian, units); err != nil || n != len(value) {
			return "", false
		}
		return validText(utf16.Decode(units))
	case tagUniversalString:
		runes := make([]rune, len(value)/4)
		if n, err := binary.Decode(value, binary.BigEndian, runes); err != nil || n != len(value) {
			return "", false
		}
		return validText(runes)
	}
	return "", false
}

// validText refuses code points that are no characters: half a surrogate pair, or a number beyond the
// last code point.
func validText(runes []rune) (string, bool) {
	return string(runes), !slices.ContainsFunc(runes, func(r rune) bool { return !utf8.ValidRune(r) || r == utf8.RuneError })
}
