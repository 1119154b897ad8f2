package awsid_test

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/smallstep/pkcs7"

	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/internal/fuzzing"
)

// FuzzVerify holds the reader against github.com/smallstep/pkcs7, which transcodes BER: what is
// accepted has the same content there, and a good signature. The fuzzer either sends what
// it likes, or has a region's key sign it.
func FuzzVerify(f *testing.F) {
	fuzzing.Begin(f)
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
		if sign {
			data = newShape(a, string(data)).marshal(a)
		}
		d, err := awsid.Verify(data, table(), now)
		if (d == nil) != (err != nil) {
			t.Fatal(d, err)
		}
		if err != nil {
			return
		}
		p, err := pkcs7.Parse(data)
		if err != nil {
			t.Fatalf("refused by the other: %v\n%x", err, data)
		}
		p.Certificates = []*x509.Certificate{table()[d.Region]}
		if err := p.Verify(); err != nil || !bytes.Equal(p.Content, d.JSON) {
			t.Errorf("%v\n%q\n%q", err, p.Content, d.JSON)
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
		if (len(table) == 0) != (err != nil) {
			t.Fatal(table, err)
		}
		for region := range table {
			if known[region] == "" {
				t.Error(region)
			}
		}
	})
}

// FuzzParseBase64: there is one text without line ends for what is read.
func FuzzParseBase64(f *testing.F) {
	f.Add([]byte("MIAGCSqG\n"))
	f.Add([]byte("MIA="))
	f.Add([]byte("MI\r\nAG"))
	f.Fuzz(func(t *testing.T, text []byte) {
		data, err := awsid.ParseBase64(text)
		if (len(data) == 0) != (err != nil) {
			t.Fatal(data, err)
		}
		if err == nil && base64.StdEncoding.EncodeToString(data) != string(bytes.ReplaceAll(text, []byte("\n"), nil)) {
			t.Errorf("%q", text)
		}
	})
}
