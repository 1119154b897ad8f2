package csr

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"testing"
)

// benchBundle is about as large as that of a node with an RSA AK and its certificate.
func benchBundle(b *testing.B, key crypto.Signer) []byte {
	bundle := attestedBundle(b, 3000)
	bundle.Request = clientRequest(b, key)
	return encodeBundle(b, bundle)
}

// BenchmarkRead compares, on the same bundle, this package's reading with encoding/pem
// and crypto/x509, which check neither blocks nor encodings.
func BenchmarkRead(b *testing.B) {
	for name, key := range map[string]crypto.Signer{"P-256": keyP256(), "RSA-2048": keyRSA2()} {
		text := benchBundle(b, key)
		b.Run(name+"/ours", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bundle, err := Parse(text)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := ParsePKCS10(bundle.Request); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/pem+x509", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				readByStandardLibrary(b, text)
			}
		})
	}
}

func readByStandardLibrary(b *testing.B, text []byte) {
	first, rest := pem.Decode(text)
	for len(rest) > 0 {
		_, rest = pem.Decode(rest)
	}
	if _, err := x509.ParseCertificateRequest(first.Bytes); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkParse has the PEM alone.
func BenchmarkParse(b *testing.B) {
	text := benchBundle(b, keyRSA2())
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if _, err := Parse(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("pem", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			for rest := text; len(rest) > 0; {
				_, rest = pem.Decode(rest)
			}
		}
	})
}

// BenchmarkParsePKCS10 has the request alone.
func BenchmarkParsePKCS10(b *testing.B) {
	for name, key := range map[string]crypto.Signer{"P-256": keyP256(), "RSA-2048": keyRSA2()} {
		der := clientRequest(b, key)
		b.Run(name+"/ours", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParsePKCS10(der); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/x509", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := x509.ParseCertificateRequest(der); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestParsePKCS10AllocatesLittle(t *testing.T) {
	der := clientRequest(t, keyP256())
	bare := testing.AllocsPerRun(100, func() { _, _ = x509.ParseCertificateRequest(der) })
	ours := testing.AllocsPerRun(100, func() { _, _ = ParsePKCS10(der) })
	// The result, its subject, its attributes, and the provider ID.
	if ours > bare+4 {
		t.Errorf("ParsePKCS10 allocates %v times, crypto/x509 alone %v", ours, bare)
	}
}
