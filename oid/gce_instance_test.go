package oid

import (
	"bytes"
	"crypto/x509"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/refusal"
)

func exampleInstance() *GCEInstance {
	return &GCEInstance{
		Zone:          "us-central1-a",
		ProjectNumber: 117485845609,
		ProjectID:     "example.com:project",
		InstanceID:    5779862431105934320,
		InstanceName:  "node-1",
		Security:      &GCESecurity{Version: new(uint64), IsProduction: new(bool), Rest: []byte("\xa2\x03\x01\x01\xff\xa5\x03\x01\x01\x00")},
	}
}

func gceExample(t testing.TB) []byte {
	t.Helper()
	value, err := exampleInstance().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestGCEInstanceRoundTrip(t *testing.T) {
	one, yes := uint64(1), true
	for name, change := range map[string]func(*GCEInstance){
		"as it is":                func(g *GCEInstance) {},
		"no security":             func(g *GCEInstance) { g.Security = nil },
		"empty security":          func(g *GCEInstance) { g.Security = &GCESecurity{} },
		"version alone":           func(g *GCEInstance) { g.Security = &GCESecurity{Version: &one} },
		"production alone":        func(g *GCEInstance) { g.Security = &GCESecurity{IsProduction: &yes} },
		"unknown fields alone":    func(g *GCEInstance) { g.Security = &GCESecurity{Rest: []byte("\xbe\x00")} },
		"instance over 63 bits":   func(g *GCEInstance) { g.InstanceID = math.MaxUint64 },
		"instance of one":         func(g *GCEInstance) { g.InstanceID = 1 },
		"largest project number":  func(g *GCEInstance) { g.ProjectNumber = maxProjectNumber },
		"smallest project number": func(g *GCEInstance) { g.ProjectNumber = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			g := exampleInstance()
			change(g)
			value, err := g.Marshal()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			back, err := ParseGCEInstance(value)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if diff := cmp.Diff(g, back); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		})
	}
}

func TestGCEInstanceFieldsAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*GCEInstance)
		want   error
	}{
		"no zone":                 {func(g *GCEInstance) { g.Zone = "" }, checkGCEInstanceText},
		"zone with a slash":       {func(g *GCEInstance) { g.Zone = "zones/a" }, checkGCEInstanceText},
		"project with a slash":    {func(g *GCEInstance) { g.ProjectID = "a/1" }, checkGCEInstanceText},
		"project with a newline":  {func(g *GCEInstance) { g.ProjectID = "a\n" }, checkGCEInstanceText},
		"project not in ASCII":    {func(g *GCEInstance) { g.ProjectID = "proj\u00e9" }, checkGCEInstanceText},
		"name with a dot":         {func(g *GCEInstance) { g.InstanceName = "node.1" }, checkGCEInstanceText},
		"name not UTF-8":          {func(g *GCEInstance) { g.InstanceName = "\xff" }, checkGCEInstanceText},
		"no name":                 {func(g *GCEInstance) { g.InstanceName = "" }, checkGCEInstanceText},
		"project number zero":     {func(g *GCEInstance) { g.ProjectNumber = 0 }, checkGCEInstanceNumber},
		"project number too long": {func(g *GCEInstance) { g.ProjectNumber = maxProjectNumber + 1 }, checkGCEInstanceNumber},
		"instance zero":           {func(g *GCEInstance) { g.InstanceID = 0 }, checkGCEInstanceNumber},
		"known field repeated":    {func(g *GCEInstance) { g.Security.Rest = []byte("\xa1\x03\x01\x01\xff") }, checkGCEInstanceEncoding},
		"fields out of order":     {func(g *GCEInstance) { g.Security.Rest = []byte("\xa3\x00\xa2\x00") }, checkGCEInstanceEncoding},
		"field twice":             {func(g *GCEInstance) { g.Security.Rest = []byte("\xa2\x00\xa2\x00") }, checkGCEInstanceEncoding},
		"field not explicit":      {func(g *GCEInstance) { g.Security.Rest = []byte("\x82\x00") }, checkGCEInstanceEncoding},
		"application tag":         {func(g *GCEInstance) { g.Security.Rest = []byte("\xe2\x00") }, checkGCEInstanceEncoding},
		"rest truncated":          {func(g *GCEInstance) { g.Security.Rest = []byte("\xa2\x03\x01") }, checkGCEInstanceEncoding},
	} {
		t.Run(name, func(t *testing.T) {
			g := exampleInstance()
			test.change(g)
			if value, err := g.Marshal(); !errors.Is(err, test.want) {
				t.Errorf("%s: Marshal = %x, %v, want %v", name, value, err, test.want)
			}
			if back, err := ParseGCEInstance(marshalUnchecked(t, g)); !errors.Is(err, test.want) {
				t.Errorf("%s: ParseGCEInstance = %+v, %v, want %v", name, back, err, test.want)
			}
		})
	}
	long := exampleInstance()
	long.InstanceName = strings.Repeat("n", maxGCEInstanceSize)
	if _, err := long.Marshal(); !errors.Is(err, checkGCEInstanceSize) {
		t.Errorf("too long: Marshal: %v", err)
	}
	if _, err := ParseGCEInstance(marshalUnchecked(t, long)); !errors.Is(err, checkGCEInstanceSize) {
		t.Errorf("too long: ParseGCEInstance: %v", err)
	}
}

// marshalUnchecked writes what Marshal would refuse.
func marshalUnchecked(t *testing.T, g *GCEInstance) []byte {
	t.Helper()
	var b cryptobyte.Builder
	b.AddASN1(cryptobyteasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		addUTF8(b, g.Zone)
		b.AddASN1Uint64(g.ProjectNumber)
		addUTF8(b, g.ProjectID)
		b.AddASN1Uint64(g.InstanceID)
		addUTF8(b, g.InstanceName)
		b.AddASN1(explicitTag(0), func(b *cryptobyte.Builder) {
			b.AddASN1(cryptobyteasn1.SEQUENCE, g.Security.add)
		})
	})
	return b.BytesOrPanic()
}

// TestGCEInstanceOldOrder has GKE's order of the fields, which has the same types.
func TestGCEInstanceOldOrder(t *testing.T) {
	g := exampleInstance()
	old := *g
	old.ProjectNumber, old.InstanceID = g.InstanceID, g.ProjectNumber
	old.ProjectID, old.InstanceName = g.InstanceName, "project"
	if back, err := ParseGCEInstance(marshalUnchecked(t, &old)); !errors.Is(err, checkGCEInstanceNumber) {
		t.Errorf("ParseGCEInstance = %+v, %v, want %v", back, err, checkGCEInstanceNumber)
	}
}

func TestParseGCEInstanceRefusesOtherEncodings(t *testing.T) {
	good := string(gceExample(t))
	number := "\x02\x05\x1b\x5a\xb3\xbc\x69"
	if !strings.Contains(good, number) {
		t.Fatalf("%x has no project number %x", good, number)
	}
	// wrap makes the outer SEQUENCE anew around a changed content.
	wrap := func(old, changed string) string {
		content := strings.Replace(good[2:], old, changed, 1)
		if content == good[2:] {
			t.Fatalf("%x is not in %x", old, good)
		}
		return "\x30" + string(rune(len(content))) + content
	}
	for name, value := range map[string]string{
		"trailing byte":           good + "\x00",
		"truncated":               good[:len(good)-1],
		"a UTF8String":            "\x0c\x01a",
		"a SET":                   "\x31" + good[1:],
		"huge length":             "\x30\x84\xff\xff\xff\xff" + good[2:],
		"long form length":        "\x30\x81" + good[1:],
		"number with a zero byte": wrap(number, "\x02\x06\x00"+number[2:]),
		"number negative":         wrap(number, "\x02\x05\x9b"+number[3:]),
		"number over 64 bits":     wrap(number, "\x02\x0a\x01"+strings.Repeat("\x00", 9)),
		"number empty":            wrap(number, "\x02\x00"),
		"zone a PrintableString":  wrap("\x0c\x0d", "\x13\x0d"),
		"flag not DER TRUE":       wrap("\xa1\x03\x01\x01\x00", "\xa1\x03\x01\x01\x01"),
		"flag of two bytes":       wrap("\xa1\x03\x01\x01\x00", "\xa1\x04\x01\x02\x00\x00"),
		"version twice inside":    wrap("\xa0\x03\x02\x01\x00", "\xa0\x06\x02\x01\x00\x02\x01\x00"),
		"version not an INTEGER":  wrap("\xa0\x03\x02\x01\x00", "\xa0\x03\x01\x01\x00"),
		"name missing":            wrap("\x0c\x06node-1", ""),
		"security not a SEQUENCE": wrap("\xa0\x16\x30\x14", "\xa0\x16\x31\x14"),
	} {
		t.Run(name, func(t *testing.T) {
			if g, err := ParseGCEInstance([]byte(value)); !errors.Is(err, checkGCEInstanceEncoding) {
				t.Errorf("%s: %+v, %v, want %v", name, g, err, checkGCEInstanceEncoding)
			}
		})
	}
	if _, err := ParseGCEInstance(nil); !errors.Is(err, checkGCEInstanceSize) {
		t.Errorf("nothing: %v", err)
	}
}

// corpus returns the folder with real certificates, which is not part of this
// repository.
func corpus(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("NODEATTEST_CORPUS")
	if dir == "" {
		t.Skip("NODEATTEST_CORPUS is not set: no real certificates to read")
	}
	return dir
}

func TestParseGCEInstanceOfRealCertificates(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(corpus(t), "ek-certs/leaf/GOOG-*.der"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no certificates of Google: %v", err)
	}
	for _, file := range files {
		der, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found := 0
		for _, e := range certificate.Extensions {
			if !KubernetesNodeProviderIdentifier.Equal(e.Id) {
				continue
			}
			found++
			g, err := ParseGCEInstance(e.Value)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if back, err := g.Marshal(); err != nil || !bytes.Equal(back, e.Value) {
				t.Errorf("%s: marshals to %x, %v, want %x", file, back, err, e.Value)
			}
			if g.Zone != "us-central1-a" || g.Security == nil || g.Security.IsProduction == nil || !*g.Security.IsProduction {
				t.Errorf("%s: %+v", file, g)
			}
		}
		if found != 1 {
			t.Errorf("%s: %d identities", file, found)
		}
		if id, err := ParseProviderID(certificate.Extensions); !errors.Is(err, checkProviderIDEncoding) {
			t.Errorf("%s: an instance identity passes for provider ID %q, %v", file, id, err)
		}
	}
}

func FuzzParseGCEInstance(f *testing.F) {
	f.Add(gceExample(f))
	bare := exampleInstance()
	bare.Security = nil
	value, _ := bare.Marshal()
	f.Add(value)
	f.Add([]byte("\x30\x84\xff\xff\xff\xff\x0c"))
	f.Fuzz(func(t *testing.T, value []byte) {
		g, err := ParseGCEInstance(value)
		if err != nil {
			if _, ok := errors.AsType[*refusal.Error](err); !ok {
				t.Fatalf("error %v", err)
			}
			return
		}
		if back, err := g.Marshal(); err != nil || !bytes.Equal(back, value) {
			t.Fatalf("%x reads as %+v, which is %x, %v", value, g, back, err)
		}
	})
}

// withSecurity is a good instance identity with these bytes after its name: all the
// lengths around them are right.
func withSecurity(t *testing.T, behindName string) []byte {
	t.Helper()
	g := exampleInstance()
	var b cryptobyte.Builder
	b.AddASN1(cryptobyteasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		addUTF8(b, g.Zone)
		b.AddASN1Uint64(g.ProjectNumber)
		addUTF8(b, g.ProjectID)
		b.AddASN1Uint64(g.InstanceID)
		addUTF8(b, g.InstanceName)
		b.AddBytes([]byte(behindName))
	})
	return b.BytesOrPanic()
}

// TestParseGCEInstanceSecurity changes one field of the security statements.
func TestParseGCEInstanceSecurity(t *testing.T) {
	const version, production, further = "\xa0\x03\x02\x01\x01", "\xa1\x03\x01\x01\xff", "\xa2\x00"
	security := func(fields string) string {
		length := string([]byte{byte(len(fields))})
		return "\xa0" + string([]byte{byte(len(fields) + 2)}) + "\x30" + length + fields
	}
	for name, c := range map[string]struct {
		bytes string
		want  error
	}{
		"none":                       {"", nil},
		"empty":                      {security(""), nil},
		"whole":                      {security(version + production + further), nil},
		"last tag":                   {security("\xbe\x00"), nil},
		"first free tag":             {security(further), nil},
		"twice":                      {security("") + security(""), checkGCEInstanceEncoding},
		"another element after it":   {security("") + "\x05\x00", checkGCEInstanceEncoding},
		"truncated":                  {"\xa0\x03\x30\x00", checkGCEInstanceEncoding},
		"nothing in the tag":         {"\xa0\x00", checkGCEInstanceEncoding},
		"a SET":                      {"\xa0\x02\x31\x00", checkGCEInstanceEncoding},
		"two SEQUENCEs":              {"\xa0\x04\x30\x00\x30\x00", checkGCEInstanceEncoding},
		"NULL after the SEQUENCE":    {"\xa0\x04\x30\x00\x05\x00", checkGCEInstanceEncoding},
		"version truncated":          {security("\xa0\x04\x02\x01\x01"), checkGCEInstanceEncoding},
		"version a BOOLEAN":          {security("\xa0\x03\x01\x01\xff"), checkGCEInstanceEncoding},
		"no version in the tag":      {security("\xa0\x00"), checkGCEInstanceEncoding},
		"two versions in the tag":    {security("\xa0\x06\x02\x01\x01\x02\x01\x01"), checkGCEInstanceEncoding},
		"version not the shortest":   {security("\xa0\x04\x02\x02\x00\x01"), checkGCEInstanceEncoding},
		"production truncated":       {security("\xa1\x04\x01\x01\xff"), checkGCEInstanceEncoding},
		"production an INTEGER":      {security("\xa1\x03\x02\x01\x01"), checkGCEInstanceEncoding},
		"no production in the tag":   {security("\xa1\x00"), checkGCEInstanceEncoding},
		"two productions in the tag": {security("\xa1\x06\x01\x01\xff\x01\x01\xff"), checkGCEInstanceEncoding},
		"production before version":  {security(production + version), checkGCEInstanceEncoding},
		"version twice":              {security(version + version), checkGCEInstanceEncoding},
		"production twice":           {security(production + production), checkGCEInstanceEncoding},
		"further before production":  {security(further + production), checkGCEInstanceEncoding},
		"private tag":                {security("\xe0\x00"), checkGCEInstanceEncoding},
		"high tag":                   {security("\xbf\x1f\x00"), checkGCEInstanceEncoding},
		"further truncated":          {security("\xa2\x01"), checkGCEInstanceEncoding},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := ParseGCEInstance(withSecurity(t, c.bytes))
			if !errors.Is(err, c.want) || (g != nil) != (err == nil) {
				t.Errorf("got %+v, %v, want %v", g, err, c.want)
			}
		})
	}
}

// TestGCEInstanceSizes tries the largest size that is read and written, and one byte
// more.
func TestGCEInstanceSizes(t *testing.T) {
	for over := range 2 {
		g := exampleInstance()
		value := marshalUnchecked(t, g)
		for len(value) < maxGCEInstanceSize+over {
			g.InstanceName += strings.Repeat("n", maxGCEInstanceSize+over-len(value))
			value = marshalUnchecked(t, g)
			if extra := len(value) - maxGCEInstanceSize - over; extra > 0 { // the lengths have grown
				g.InstanceName = g.InstanceName[extra:]
				value = marshalUnchecked(t, g)
			}
		}
		if len(value) != maxGCEInstanceSize+over {
			t.Fatalf("%d bytes", len(value))
		}
		var want error
		if over > 0 {
			want = checkGCEInstanceSize
		}
		if _, err := ParseGCEInstance(value); !errors.Is(err, want) {
			t.Errorf("%d bytes: read with %v, want %v", len(value), err, want)
		}
		if _, err := g.Marshal(); !errors.Is(err, want) {
			t.Errorf("%d bytes: written with %v, want %v", len(value), err, want)
		}
	}
}
