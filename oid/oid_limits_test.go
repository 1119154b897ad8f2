package oid

import (
	"encoding/asn1"
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestGCEInstanceAlphabets tries every byte in each text.
func TestGCEInstanceAlphabets(t *testing.T) {
	const common = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	for _, c := range []struct {
		name, alphabet string
		text           func(*GCEInstance) *string
	}{
		{"zone", common + "-", func(g *GCEInstance) *string { return &g.Zone }},
		{"project", common + "-.:", func(g *GCEInstance) *string { return &g.ProjectID }},
		{"name", common + "-", func(g *GCEInstance) *string { return &g.InstanceName }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for b := range 256 {
				g := exampleInstance()
				*c.text(g) = string([]byte{byte(b)})
				var want error
				if strings.IndexByte(c.alphabet, byte(b)) < 0 {
					want = checkGCEInstanceText
				}
				if _, err := g.Marshal(); !errors.Is(err, want) {
					t.Errorf("byte %#x: got %v, want %v", b, err, want)
				}
			}
		})
	}
}

// TestParseGCEInstanceStopsAnywhere cuts a value short at every field, with lengths that
// fit the rest.
func TestParseGCEInstanceStopsAnywhere(t *testing.T) {
	fields := [][]byte{[]byte("\x0c\x01a"), []byte("\x02\x01\x01"), []byte("\x0c\x01b"), []byte("\x02\x01\x02"), []byte("\x0c\x01c")}
	for n := range len(fields) + 1 {
		content := slices.Concat(fields[:n]...)
		_, err := ParseGCEInstance(append([]byte{0x30, byte(len(content))}, content...))
		if complete := n == len(fields); complete != (err == nil) || !complete && !errors.Is(err, checkGCEInstanceEncoding) {
			t.Errorf("%d fields: got %v", n, err)
		}
	}
	for i := range fields {
		content := slices.Concat(slices.Delete(slices.Clone(fields), i, i+1)...)
		if _, err := ParseGCEInstance(append([]byte{0x30, byte(len(content))}, content...)); !errors.Is(err, checkGCEInstanceEncoding) {
			t.Errorf("without field %d: got %v", i, err)
		}
		content = slices.Concat(fields...)
		content[3*i] = map[byte]byte{0x0c: 0x13, 0x02: 0x0a}[content[3*i]] // PrintableString, ENUMERATED
		if _, err := ParseGCEInstance(append([]byte{0x30, byte(len(content))}, content...)); !errors.Is(err, checkGCEInstanceEncoding) {
			t.Errorf("field %d of another type: got %v", i, err)
		}
	}
}

// TestOIDSizes tries the longest identifier, and one byte more.
func TestOIDSizes(t *testing.T) {
	for size := maxSize; size <= maxSize+1; size++ {
		id := append(asn1.ObjectIdentifier{2, 47}, slices.Repeat([]int{127}, size-1)...)
		var want error
		if size > maxSize {
			want = checkSize
		}
		if o, err := FromASN1(id); !errors.Is(err, want) || err == nil && len(o) != size {
			t.Errorf("%d bytes from arcs: got %d bytes, %v, want %v", size, len(o), err, want)
		}
		if o, err := Parse(id.String()); !errors.Is(err, want) || err == nil && len(o) != size {
			t.Errorf("%d bytes in text: got %d bytes, %v, want %v", size, len(o), err, want)
		}
		o := OID(strings.Repeat("\x7f", size))
		if got := o.Equal(id); got != (want == nil) {
			t.Errorf("%d bytes equal their arcs: %v", size, got)
		}
		if got := strings.HasPrefix(o.String(), "invalid:"); got != (want != nil) {
			t.Errorf("%d bytes read %s", size, o)
		}
	}
	// Longer texts are not looked into.
	for size, want := range map[int]error{maxDotted: checkSyntax, maxDotted + 1: checkSize} {
		if _, err := Parse(strings.Repeat("x", size)); !errors.Is(err, want) {
			t.Errorf("text of %d bytes: got %v, want %v", size, err, want)
		}
	}
}

// TestParseOIDDigits: no other character is a digit.
func TestParseOIDDigits(t *testing.T) {
	for _, c := range []string{"/", ":", "-", "+", "x"} {
		if o, err := Parse("2.5." + c); !errors.Is(err, checkSyntax) {
			t.Errorf("arc %q: got %v, %v, want %v", c, o, err, checkSyntax)
		}
	}
}

// TestOIDEqualNeedsEveryArc: an arc that is missing, or that no identifier can have, is
// not passed over.
func TestOIDEqualNeedsEveryArc(t *testing.T) {
	huge, err := Parse("2.5.18446744073709551615")
	if err != nil {
		t.Fatal(err)
	}
	wrapped, err := Parse("2.18446744073709551535") // 40 * -1 + 39 in 64 bits
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		o  OID
		id asn1.ObjectIdentifier
	}{
		"arc in the middle missing": {SubjectAltName, asn1.ObjectIdentifier{2, 5, 99, 29, 17}},
		"first arcs missing":        {OID("\x1d\x11"), asn1.ObjectIdentifier{2, 5, 29, 17}},
		"negative arc":              {huge, asn1.ObjectIdentifier{2, 5, -1}},
		"negative first arc":        {wrapped, asn1.ObjectIdentifier{-1, 39}},
		"first arc over 2":          {OID("\x7d"), asn1.ObjectIdentifier{3, 5}},
		"negative second arc":       {OID("\x23"), asn1.ObjectIdentifier{1, -5}},
		"second arc of 0 over 39":   {OID("\x28"), asn1.ObjectIdentifier{0, 40}},
		"second arc of 1 over 39":   {OID("\x50"), asn1.ObjectIdentifier{1, 40}},
		"one arc short":             {SubjectAltName, asn1.ObjectIdentifier{2, 5, 29}},
		"one arc more":              {SubjectAltName, asn1.ObjectIdentifier{2, 5, 29, 17, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.o.Equal(c.id) {
				t.Errorf("%s: %v equals %v", name, c.o, c.id)
			}
		})
	}
	if !SubjectAltName.Equal(asn1.ObjectIdentifier{2, 5, 29, 17}) {
		t.Error("an identifier does not equal its own arcs")
	}
}
