package caissuers

import (
	"bytes"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

// Constructed elements of BER, also of indefinite length, for short contents too.
func long(tag byte, parts ...[]byte) []byte {
	content := bytes.Join(parts, nil)
	return append([]byte{tag, 0x83, byte(len(content) >> 16), byte(len(content) >> 8), byte(len(content))}, content...)
}

func openEnded(tag byte, parts ...[]byte) []byte {
	return append(append([]byte{tag, 0x80}, bytes.Join(parts, nil)...), 0, 0)
}

// Tags as bytes.
const (
	tagSequence = 0x30
	tagSet      = 0x31
	tagOID      = 0x06
)

// Parts of a SignedData.
var (
	versionOf1 = []byte{2, 1, 1}
	noDigests  = []byte{tagSet, 0}
	dataOnly   = []byte("\x30\x0b\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01")
	noSigners  = []byte{tagSet, 0}
	id         = append([]byte{tagOID, byte(len(signedData))}, signedData...)
)

// message is a ContentInfo of a SignedData with these parts behind the content.
func message(element func(tag byte, parts ...[]byte) []byte, parts ...[]byte) []byte {
	body := append([][]byte{versionOf1, noDigests, dataOnly}, parts...)
	return element(tagSequence, id, element(context0, element(tagSequence, body...)))
}

func TestCertificates(t *testing.T) {
	one, two := tpmlab.CertificateOf(t, 10), tpmlab.CertificateOf(t, 200)
	inPEM := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	der := func(tag byte, parts ...[]byte) []byte { return long(tag, parts...) }
	both := message(der, der(context0, one, two), noSigners)
	list := func(n int) []byte { return message(der, der(context0, bytes.Repeat(one, n)), noSigners) }
	signer := []byte{tagSet, 2, tagSequence, 0}
	attribute := append([]byte{0xa2, 3}, versionOf1...) // an attribute certificate, where one can be
	for name, c := range map[string]struct {
		data []byte
		want [][]byte
		err  string
	}{
		"DER":                          {one, [][]byte{one}, ""},
		"DER and a line feed":          {append(bytes.Clone(one), "\r\n"...), [][]byte{one}, ""},
		"PEM":                          {inPEM("CERTIFICATE", one), [][]byte{one}, ""},
		"PEM with CRLF":                {bytes.ReplaceAll(inPEM("CERTIFICATE", one), []byte("\n"), []byte("\r\n")), [][]byte{one}, ""},
		"PEM with text around":         {slices.Concat([]byte("subject=CN = CA\n"), inPEM("CERTIFICATE", one), []byte("\n")), [][]byte{one}, ""},
		"PEM of two":                   {append(inPEM("CERTIFICATE", one), inPEM("CERTIFICATE", two)...), [][]byte{one, two}, ""},
		"PEM with a list of revoked":   {append(inPEM("X509 CRL", []byte{0x30, 0}), inPEM("CERTIFICATE", one)...), [][]byte{one}, ""},
		"PKCS#7":                       {both, [][]byte{one, two}, ""},
		"PKCS#7 and a line feed":       {append(bytes.Clone(both), '\n'), [][]byte{one, two}, ""},
		"PKCS#7 in PEM":                {inPEM("PKCS7", both), [][]byte{one, two}, ""},
		"CMS in PEM":                   {inPEM("CMS", both), [][]byte{one, two}, ""},
		"PKCS#7 in BER":                {message(openEnded, openEnded(context0, one, two), noSigners), [][]byte{one, two}, ""},
		"PKCS#7 with revocation lists": {message(der, der(context0, one), der(context1), noSigners), [][]byte{one}, ""},
		"with an attribute certificate": {message(der, der(context0, attribute, one), noSigners),
			[][]byte{one}, ""},
		"as many as may be":            {list(maxCertificates), slices.Repeat([][]byte{one}, maxCertificates), ""},
		"one more":                     {list(maxCertificates + 1), nil, "more than 16 certificates"},
		"one more, in PEM":             {bytes.Repeat(inPEM("CERTIFICATE", one), maxCertificates+1), nil, "more than 16 certificates"},
		"too large":                    {make([]byte, MaxSize+1), nil, "65537 bytes"},
		"nothing":                      {nil, nil, "nothing"},
		"white space":                  {[]byte(" \r\n"), nil, "nothing"},
		"a page":                       {[]byte("<html>"), nil, "a web page or other text"},
		"text":                         {[]byte("404 not found"), nil, "a web page or other text"},
		"zeros":                        {make([]byte, 100), nil, "a web page or other text"},
		"PEM of something else":        {inPEM("PRIVATE KEY", one), nil, "no certificate"},
		"PEM of a key as one":          {inPEM("CERTIFICATE", []byte{4, 1, 1}), nil, "PEM: neither"},
		"an empty SEQUENCE":            {[]byte{0x30, 0}, nil, "neither a certificate"},
		"two certificates in a row":    {append(bytes.Clone(one), two...), nil, "bytes behind it"},
		"a byte behind it":             {append(bytes.Clone(one), 0), nil, "1 bytes behind it"},
		"a certificate that is cut":    {one[:len(one)-1], nil, "neither a certificate"},
		"PKCS#7 that is cut":           {both[:len(both)-1], nil, "neither a certificate"},
		"bytes behind PKCS#7":          {append(bytes.Clone(both), 0), nil, "PKCS#7 message that is not certs-only"},
		"no certificates":              {message(der, noSigners), nil, "no certificate"},
		"an empty set of them":         {message(der, der(context0), noSigners), nil, "no certificate"},
		"only attribute certificates":  {message(der, der(context0, attribute), noSigners), nil, "no certificate"},
		"with a signer":                {message(der, der(context0, one), signer), nil, "not certs-only"},
		"without signers' set":         {message(der, der(context0, one)), nil, "not certs-only"},
		"something behind the signers": {message(der, der(context0, one), noSigners, noSigners), nil, "not certs-only"},
		"a cut certificate in it":      {message(der, der(context0, one[:len(one)-1]), noSigners), nil, "not certs-only"},
		"data of PKCS#7":               {dataOnly, nil, "not certs-only"},
		"an end that is missing":       {message(openEnded, openEnded(context0, one), noSigners)[:300], nil, "neither a certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Certificates(c.data)
			if !slices.EqualFunc(got, c.want, bytes.Equal) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%d certificates, %v, want %d, %q", len(got), err, len(c.want), c.err)
			}
		})
	}
}

// Elements in elements of indefinite length end somewhere, and a length is no larger than what
// is there.
func TestElement(t *testing.T) {
	nested := bytes.Repeat([]byte{tagSequence, 0x80}, maxDepth-1)
	deep := append(append(bytes.Clone(nested), 5, 0), make([]byte, 2*(maxDepth-1))...)
	for name, c := range map[string]struct {
		in   []byte
		want bool
	}{
		"short": {[]byte{4, 1, 7}, true}, "empty": {[]byte{5, 0}, true}, "a byte of length": {[]byte{4, 0x81, 1, 7}, true},
		"four bytes of length": {[]byte{4, 0x84, 0, 0, 0, 1, 7}, true}, "five": {[]byte{4, 0x85, 0, 0, 0, 0, 1, 7}, false},
		"a length without its bytes": {[]byte{4, 0x82, 1}, false}, "more than is there": {[]byte{4, 2, 7}, false},
		"a huge length": {[]byte{4, 0x84, 0xff, 0xff, 0xff, 0xff, 7}, false}, "no length": {[]byte{4}, false}, "nothing": {nil, false},
		"a long tag": {[]byte{0x1f, 1, 7}, false}, "primitive of indefinite length": {[]byte{4, 0x80, 0, 0}, false},
		"of indefinite length": {[]byte{0x30, 0x80, 5, 0, 0, 0}, true}, "without its end": {[]byte{0x30, 0x80, 5, 0, 0}, false},
		"as deep as may be": {deep, true}, "deeper": {append([]byte{tagSequence, 0x80}, append(deep, 0, 0)...), false},
	} {
		t.Run(name, func(t *testing.T) {
			if content, rest, ok := element(c.in, maxDepth); ok != c.want || ok && (len(rest) != 0 || len(content) > len(c.in)) {
				t.Errorf("%t, %d bytes and %d behind them", ok, len(content), len(rest))
			}
		})
	}
}

// What OpenSSL writes.
func TestCertificatesOfOpenSSL(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed: apt-get install openssl")
	}
	one, two, dir := tpmlab.CertificateOf(t, 10), tpmlab.CertificateOf(t, 200), t.TempDir()
	file := filepath.Join(dir, "certificates.pem")
	all := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: one}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: two})...)
	if err := os.WriteFile(file, all, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"DER", "PEM"} {
		out, err := exec.Command(openssl, "crl2pkcs7", "-nocrl", "-certfile", file, "-outform", form).Output()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Certificates(out)
		slices.SortFunc(got, func(a, b []byte) int { return len(a) - len(b) }) // it writes a set
		if err != nil || len(got) != 2 || !bytes.Equal(got[0], one) || !bytes.Equal(got[1], two) {
			t.Errorf("%s: %d certificates, %v", form, len(got), err)
		}
	}
}

func FuzzCertificates(f *testing.F) {
	one := tpmlab.CertificateOf(f, 10)
	f.Add(one)
	f.Add(message(openEnded, openEnded(context0, one, one), noSigners))
	f.Add(message(func(tag byte, parts ...[]byte) []byte { return long(tag, parts...) }, long(context0, one), long(context1), noSigners))
	f.Add(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: one}))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := Certificates(data)
		if (err == nil) != (len(all) > 0) || len(all) > maxCertificates {
			t.Fatalf("%d certificates, %v", len(all), err)
		}
		size := 0
		for _, der := range all {
			size += len(der)
			if der[0] != tagSequence || data[0] == tagSequence && !bytes.Contains(data, der) {
				t.Errorf("%x is no part of it", der)
			}
		}
		if size > len(data) {
			t.Errorf("%d bytes of certificates in %d", size, len(data))
		}
	})
}
