package oid

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"
)

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

// TestParseGCEInstanceSecurity changes one thing of what is stated about security.
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
