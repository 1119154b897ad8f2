package awsid_test

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// FuzzVerify: the fuzzer sends any bytes, or has a region's key sign them. An accepted document
// has the signed content. Another library's reading is compared in test/clouds.
func FuzzVerify(f *testing.F) {
	testkit.BeginFuzz(f)
	a := openAuthority()
	f.Add(newShape(a, goodJSON).marshal(a), false)
	f.Add([]byte(goodJSON), true)
	f.Add([]byte("{}"), true)
	two := newShape(a, goodJSON)
	two.chunks = []string{goodJSON[:10], goodJSON[10:]}
	f.Add(two.marshal(a), false)
	f.Add(bytes.Repeat([]byte{0x30, 0x80}, 100), false)
	if dir := os.Getenv("NODEATTEST_CORPUS"); dir != "" {
		names, err := filepath.Glob(filepath.Join(dir, "cloud", "awsid", "*.p7"))
		if err != nil || len(names) == 0 {
			f.Fatal("no recorded documents: ", err)
		}
		for _, name := range names {
			f.Add(readFile(f, name), false)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, sign bool) {
		content := []byte(goodJSON)
		if sign {
			content, data = data, newShape(a, string(data)).marshal(a)
		}
		d, err := awsid.Verify(data, table(), now)
		if (d == nil) != (err != nil) {
			t.Fatal(d, err)
		}
		if read, err2 := awsid.ParseInsecure(data); (read == nil) != (err2 != nil) || err == nil && (err2 != nil || read.InstanceID != d.InstanceID) {
			t.Fatal(read, err2)
		}
		if err == nil && a.cert.Equal(table()[d.Region]) && !bytes.Equal(d.JSON, content) && bytes.Contains(data, content) {
			t.Errorf("%q, signed was %q", d.JSON, content)
		}
	})
}

// FuzzParseCertificates reads tables.
func FuzzParseCertificates(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"))
	if dir := os.Getenv("NODEATTEST_CORPUS"); dir != "" {
		f.Add(readFile(f, dir, "cloud", "awsid", "regions-rsa2048.pem")[:3000])
	}
	known := awsid.Fingerprints()
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := awsid.ParseCertificates(text)
		if len(table) == 0 && err == nil || table != nil && len(table) == 0 {
			t.Fatal(table, err)
		}
		for region := range table {
			if known[region] == "" {
				t.Error(region)
			}
		}
	})
}

// FuzzParseBase64: each result has one text without line ends.
func FuzzParseBase64(f *testing.F) {
	f.Add([]byte("MIAGCSqG\n"))
	f.Add([]byte("MIA="))
	f.Add([]byte("MI\r\nAG"))
	f.Fuzz(func(t *testing.T, text []byte) {
		data, err := awsid.ParseBase64(text)
		if (len(data) == 0) != (err != nil) {
			t.Fatal(data, err)
		}
		if err == nil && base64.StdEncoding.EncodeToString(data) != strings.NewReplacer("\r\n", "", "\n", "").Replace(string(text)) {
			t.Errorf("%q", text)
		}
	})
}
