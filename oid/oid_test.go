package oid

import (
	"bytes"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"golang.org/x/crypto/cryptobyte"
)

func TestParseWritesTheBytesOfASN1(t *testing.T) {
	for _, dotted := range []string{
		"0.0", "0.39", "1.0", "1.39", "2.0", "2.39", "2.40", "2.47", "2.48", "2.999",
		"1.2.840.113549", "2.5.29.17", "1.3.6.1.4.1.11129.2.1.21",
		"1.2.0", "1.2.127", "1.2.128", "1.2.16383", "1.2.16384", "1.2.2147483647", "2.2147483567",
	} {
		o, err := Parse(dotted)
		if err != nil {
			t.Fatalf("Parse(%q): %v", dotted, err)
		}
		id, ok := o.ASN1()
		if !ok {
			t.Fatalf("%q has no form in encoding/asn1", dotted)
		}
		want, err := asn1.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		if got := want[2:]; string(got) != string(o) || id.String() != dotted {
			t.Errorf("Parse(%q) = %x, encoding/asn1 writes %x for %v", dotted, string(o), got, id)
		}
		if o.String() != dotted {
			t.Errorf("Parse(%q).String() = %q", dotted, o)
		}
		back, err := FromASN1(id)
		if err != nil || back != o {
			t.Errorf("FromASN1(%v) = %v, %v", id, back, err)
		}
		if !o.Equal(id) {
			t.Errorf("%v.Equal(%v) = false", o, id)
		}
	}
}

func TestParseTakesArcsOfAnySize(t *testing.T) {
	for _, dotted := range []string{
		"1.2.2147483648", "1.2.4294967296", "1.2.9223372036854775807", "1.2.9223372036854775808",
		"1.2.18446744073709551615", "1.2.18446744073709551616", "2.18446744073709551615",
		"2.18446744073709551535", "2.18446744073709551536", "2.9223372036854775727", "2.9223372036854775728",
		"2.25.274969308675442717258829974567625345604.1.340282366920938463463374607431768211455",
	} {
		o, err := Parse(dotted)
		if err != nil {
			t.Fatalf("Parse(%q): %v", dotted, err)
		}
		if o.String() != dotted {
			t.Errorf("Parse(%q) = %x, which is %v", dotted, string(o), o)
		}
		if id, ok := o.ASN1(); ok {
			t.Errorf("%q fits encoding/asn1 as %v", dotted, id)
		}
	}
	if got, want := string(nodeAttest), "\x69\x83\x9d\xdd\x94\xe6\xff\xec\xda\x83\xe1\x93\x94\xa1\xcc\xeb\xb6\xcb\x94\x44"; got != want {
		t.Errorf("NodeAttest = %x, want %x", got, want)
	}
}

func TestParseRefuses(t *testing.T) {
	huge := new(big.Int).Lsh(big.NewInt(1), 7*maxSize-7)
	for dotted, want := range map[string]error{
		"":                                      checkSyntax,
		"1":                                     checkSyntax,
		".":                                     checkSyntax,
		"1.":                                    checkSyntax,
		".1":                                    checkSyntax,
		"1..2":                                  checkSyntax,
		"1.2.":                                  checkSyntax,
		"3.1":                                   checkSyntax,
		"10.1":                                  checkSyntax,
		"0.40":                                  checkSyntax,
		"1.40":                                  checkSyntax,
		"1.100":                                 checkSyntax,
		"01.2":                                  checkSyntax,
		"1.02":                                  checkSyntax,
		"1.2.00":                                checkSyntax,
		"1.2.+3":                                checkSyntax,
		"1.2.-3":                                checkSyntax,
		"1.2. 3":                                checkSyntax,
		" 1.2.3":                                checkSyntax,
		"1.2.3\n":                               checkSyntax,
		"1.2.0x3":                               checkSyntax,
		"1.2.1_0":                               checkSyntax,
		"1.2.\u0663":                            checkSyntax,
		"1,2,3":                                 checkSyntax,
		"1.2" + strings.Repeat(".127", maxSize): checkSize,
		"1.2" + strings.Repeat(".1", maxSize):   checkSize,
		"1.2" + strings.Repeat(".1", 100*maxSize): checkSize,
		"1.2." + strings.Repeat("9", 100_000):     checkSize,
		"1.2." + huge.String():                    checkSize,
	} {
		t.Run(dotted, func(t *testing.T) {
			if o, err := Parse(dotted); !errors.Is(err, want) {
				t.Errorf("Parse(%.40q) = %v, %v, want %v", dotted, o, err, want)
			}
		})
	}
	if _, err := Parse("1.2" + strings.Repeat(".127", maxSize-1)); err != nil {
		t.Errorf("content of exactly MaxSize bytes is refused: %v", err)
	}
	largest := new(big.Int).Sub(huge, big.NewInt(1))
	if _, err := Parse("1.2." + largest.String()); err != nil {
		t.Errorf("one arc that fills MaxSize bytes is refused: %v", err)
	}
}

func TestFromASN1Refuses(t *testing.T) {
	long := make(asn1.ObjectIdentifier, maxSize+2)
	for row, test := range []struct {
		id   asn1.ObjectIdentifier
		want error
	}{
		{nil, checkSyntax},
		{asn1.ObjectIdentifier{1}, checkSyntax},
		{asn1.ObjectIdentifier{3, 1}, checkSyntax},
		{asn1.ObjectIdentifier{-1, 1}, checkSyntax},
		{asn1.ObjectIdentifier{1, -1}, checkSyntax},
		{asn1.ObjectIdentifier{1, 40}, checkSyntax},
		{asn1.ObjectIdentifier{1, 2, -1}, checkSyntax},
		{long, checkSize},
		{make(asn1.ObjectIdentifier, 1_000_000), checkSize},
	} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			if o, err := FromASN1(test.id); !errors.Is(err, test.want) {
				t.Errorf("FromASN1(%.40v) = %v, %v, want %v", test.id, o, err, test.want)
			}
			if nodeAttest.Equal(test.id) || OID("").Equal(test.id) {
				t.Errorf("Equal(%.40v) = true", test.id)
			}
		})
	}
	if _, err := FromASN1(long[:maxSize+1]); err != nil {
		t.Errorf("content of exactly MaxSize bytes is refused: %v", err)
	}
}

func TestEqualTellsNeighboursApart(t *testing.T) {
	o := SubjectAltName
	for _, id := range []asn1.ObjectIdentifier{
		{2, 5, 29}, {2, 5, 29, 16}, {2, 5, 29, 18}, {2, 5, 29, 17, 0}, {1, 5, 29, 17}, {2, 5, 29, 17 + 128}, {2, 5, 29, -17},
	} {
		if o.Equal(id) {
			t.Errorf("%v.Equal(%v) = true", o, id)
		}
	}
	id := asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11129, 2, 1, 21}
	if n := testing.AllocsPerRun(100, func() { KubernetesNodeProviderIdentifier.Equal(id) }); n != 0 {
		t.Errorf("Equal allocates %v times", n)
	}
}

func TestInvalidValuesStayHarmless(t *testing.T) {
	for _, o := range []OID{"", "\x80", "\x2a\x80", "\x80\x01", "\x2a\x80\x01", "\x2a\xff", OID(strings.Repeat("\x2a", maxSize+1))} {
		if !strings.HasPrefix(o.String(), "invalid:") {
			t.Errorf("%x.String() = %q", string(o), o)
		}
		if id, ok := o.ASN1(); ok {
			t.Errorf("%x.ASN1() = %v", string(o), id)
		}
		if o.Name() != "" {
			t.Errorf("%x.Name() = %q", string(o), o.Name())
		}
		if o.Valid() {
			t.Errorf("%x.Valid()", string(o))
		}
		var b cryptobyte.Builder
		Add(&b, o)
		if out, err := b.Bytes(); !errors.Is(err, checkSyntax) {
			t.Errorf("Add(%x) = %x, %v", string(o), out, err)
		}
	}
}

// A dotted text that was converted, where it should have been parsed, is told from an
// identifier, although its bytes are the content of one.
func TestValid(t *testing.T) {
	for _, o := range known() {
		if !o.Valid() || OID(o.String()).Valid() {
			t.Errorf("%v: valid %t, its text %t, want the first alone", o, o.Valid(), OID(o.String()).Valid())
		}
	}
}

func TestAddAndRead(t *testing.T) {
	for _, o := range known() {
		var b cryptobyte.Builder
		Add(&b, o)
		der, err := b.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		s := cryptobyte.String(append(der, 0x55))
		var back OID
		if !Read(&s, &back) || back != o || !bytes.Equal(s, []byte{0x55}) {
			t.Errorf("Read of %x = %v, rest %x", der, back, []byte(s))
		}
		if n := testing.AllocsPerRun(10, func() {
			s := cryptobyte.String(der)
			Read(&s, &back)
		}); n != 0 {
			t.Errorf("reading %v allocates %v times", o, n)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for name, der := range map[string]string{
		"nothing":             "",
		"tag alone":           "\x06",
		"another tag":         "\x05\x01\x2a",
		"constructed":         "\x26\x01\x2a",
		"empty":               "\x06\x00",
		"truncated":           "\x06\x03\x2a\x03",
		"arc without end":     "\x06\x02\x2a\x83",
		"padded arc":          "\x06\x03\x2a\x80\x03",
		"padded first arc":    "\x06\x02\x80\x2a",
		"long form length":    "\x06\x81\x01\x2a",
		"length with a zero":  "\x06\x82\x00\x01\x2a",
		"indefinite length":   "\x06\x80\x2a\x00\x00",
		"huge length":         "\x06\x84\xff\xff\xff\xff\x2a",
		"longer than MaxSize": "\x06\x81\x81" + strings.Repeat("\x01", maxSize+1),
	} {
		t.Run(name, func(t *testing.T) {
			s := cryptobyte.String(der)
			out := SubjectAltName
			if Read(&s, &out) || out != SubjectAltName {
				t.Errorf("%s: Read = %v", name, out)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, o := range known() {
		f.Add(o.String())
	}
	f.Add("2.18446744073709551536")
	f.Add("1.40")
	f.Add("1.2.03")
	f.Fuzz(func(t *testing.T, dotted string) {
		o, err := Parse(dotted)
		if err != nil {
			if !errors.Is(err, checkSyntax) && !errors.Is(err, checkSize) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if got := o.String(); got != dotted {
			t.Fatalf("Parse(%q).String() = %q", dotted, got)
		}
		var b cryptobyte.Builder
		Add(&b, o)
		s := cryptobyte.String(b.BytesOrPanic())
		var back OID
		if !Read(&s, &back) || back != o {
			t.Fatalf("Read gives %v for %v", back, o)
		}
	})
}

// FuzzFromASN1 reads any bytes as arcs of 8 bytes each: an accepted OID converts back,
// and is the same identifier in every way of writing it.
func FuzzFromASN1(f *testing.F) {
	add := func(arcs ...int) {
		var b []byte
		for _, arc := range arcs {
			b = binary.BigEndian.AppendUint64(b, uint64(arc))
		}
		f.Add(b)
	}
	add()
	add(1)
	add(1, 40)
	add(2, 5, 29, 17)
	add(2, 5, -1)
	add(2, math.MaxInt)
	add(2, 25, math.MaxInt32, 1<<31, math.MaxInt)
	add(make([]int, maxSize+2)...)
	f.Fuzz(func(t *testing.T, b []byte) {
		var id asn1.ObjectIdentifier
		for ; len(b) >= 8; b = b[8:] {
			id = append(id, int(binary.BigEndian.Uint64(b)))
		}
		o, err := FromASN1(id)
		if err != nil {
			if o != "" || !errors.Is(err, checkSyntax) && !errors.Is(err, checkSize) {
				t.Fatalf("%v: %q, %v", id, o, err)
			}
			if o.Equal(id) {
				t.Fatalf("%v equals the zero value", id)
			}
			return
		}
		if !o.Equal(id) {
			t.Fatalf("%v is not equal to %v", o, id)
		}
		if back, err := Parse(o.String()); err != nil || back != o {
			t.Fatalf("Parse(%q) = %v, %v", o, back, err)
		}
		if small, ok := o.ASN1(); ok && !small.Equal(id) {
			t.Fatalf("%v comes back as %v", id, small)
		}
	})
}

// FuzzRead holds Read against encoding/asn1, which knows smaller arcs only.
func FuzzRead(f *testing.F) {
	for _, o := range known() {
		var b cryptobyte.Builder
		Add(&b, o)
		f.Add(b.BytesOrPanic())
	}
	f.Add([]byte("\x06\x03\x2a\x80\x03"))
	f.Add([]byte("\x06\x84\xff\xff\xff\xff\x2a"))
	f.Fuzz(func(t *testing.T, der []byte) {
		s := cryptobyte.String(der)
		var o OID
		ok := Read(&s, &o)
		var id asn1.ObjectIdentifier
		rest, err := asn1.Unmarshal(der, &id)
		if !ok {
			if err == nil && len(der)-len(rest) <= maxSize {
				t.Fatalf("encoding/asn1 reads %v from %x", id, der)
			}
			return
		}
		var b cryptobyte.Builder
		Add(&b, o)
		if got := b.BytesOrPanic(); !bytes.Equal(append(got, s...), der) {
			t.Fatalf("%x reads as %v, which is %x", der, o, got)
		}
		if back, err := Parse(o.String()); err != nil || back != o {
			t.Fatalf("Parse(%q) = %v, %v", o, back, err)
		}
		small, fits := o.ASN1()
		if fits != (err == nil) {
			t.Fatalf("ASN1() says %v, encoding/asn1 %v for %x", fits, err, der)
		}
		if fits && (!small.Equal(id) || !o.Equal(id) || id.String() != o.String()) {
			t.Fatalf("%v, want %v", small, id)
		}
	})
}
