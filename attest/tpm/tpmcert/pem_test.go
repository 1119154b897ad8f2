package tpmcert

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

func pemOf(ders ...[]byte) string {
	var out strings.Builder
	for _, der := range ders {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return out.String()
}

func TestParseCertificatesPEM(t *testing.T) {
	a, b := tpmlab.CertificateOf(t, 10), tpmlab.CertificateOf(t, 20)
	one, two := pemOf(a), pemOf(b)
	for name, c := range map[string]struct {
		in   string
		want [][]byte
	}{
		"one":                  {one, [][]byte{a}},
		"two, in their order":  {two + one, [][]byte{b, a}},
		"comments":             {"# root\n" + one + "\n# another\n\n" + two + "#", [][]byte{a, b}},
		"CR LF":                {strings.ReplaceAll(one, "\n", "\r\n"), [][]byte{a}},
		"no line end":          {strings.TrimSuffix(one, "\n"), [][]byte{a}},
		"one line of base64":   {certificateBegin + "\n" + strings.Join(strings.Split(one, "\n")[1:len(strings.Split(one, "\n"))-2], "") + "\n" + certificateEnd, [][]byte{a}},
		"exactly the largest":  {one + strings.Repeat("#", maxPEMSize-len(one)), [][]byte{a}},
		"the same twice":       {one + one, [][]byte{a, a}},
		"empty lines in front": {"\n\n" + one, [][]byte{a}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseCertificatesPEM([]byte(c.in))
			if err != nil || !slices.EqualFunc(CertificatesDER(got), c.want, bytes.Equal) {
				t.Errorf("got %d certificates, %v", len(got), err)
			}
		})
	}
	large := append([]byte{0x30, 0x82, 0x3f, 0xfd}, make([]byte, der.MaxCertificateSize-3)...)
	for name, in := range map[string]string{
		"nothing":                      "",
		"comments alone":               "# none\n",
		"DER":                          string(a),
		"text in front":                "Subject: root\n" + one,
		"text between":                 one + "x\n" + two,
		"text after":                   one + "x",
		"a private key":                one + "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
		"a trusted certificate":        strings.ReplaceAll(one, "CERTIFICATE", "TRUSTED CERTIFICATE"),
		"armour inside a line":         "x " + one,
		"armour with a blank after":    strings.Replace(one, certificateBegin, certificateBegin+" ", 1),
		"a block that does not end":    strings.Replace(one, certificateEnd, "", 1),
		"a block inside a block":       certificateBegin + "\n" + one,
		"an end without a beginning":   one + certificateEnd + "\n",
		"a header":                     strings.Replace(one, certificateBegin, certificateBegin+"\nName: x\n", 1),
		"a comment inside":             strings.Replace(one, certificateBegin, certificateBegin+"\n# x", 1),
		"a carriage return inside":     strings.Replace(one, "MII", "M\rII", 1),
		"base64 of another alphabet":   certificateBegin + "\n--__\n" + certificateEnd,
		"bits after the end":           certificateBegin + "\nMAB=\n" + certificateEnd,
		"an empty block":               certificateBegin + "\n" + certificateEnd,
		"no certificate in it":         pemOf([]byte{0x30, 0}),
		"a byte after it":              pemOf(append(bytes.Clone(a), 0)),
		"one byte over the largest":    one + strings.Repeat("#", maxPEMSize-len(one)+1),
		"a certificate over its limit": pemOf(large),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := ParseCertificatesPEM([]byte(in)); err == nil || got != nil {
				t.Errorf("got %d certificates, %v", len(got), err)
			}
		})
	}
	t.Run("the error names the line", func(t *testing.T) {
		_, err := ParseCertificatesPEM([]byte(one + "x\n"))
		if n := strings.Count(one, "\n") + 1; err == nil || !strings.Contains(err.Error(), fmt.Sprintf("line %d:", n)) {
			t.Errorf("got %v, want line %d", err, n)
		}
	})
}

// The result is crypto/x509's, where that reads anything at all.
func FuzzParseCertificatesPEM(f *testing.F) {
	one := pemOf(tpmlab.CertificateOf(f, 10))
	for _, seed := range []string{"", one, one + one, "#\n" + one, one + "x", strings.ReplaceAll(one, "\n", "\r\n"), "x" + one} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := ParseCertificatesPEM(in)
		if err != nil {
			return
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(in)
		want := x509.NewCertPool()
		for _, c := range got {
			want.AddCert(c)
		}
		if !pool.Equal(want) {
			t.Errorf("crypto/x509 reads other certificates than the %d here", len(got))
		}
	})
}

// A certificate at its limit is read, one over it is not; a block that ends badly is
// refused whatever could be read of it, and what came before it with it.
func TestBlocksOfCertificates(t *testing.T) {
	one := pemOf(tpmlab.CertificateOf(t, 10))
	body := strings.TrimSuffix(one, certificateEnd+"\n")
	for name, c := range map[string]struct {
		in   string
		want int
	}{
		"one":                           {one, 1},
		"the largest":                   {pemOf(certificateOfSize(t, der.MaxCertificateSize)), 1},
		"a byte more":                   {pemOf(certificateOfSize(t, der.MaxCertificateSize+1)), 0},
		"one, and one that begins":      {one + certificateBegin + "\n", 0},
		"one, and half another":         {one + body, 0},
		"something after the base64":    {body + "!\n" + certificateEnd + "\n", 0},
		"more base64 after the padding": {body + "====\n" + certificateEnd + "\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseCertificatesPEM([]byte(c.in))
			if len(got) != c.want || (c.want == 0) != (err != nil) {
				t.Errorf("got %d, %v", len(got), err)
			}
		})
	}
}
