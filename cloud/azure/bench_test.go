package azure

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// BenchmarkVerify compares a verification with the bare operations that it cannot do without
// (the certificate's parsing, four signatures and the JSON). Another library's verifier is
// measured in test/clouds.
func BenchmarkVerify(b *testing.B) {
	bench := testBench(b)
	v := newVerifier(b, bench.config())
	der := testkit.Must(bench.good().marshal())
	b.Run("azure", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := v.Verify(context.Background(), der, testTime); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		parts, err := readSignedData(der)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			leaf, err := x509.ParseCertificate(parts.certificate)
			if err != nil {
				b.Fatal(err)
			}
			path := []*x509.Certificate{leaf, bench.issuing.Certificate, bench.cross.Certificate, bench.root.Certificate}
			for n, c := range path[:3] {
				if err := path[n+1].CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature); err != nil {
					b.Fatal(err)
				}
			}
			digest := sha256.Sum256(parts.content)
			if err := rsa.VerifyPKCS1v15(leaf.PublicKey.(*rsa.PublicKey), crypto.SHA256, digest[:], parts.signature); err != nil {
				b.Fatal(err)
			}
			var content jsonContent
			if err := json.Unmarshal(parts.content, &content); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A document that is for another machine or challenge is read alone.
func BenchmarkParse(b *testing.B) {
	der := testkit.Must(testBench(b).good().marshal())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseInsecure(der); err != nil {
			b.Fatal(err)
		}
	}
}

func TestParseAllocations(t *testing.T) {
	der := testkit.Must(testBench(t).good().marshal())
	if n := testing.AllocsPerRun(100, func() {
		if _, err := parseInsecure(der); err != nil {
			t.Error(err)
		}
	}); n > 40 {
		t.Errorf("%v allocations", n)
	}
}
