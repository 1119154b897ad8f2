package tpmcert

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/crypto/cryptobyte/asn1"
)

func TestDecodeText(t *testing.T) {
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
			if got, ok := decodeText(c.tag, []byte(c.value)); ok != c.ok || ok && got != c.want {
				t.Errorf("%d %q: got %q, %t", c.tag, c.value, got, ok)
			}
		})
	}
}

func TestNameKey(t *testing.T) {
	good := nameOf(text(19, "a"))
	for _, bad := range [][]byte{nil, {5, 0}, append(bytes.Clone(good), 0), {0x30, 2, 5, 0}, {0x30, 4, 0x31, 2, 5, 0},
		{0x30, 6, 0x31, 4, 0x30, 2, 6, 0}, {0x30, 10, 0x31, 8, 0x30, 6, 4, 1, 0x2a, 12, 1, 'a'},
		{0x30, 12, 0x31, 10, 0x30, 8, 6, 1, 0x2a, 12, 1, 'a', 5, 0}} {
		if nameKey(bad) != string(bad) {
			t.Errorf("%x was read", bad)
		}
	}
	keys := map[string]string{}
	for _, name := range []string{"a", "b", "a b", "ab", "é", "e", "ſ ß", strings.Repeat("a", 300)} {
		key := nameKey(nameOf(text(12, name)))
		if other, ok := keys[key]; ok {
			t.Errorf("%q and %q are one", name, other)
		}
		keys[key] = name
	}
	if nameKey(nameOf(text(12, "Σ"))) != nameKey(nameOf(text(12, "ς"))) || nameKey(nameOf(text(12, "É"))) != nameKey(nameOf(text(20, "\xe9"))) {
		t.Error("case and string types beyond ASCII")
	}
	if nameKey(nameOf(text(19, "a"), text(19, "b"))) == nameKey(append([]byte(nil), mergeNames(nameOf(text(19, "a")), nameOf(text(19, "b")))...)) {
		t.Error("two RDNs are one of two attributes")
	}
}

// mergeNames is a Name with the RDNs of both.
func mergeNames(a, b []byte) []byte {
	return append([]byte{0x30, a[1] + b[1]}, append(bytes.Clone(a[2:]), b[2:]...)...)
}
