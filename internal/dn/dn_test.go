package dn

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
)

func TestText(t *testing.T) {
	for _, c := range []struct {
		tag   asn1.Tag
		value string
		want  string
		ok    bool
	}{
		{asn1.UTF8String, "é", "é", true},
		{asn1.UTF8String, "\xe9", "", false},
		{asn1.PrintableString, "\x7f", "\x7f", true},
		{asn1.PrintableString, "\x80", "", false},
		{asn1.IA5String, "a\x81", "", false},
		{asn1.T61String, "\xe9", "é", true},
		{tagBMPString, "\x00a\x20\xac", "a€", true},
		{tagBMPString, "\x00a\x00", "", false},
		{tagBMPString, "\xd8\x00\x00a", "", false},
		{tagBMPString, "\xd8\x3d\xde\x00", "😀", true},
		{tagBMPString, "\xff\xfd", "", false},
		{tagBMPString, "\xff\xfc", "\ufffc", true},
		{tagBMPString, "\xff\xfe", "\ufffe", true},
		{tagUniversalString, "\x00\x00\x00a", "a", true},
		{tagUniversalString, "\x00\x00\x00a\x00", "", false},
		{tagUniversalString, "\x00\x10\xff\xff", "\U0010ffff", true},
		{tagUniversalString, "\x00\x11\x00\x00", "", false},
		{tagUniversalString, "\x00\x00\xd8\x00", "", false},
		{tagUniversalString, "\x80\x00\x00\x61", "", false},
		{asn1.OCTET_STRING, "a", "", false},
	} {
		t.Run(fmt.Sprint(c.ok), func(t *testing.T) {
			if got, ok := Text(c.tag, []byte(c.value)); ok != c.ok || ok && got != c.want {
				t.Errorf("%d %q: got %q, %t", c.tag, c.value, got, ok)
			}
		})
	}
}

// tlv is one element of DER, of up to 64 KiB.
func tlv(tag asn1.Tag, parts ...[]byte) []byte {
	content := bytes.Join(parts, nil)
	switch n := len(content); {
	case n < 0x80:
		return append([]byte{byte(tag), byte(n)}, content...)
	case n < 0x100:
		return append([]byte{byte(tag), 0x81, byte(n)}, content...)
	default:
		return append([]byte{byte(tag), 0x82, byte(n >> 8), byte(n)}, content...)
	}
}

func attribute(id oid.OID, tag asn1.Tag, value string) []byte {
	return tlv(asn1.SEQUENCE, tlv(asn1.OBJECT_IDENTIFIER, []byte(id)), tlv(tag, []byte(value)))
}

func rdn(attributes ...[]byte) []byte { return tlv(asn1.SET, attributes...) }

func name(rdns ...[]byte) []byte { return tlv(asn1.SEQUENCE, rdns...) }

// called is a name of a country and a common name, of that type.
func called(tag asn1.Tag, cn string) []byte {
	return name(rdn(attribute(country, asn1.PrintableString, "CH")), rdn(attribute(oid.CommonName, tag, cn)))
}

const country, organization oid.OID = "\x55\x04\x06", oid.Organization

// Names that mean the same, and names that do not.
func TestEqual(t *testing.T) {
	o, cn := attribute(organization, asn1.UTF8String, "Maker"), attribute(oid.CommonName, asn1.UTF8String, "CA 1")
	long := func(tag asn1.Tag, text string) []byte { return called(tag, strings.Repeat(text, 100)) }
	for title, c := range map[string]struct {
		a, b []byte
		want bool
	}{
		"the same":                       {called(asn1.PrintableString, "CA 1"), called(asn1.PrintableString, "CA 1"), true},
		"a UTF8String":                   {called(asn1.PrintableString, "CA 1"), called(asn1.UTF8String, "CA 1"), true},
		"an IA5String":                   {called(asn1.PrintableString, "CA 1"), called(asn1.IA5String, "CA 1"), true},
		"a T61String":                    {called(asn1.UTF8String, "Zürich"), called(asn1.T61String, "Z\xfcrich"), true},
		"a BMPString":                    {called(asn1.PrintableString, "CA"), called(tagBMPString, "\x00C\x00A"), true},
		"a UniversalString":              {called(asn1.PrintableString, "CA"), called(tagUniversalString, "\x00\x00\x00C\x00\x00\x00A"), true},
		"another case":                   {called(asn1.PrintableString, "ca 1"), called(asn1.UTF8String, "CA 1"), true},
		"another case beyond ASCII":      {called(asn1.UTF8String, "ZÜRICH"), called(asn1.UTF8String, "zürich"), true},
		"final sigma":                    {called(asn1.UTF8String, "Σ"), called(asn1.UTF8String, "ς"), true},
		"spaces around":                  {called(asn1.PrintableString, " CA 1  "), called(asn1.PrintableString, "CA 1"), true},
		"spaces within":                  {called(asn1.PrintableString, "CA   1"), called(asn1.PrintableString, "CA 1"), true},
		"a tab":                          {called(asn1.UTF8String, "CA\t1"), called(asn1.PrintableString, "CA 1"), true},
		"another order in a set":         {name(rdn(o, cn)), name(rdn(cn, o)), true},
		"a value that is no text":        {called(asn1.BIT_STRING, "\x00a"), called(asn1.BIT_STRING, "\x00a"), true},
		"the longest that is read":       {long(asn1.PrintableString, "CA 1  "), long(asn1.UTF8String, "ca 1  "), true},
		"another text":                   {called(asn1.PrintableString, "CA 1"), called(asn1.PrintableString, "CA 2"), false},
		"no space":                       {called(asn1.PrintableString, "CA 1"), called(asn1.PrintableString, "CA1"), false},
		"a letter that looks alike":      {called(asn1.UTF8String, "CA"), called(asn1.UTF8String, "\u0421A"), false},
		"an accent":                      {called(asn1.UTF8String, "e"), called(asn1.UTF8String, "é"), false},
		"an accent, composed":            {called(asn1.UTF8String, "é"), called(asn1.UTF8String, "e\u0301"), false},
		"an invisible character":         {called(asn1.UTF8String, "CA"), called(asn1.UTF8String, "C\u200bA"), false},
		"a prefix":                       {called(asn1.PrintableString, "CA"), called(asn1.PrintableString, "CA 1"), false},
		"an attribute less":              {name(rdn(o), rdn(cn)), name(rdn(cn)), false},
		"another attribute":              {name(rdn(attribute(oid.CommonName, asn1.UTF8String, "Maker"))), name(rdn(o)), false},
		"another order":                  {name(rdn(o), rdn(cn)), name(rdn(cn), rdn(o)), false},
		"one set of two":                 {name(rdn(o, cn)), name(rdn(o), rdn(cn)), false},
		"an attribute twice in a set":    {name(rdn(o, o)), name(rdn(o)), false},
		"an empty set more":              {name(rdn(o), rdn()), name(rdn(o)), false},
		"text and octets":                {called(asn1.UTF8String, "CA 1"), called(asn1.OCTET_STRING, "CA 1"), false},
		"text and the tag of nothing":    {called(asn1.UTF8String, "ca 1"), called(0, "ca 1"), false},
		"octets in another case":         {called(asn1.OCTET_STRING, "a"), called(asn1.OCTET_STRING, "A"), false},
		"no UTF-8, in another case":      {called(asn1.UTF8String, "a\xff"), called(asn1.UTF8String, "A\xff"), false},
		"half a character":               {called(tagBMPString, "\x00C\x00"), called(asn1.PrintableString, "C"), false},
		"longer than is read":            {long(asn1.PrintableString, "CA 1      "), long(asn1.UTF8String, "CA 1      "), false},
		"bytes behind":                   {append(called(asn1.UTF8String, "a"), 5, 0), append(called(asn1.UTF8String, "A"), 5, 0), false},
		"one that cannot be read, twice": {[]byte{5, 0}, []byte{5, 0}, true},
		"no name":                        {nil, name(), false},
		"two empty ones":                 {name(), name(), true},
	} {
		t.Run(title, func(t *testing.T) {
			if Equal(c.a, c.b) != c.want || Equal(c.b, c.a) != c.want || (Key(c.a) == Key(c.b)) != c.want {
				t.Errorf("%t for %x and %x", !c.want, c.a, c.b)
			}
		})
	}
}

// What cannot be read has a key of its own bytes, which no name that can be read has.
func TestUnreadableNames(t *testing.T) {
	good := called(asn1.PrintableString, "a")
	for _, bad := range [][]byte{nil, {5, 0}, append(bytes.Clone(good), 0), {0x30, 2, 5, 0}, {0x30, 4, 0x31, 2, 5, 0},
		{0x30, 6, 0x31, 4, 0x30, 2, 6, 0}, {0x30, 10, 0x31, 8, 0x30, 6, 4, 1, 0x2a, 12, 1, 'a'},
		{0x30, 12, 0x31, 10, 0x30, 8, 6, 1, 0x2a, 12, 1, 'a', 5, 0}, []byte(Key(good)), []byte(Key(good)[1:])} {
		if Key(bad) != unread+string(bad) || Equal(bad, good) {
			t.Errorf("%x was read", bad)
		}
	}
}

// A key is not longer than the name by more than case folding makes it, so that a pool of
// names costs what the names do.
func FuzzKey(f *testing.F) {
	f.Add(called(asn1.PrintableString, "CA 1"), called(asn1.UTF8String, "ca 1"))
	f.Add(called(tagBMPString, "\x00C"), []byte{5, 0})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if !Equal(a, a) || Equal(a, b) != Equal(b, a) || Equal(a, b) != (Key(a) == Key(b)) {
			t.Errorf("%x and %x", a, b)
		}
		if len(Key(a)) > 4*len(a)+16 {
			t.Errorf("%d bytes of key for %d", len(Key(a)), len(a))
		}
	})
}

// A certificate names its issuer by the name, and by a key identifier where both have one.
func TestNamesIssuer(t *testing.T) {
	for title, c := range map[string]struct {
		change func(c, issuer *x509.Certificate)
		want   bool
	}{
		"as it is":                     {func(_, _ *x509.Certificate) {}, true},
		"another spelling":             {func(_, i *x509.Certificate) { i.RawSubject = called(asn1.UTF8String, "MAKER") }, true},
		"no identifier of the issuer":  {func(c, _ *x509.Certificate) { c.AuthorityKeyId = nil }, true},
		"the issuer has no identifier": {func(_, i *x509.Certificate) { i.SubjectKeyId = nil }, true},
		"another name":                 {func(_, i *x509.Certificate) { i.RawSubject = called(asn1.UTF8String, "Taker") }, false},
		"another identifier":           {func(c, _ *x509.Certificate) { c.AuthorityKeyId = []byte{1} }, false},
	} {
		t.Run(title, func(t *testing.T) {
			below := &x509.Certificate{RawIssuer: called(asn1.PrintableString, "Maker"), AuthorityKeyId: []byte{1, 2}}
			issuer := &x509.Certificate{RawSubject: called(asn1.PrintableString, "Maker"), SubjectKeyId: []byte{1, 2}}
			c.change(below, issuer)
			if got := NamesIssuer(below, issuer); got != c.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// FuzzValue: the form of a value, which is made in one pass for ASCII text, is that of the definition.
func FuzzValue(f *testing.F) {
	for _, tag := range []asn1.Tag{asn1.UTF8String, asn1.PrintableString, asn1.T61String, tagBMPString, asn1.OCTET_STRING} {
		for _, value := range []string{"", " ", "\t a  B\v\rc ", "Kelvin \u212a \u017f", "\xff", "[@`{", "\x00\x1c\x1f\x7f\u0085\u00a0x"} {
			f.Add(byte(tag), []byte(value))
		}
	}
	f.Fuzz(func(t *testing.T, number byte, value []byte) {
		tag := asn1.Tag(number)
		want := unread + string([]byte{number}) + string(value)
		if text, ok := Text(tag, value); ok {
			want = read + strings.Map(foldRune, strings.Join(strings.Fields(text), " "))
		}
		if got := string(appendValue(nil, tag, value)); got != want {
			t.Errorf("tag %d, %q: got %q, want %q", tag, value, got, want)
		}
	})
}

// TestKeyAllocations: the key of an ordinary name is the only allocation.
func TestKeyAllocations(t *testing.T) {
	raw := name(rdn(attribute(oid.CommonName, asn1.UTF8String, "Example EK CA 7")), rdn(attribute(oid.CommonName, asn1.PrintableString, "Example Org")))
	if n := testing.AllocsPerRun(100, func() { _ = Key(raw) }); n > 1 {
		t.Errorf("%.0f allocations", n)
	}
}
