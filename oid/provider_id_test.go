package oid

import (
	"bytes"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"strings"
	"testing"
)

func TestProviderIDRoundTrip(t *testing.T) {
	for _, id := range []string{
		"a", "aws:///eu-west-1a/i-0123456789abcdef0", "gce://project/us-central1-a/node-1",
		"metal://Gerät/7", "openstack:///f0e1d2c3-0000-4000-8000-00000000abcd", "ocid1.instance.oc1.eu-frankfurt-1.antheljt",
		"azure:///subscriptions/0a1b/resourceGroups/my_RG (test)/providers/Microsoft.Compute/virtualMachineScaleSets/aks~1/virtualMachines/0",
		"vsphere://4237a1b2-c3d4", "kind://docker/kind/kind-worker", "機械://一", "a b", strings.Repeat("x", MaxProviderIDSize), strings.Repeat("x", 127), strings.Repeat("x", 128),
	} {
		value, err := MarshalProviderID(id)
		if err != nil {
			t.Fatalf("%.20q: %v", id, err)
		}
		want, err := asn1.MarshalWithParams(id, "utf8")
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(value, want) {
			t.Errorf("%.20q: %x, encoding/asn1 writes %x", id, value, want)
		}
		extension, err := ProviderIDExtension(id)
		if err != nil || extension.Critical || extension.Id.String() != "1.3.6.1.4.1.11129.2.1.21" {
			t.Fatalf("extension %+v, %v", extension, err)
		}
		other := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Critical: true}
		if got, err := ParseProviderID([]pkix.Extension{other, extension, other}); err != nil || got != id {
			t.Errorf("ParseProviderID = %.20q, %v", got, err)
		}
	}
}

func TestProviderIDTextIsChecked(t *testing.T) {
	for id, want := range map[string]error{
		"":                                       checkProviderIDSize,
		strings.Repeat("x", MaxProviderIDSize+1): checkProviderIDSize,
		"a\x00b":                                 checkProviderIDText,
		"a\n":                                    checkProviderIDText,
		"\ta":                                    checkProviderIDText,
		"a\x7f":                                  checkProviderIDText,
		"a\u0085":                                checkProviderIDText,
		" ":                                      checkProviderIDText,
		" a":                                     checkProviderIDText,
		"a ":                                     checkProviderIDText,
		"gce://a\u202eb":                         checkProviderIDText, // right-to-left override
		"gce://a\u2066b":                         checkProviderIDText, // left-to-right isolate
		"gce://a\u200fb":                         checkProviderIDText, // right-to-left mark
		"gce://a\u200bb":                         checkProviderIDText, // zero width space
		"\ufeffgce://a":                          checkProviderIDText, // byte order mark
		"gce://a\u2028b":                         checkProviderIDText, // line separator
		"gce://a\u2029b":                         checkProviderIDText, // paragraph separator
		"gce://a\u00a0b":                         checkProviderIDText, // no-break space
		"gce://a\ue000b":                         checkProviderIDText, // private use
		"a\xffb":                                 checkProviderIDText,
		"\xc0\x80":                               checkProviderIDText,
		"\xed\xa0\x80":                           checkProviderIDText,
		"a\xc3":                                  checkProviderIDText,
	} {
		t.Run(id, func(t *testing.T) {
			if value, err := MarshalProviderID(id); !errors.Is(err, want) {
				t.Errorf("MarshalProviderID(%.20q) = %x, %v, want %v", id, value, err, want)
			}
			if _, err := ProviderIDExtension(id); !errors.Is(err, want) {
				t.Errorf("ProviderIDExtension(%.20q): %v, want %v", id, err, want)
			}
			der, _ := asn1.Marshal(asn1.RawValue{Tag: asn1.TagUTF8String, Bytes: []byte(id)})
			if got, err := UnmarshalProviderID(der); !errors.Is(err, want) {
				t.Errorf("UnmarshalProviderID(%x) = %.20q, %v, want %v", der, got, err, want)
			}
		})
	}
}

func TestProviderIDEncodingIsChecked(t *testing.T) {
	for name, der := range map[string]string{
		"nothing":               "",
		"bare text":             "aws:///i-1",
		"PrintableString":       "\x13\x01a",
		"IA5String":             "\x16\x01a",
		"OCTET STRING":          "\x04\x01a",
		"constructed":           "\x2c\x03\x0c\x01a",
		"two strings":           "\x0c\x01a\x0c\x01b",
		"trailing byte":         "\x0c\x01a\x00",
		"truncated":             "\x0c\x02a",
		"length in long form":   "\x0c\x81\x01a",
		"length with a zero":    "\x0c\x82\x00\x01a",
		"indefinite length":     "\x0c\x80a\x00\x00",
		"huge length":           "\x0c\x84\xff\xff\xff\xffa",
		"length of eight bytes": "\x0c\x88\x00\x00\x00\x00\x00\x00\x00\x01a",
		"a GCE instance":        string(gceExample(t)),
	} {
		t.Run(name, func(t *testing.T) {
			if id, err := UnmarshalProviderID([]byte(der)); !errors.Is(err, checkProviderIDEncoding) {
				t.Errorf("%s: %q, %v, want %v", name, id, err, checkProviderIDEncoding)
			}
		})
	}
}

func TestParseProviderIDWantsExactlyOne(t *testing.T) {
	good, err := ProviderIDExtension("node-1")
	if err != nil {
		t.Fatal(err)
	}
	critical := good
	critical.Critical = true
	bad := good
	bad.Value = []byte("node-1")
	other := pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11129, 2, 1, 22}, Value: good.Value}
	for _, test := range []struct {
		name       string
		extensions []pkix.Extension
		want       error
	}{
		{"none", nil, CheckProviderIDMissing},
		{"another", []pkix.Extension{other}, CheckProviderIDMissing},
		{"two", []pkix.Extension{good, good}, checkProviderIDDuplicate},
		{"two, the second bad", []pkix.Extension{good, bad}, checkProviderIDDuplicate},
		{"two, the first critical", []pkix.Extension{critical, good}, checkProviderIDDuplicate},
		{"critical", []pkix.Extension{critical}, checkProviderIDCritical},
		{"bad", []pkix.Extension{other, bad}, checkProviderIDEncoding},
	} {
		t.Run(test.name, func(t *testing.T) {
			if id, err := ParseProviderID(test.extensions); !errors.Is(err, test.want) {
				t.Errorf("%s: %q, %v, want %v", test.name, id, err, test.want)
			}
		})
	}
}

func FuzzParseProviderID(f *testing.F) {
	for _, id := range []string{"a", "aws:///eu-west-1a/i-0123456789abcdef0", strings.Repeat("x", 200)} {
		value, _ := MarshalProviderID(id)
		f.Add(value, false, false)
		f.Add(value, true, false)
		f.Add(value, false, true)
	}
	f.Add([]byte("\x0c\x81\x01a"), false, false)
	f.Add([]byte("\x0c\x84\xff\xff\xff\xffa"), false, false)
	name, _ := KubernetesNodeProviderIdentifier.ASN1()
	f.Fuzz(func(t *testing.T, value []byte, critical, twice bool) {
		extensions := []pkix.Extension{{Id: name, Critical: critical, Value: value}}
		if twice {
			extensions = append(extensions, extensions[0])
		}
		id, err := UnmarshalProviderID(value)
		found, parseErr := ParseProviderID(extensions)
		if (parseErr == nil) != (err == nil && !critical && !twice) || parseErr == nil && found != id {
			t.Fatalf("UnmarshalProviderID: %q, %v; ParseProviderID: %q, %v", id, err, found, parseErr)
		}
		if err != nil {
			return
		}
		back, err := MarshalProviderID(id)
		if err != nil || !bytes.Equal(back, value) {
			t.Fatalf("%x reads as %q, which is %x, %v", value, id, back, err)
		}
	})
}
