package awsid

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"testing"
	"time"

	"github.com/smallstep/pkcs7"

	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/test/clouds/documents"
)

// environment is what all vectors have in common.
type environment struct {
	Time         time.Time
	Certificates map[string][]byte

	certificates map[string]*x509.Certificate
}

func load(t testing.TB) (*environment, map[string]*documents.Vector) {
	t.Helper()
	e := &environment{certificates: map[string]*x509.Certificate{}}
	list := documents.Load(t, "awsid", e)
	for region, der := range e.Certificates {
		var err error
		if e.certificates[region], err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
	}
	return e, list
}

// FuzzVerify compares the reader with github.com/smallstep/pkcs7, which transcodes BER: a document that is
// accepted has the same content there, and a good signature. The fuzzer either sends its
// own bytes, or has a region's key sign it.
func FuzzVerify(f *testing.F) {
	const region = "us-east-1"
	cloud, err := cloudtest.OpenEC2(region)
	if err != nil {
		f.Fatal(err)
	}
	signed := time.Now()
	e, list := load(f)
	for _, v := range list {
		f.Add(v.Document, false)
		if p, err := pkcs7.Parse(v.Document); err == nil {
			f.Add(p.Content, true)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, sign bool) {
		certificates, now := e.certificates, e.Time
		if sign {
			if data, err = cloud.Sign(region, data, signed); err != nil {
				t.Fatal(err)
			}
			certificates, now = cloud.Certificates(), signed
		}
		d, err := awsid.Verify(data, certificates, now)
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
		p.Certificates = []*x509.Certificate{certificates[d.Region]}
		if err := p.Verify(); err != nil || !bytes.Equal(p.Content, d.JSON) {
			t.Errorf("%v\n%q\n%q", err, p.Content, d.JSON)
		}
	})
}

// BenchmarkVerify verifies one document with package awsid and with another library.
func BenchmarkVerify(b *testing.B) {
	e, list := load(b)
	data := list["claims-as-it-is"].Document
	b.Run("awsid", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := awsid.Verify(data, e.certificates, e.Time); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("smallstep", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p, err := pkcs7.Parse(data)
			if err != nil {
				b.Fatal(err)
			}
			var d struct{ Region string }
			if err := json.Unmarshal(p.Content, &d); err != nil {
				b.Fatal(err)
			}
			p.Certificates = []*x509.Certificate{e.certificates[d.Region]}
			if err := p.Verify(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
