package tpmcert

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"testing"

	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"

	"github.com/nodeattest/nodeattest/oid"
)

func otherNameOf(id oid.OID, value []byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(tagOtherName, func(b *cryptobyte.Builder) {
		oid.Add(b, id)
		b.AddASN1(tagOtherName, func(b *cryptobyte.Builder) { b.AddBytes(value) })
	})
	return b.BytesOrPanic()
}

func withSAN(critical bool, value []byte) *x509.Certificate {
	return &x509.Certificate{Extensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Critical: critical, Value: value}}}
}

var (
	manufacturer = tpmlab.Attribute{ID: oid.TCGAtTPMManufacturer, Value: "id:494E5443"}
	model        = tpmlab.Attribute{ID: oid.TCGAtTPMModel, Value: "ADL"}
	version      = tpmlab.Attribute{ID: oid.TCGAtTPMVersion, Value: "id:00010002"}
)

func TestDirectoryName(t *testing.T) {
	want := DirectoryName{Manufacturer: "id:494E5443", Vendor: "INTC", Model: "ADL", Version: "id:00010002"}
	for name, value := range map[string][]byte{
		"three RDNs":          tpmlab.DirectoryName([]tpmlab.Attribute{manufacturer}, []tpmlab.Attribute{model}, []tpmlab.Attribute{version}),
		"one RDN":             tpmlab.DirectoryName([]tpmlab.Attribute{manufacturer, model, version}),
		"another one between": tpmlab.DirectoryName([]tpmlab.Attribute{manufacturer}, []tpmlab.Attribute{{ID: oid.CommonName, Value: "x"}}, []tpmlab.Attribute{model}, []tpmlab.Attribute{version}),
	} {
		t.Run(name, func(t *testing.T) {
			san, err := parseSubjectAltName(withSAN(true, tpmlab.Seq(value)))
			if err != nil || san.directory != want {
				t.Errorf("%s: %+v, %v", name, san, err)
			}
		})
	}
}

func TestBadSubjectAltNames(t *testing.T) {
	good := tpmlab.DirectoryName([]tpmlab.Attribute{manufacturer})
	dns, registered := []byte{0x82, 1, 'a'}, []byte{0x88, 1, 0x2a}
	for name, c := range map[string]struct {
		critical bool
		value    []byte
		ok       bool
	}{
		"good":                        {true, tpmlab.Seq(good), true},
		"with a DNS name":             {true, tpmlab.Seq(good, dns), true},
		"a form unknown here":         {false, tpmlab.Seq(good, registered), true},
		"the same, critical":          {true, tpmlab.Seq(good, registered), false},
		"manufacturer twice":          {false, tpmlab.Seq(tpmlab.DirectoryName([]tpmlab.Attribute{manufacturer}, []tpmlab.Attribute{manufacturer})), false},
		"in two directory names":      {false, tpmlab.Seq(good, good), false},
		"empty":                       {false, tpmlab.Seq(), false},
		"no sequence":                 {false, []byte{4, 0}, false},
		"trailing":                    {false, append(tpmlab.Seq(good), 0), false},
		"cut":                         {false, tpmlab.Seq(good[:len(good)-1]), false},
		"OtherName without value":     {false, tpmlab.Seq([]byte{0xa0, 3, 6, 1, 0x2a}), false},
		"OtherName with two values":   {false, tpmlab.Seq(otherNameOf("\x2a", []byte{5, 0, 5, 0})), false},
		"OtherName with a cut value":  {false, tpmlab.Seq(otherNameOf("\x2a", []byte{4, 2, 0})), false},
		"OtherName with a good value": {false, tpmlab.Seq(otherNameOf("\x2a", []byte{5, 0})), true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseSubjectAltName(withSAN(c.critical, c.value))
			if (err == nil) != c.ok || err != nil && !errors.Is(err, checkSubjectAltName) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

func TestVendor(t *testing.T) {
	for in, want := range map[string]string{
		"id:494E5443": "INTC", "id:414d4400": "AMD", "id:53544D20": "STM", "id:49424D00": "IBM", "id:69667800": "IFX",
		"id:00001014": "", "id:FFFFF1D0": "", "id:00000000": "", "id:7A0D4D00": "", "id:217E2000": "!~", "id:7F000000": "", "id:21207E00": "", "id:41007E00": "",
	} {
		t.Run(in, func(t *testing.T) {
			id, ok := vendorIDOf(in)
			if got := id.text(); got != want || !ok {
				t.Errorf("%q: %q, %t, want %q", in, got, ok, want)
			}
		})
	}
	for _, in := range []string{"id:494E54", "494E5443", "ID:494E5443", "id:494E544G", "id:494E544300", "id:494E54430", "id:", "", "STM ", "STM"} {
		if id, ok := vendorIDOf(in); ok || id != (vendorID{}) {
			t.Errorf("%q: %x", in, id)
		}
	}
}

// Whatever string type the manufacturer stands in, it is decoded, and a malformed identifier is
// refused: a deny-list sees it or the certificate is refused.
func TestManufacturerSpellings(t *testing.T) {
	bmp := func(text string) (b []byte) {
		for _, c := range []byte(text) {
			b = append(b, 0, c)
		}
		return b
	}
	universal := func(text string) (b []byte) {
		for _, c := range []byte(text) {
			b = append(b, 0, 0, 0, c)
		}
		return b
	}
	const id = "id:49465800"
	for name, c := range map[string]struct {
		tag   cbasn1.Tag
		value []byte
		ok    bool
	}{
		"UTF8String":                      {cbasn1.UTF8String, []byte(id), true},
		"PrintableString":                 {cbasn1.PrintableString, []byte(id), true},
		"IA5String":                       {cbasn1.IA5String, []byte(id), true},
		"VisibleString":                   {26, []byte(id), true},
		"NumericString":                   {18, []byte(id), true},
		"T61String":                       {cbasn1.T61String, []byte(id), true},
		"BMPString":                       {30, bmp(id), true},
		"UniversalString":                 {28, universal(id), true},
		"BMPString of an odd length":      {30, bmp(id)[1:], false},
		"UniversalString cut":             {28, universal(id)[:43], false},
		"BMPString with half a pair":      {30, append(bmp(id), 0xd8, 0), false},
		"UniversalString beyond Unicode":  {28, append(universal(id), 0, 0x11, 0, 0), false},
		"no UTF8String":                   {cbasn1.UTF8String, []byte(id + "\xff"), false},
		"PrintableString beyond ASCII":    {cbasn1.PrintableString, []byte(id + "\x80"), false},
		"an OCTET STRING":                 {cbasn1.OCTET_STRING, []byte(id), false},
		"a text without id":               {cbasn1.UTF8String, []byte("STM "), false},
		"an empty one":                    {cbasn1.UTF8String, nil, false},
		"a PrintableString in two octets": {cbasn1.PrintableString, bmp(id), false},
		"three bytes of identifier":       {cbasn1.UTF8String, []byte("id:494658"), false},
		"a name in place of the digit":    {cbasn1.UTF8String, []byte("id:Infineon"), false},
	} {
		t.Run(name, func(t *testing.T) {
			var b cryptobyte.Builder
			b.AddASN1(tagDirectoryName, func(b *cryptobyte.Builder) {
				b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
					b.AddASN1(cbasn1.SET, func(b *cryptobyte.Builder) {
						b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
							oid.Add(b, oid.TCGAtTPMManufacturer)
							b.AddASN1(c.tag, func(b *cryptobyte.Builder) { b.AddBytes(c.value) })
						})
					})
				})
			})
			san, err := parseSubjectAltName(withSAN(true, tpmlab.Seq(b.BytesOrPanic())))
			if !c.ok {
				if !errors.Is(err, checkSubjectAltName) {
					t.Fatalf("got %v, want %s", err, checkSubjectAltName)
				}
				return
			}
			if err != nil || san.directory.Manufacturer != id || san.directory.Vendor != "IFX" {
				t.Fatalf("%+v, %v", san, err)
			}
		})
	}
}

func TestIdentities(t *testing.T) {
	one, two := otherNameOf("\x2a\x03", []byte{0x0c, 1, 'x'}), otherNameOf("\x2a\x04", []byte{5, 0})
	for name, c := range map[string]struct {
		types []oid.OID
		san   []byte
		want  attest.Identity
		bad   bool
	}{
		"one":                {nil, tpmlab.Seq(one), "othername:1.2.3:DAF4", false},
		"two":                {nil, tpmlab.Seq(one, two), "", true},
		"two, one counts":    {[]oid.OID{"\x2a\x04"}, tpmlab.Seq(one, two), "othername:1.2.4:BQA", false},
		"none that counts":   {[]oid.OID{"\x2a\x05"}, tpmlab.Seq(one, two), "", false},
		"none":               {nil, tpmlab.Seq(tpmlab.DirectoryName([]tpmlab.Attribute{manufacturer})), "", false},
		"bad":                {nil, tpmlab.Seq(one[:len(one)-1]), "", true},
		"the same one twice": {nil, tpmlab.Seq(one, one), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := OtherNameIdentity{Types: c.types}.Identify(withSAN(false, c.san))
			if got != c.want || (err != nil) != c.bad {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		})
	}
	instance := func(project string, id uint64) *x509.Certificate {
		value, err := (&oid.GCEInstance{Zone: "z", ProjectNumber: 1, ProjectID: project, InstanceID: id, InstanceName: "n"}).Marshal()
		testkit.NoError(t, err)
		return &x509.Certificate{Extensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11129, 2, 1, 21}, Value: value}}}
	}
	for name, c := range map[string]struct {
		cert *x509.Certificate
		want attest.Identity
		bad  bool
	}{
		"GCE":                 {instance("example.com:p-1", 18446744073709551615), "gce:example.com:p-1/18446744073709551615", false},
		"none":                {&x509.Certificate{}, "", false},
		"after another":       {&x509.Certificate{Extensions: append([]pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}}}, instance("p", 1).Extensions...)}, "gce:p/1", false},
		"a plain provider ID": {&x509.Certificate{Extensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11129, 2, 1, 21}, Value: []byte{0x0c, 1, 'x'}}}}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := GCEIdentity{}.Identify(c.cert)
			if got != c.want || (err != nil) != c.bad || c.bad && !errors.Is(err, attest.CheckIdentity) {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		})
	}
	if _, err := (AKIdentity{}).Identify(&x509.Certificate{}); !errors.Is(err, attest.CheckIdentity) {
		t.Errorf("no key: %v", err)
	}
	if got := attest.Identity("gce:p/1").Kind(); got != "gce" {
		t.Error(got)
	}
}

func FuzzSubjectAltName(f *testing.F) {
	f.Add(true, tpmlab.Seq(tpmlab.DirectoryName([]tpmlab.Attribute{manufacturer, model}, []tpmlab.Attribute{version}), otherNameOf("\x2a\x03", []byte{5, 0})))
	f.Add(false, tpmlab.Seq([]byte{0x82, 1, 'a'}))
	module := []byte("\x30\x0b\x06\x05\x67\x81\x05\x01\x02\x04\x02:/")
	f.Add(false, tpmlab.Seq(otherNameOf(oid.HardwareModuleName, module), otherNameOf(oid.PermanentIdentifier, []byte{0x30, 0})))
	f.Fuzz(func(t *testing.T, critical bool, value []byte) {
		cert := withSAN(critical, value)
		san, err := parseSubjectAltName(cert)
		if err != nil {
			if !errors.Is(err, checkSubjectAltName) {
				t.Errorf("%v is no check", err)
			}
			return
		}
		_, _ = OtherNameIdentity{}.Identify(cert)
		id, err := HardwareIdentity{Issuer: "a"}.find(san, true)
		if err != nil && !errors.Is(err, attest.CheckIdentity) {
			t.Errorf("%v is no check of identities", err)
		}
		if again, err := asListed(id); id.Valid() && (err != nil || again != id) {
			t.Errorf("%s is read as %s, %v", id, again, err)
		}
	})
}
