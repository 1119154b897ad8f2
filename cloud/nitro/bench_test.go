package nitro

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha512"
	"crypto/x509"
	"math/big"
	"testing"
)

// BenchmarkVerify compares a verification with the bare operations that it cannot do without
// (four certificates' parsing and five signatures), and with the same by two other
// libraries, as plainly as can be.
func BenchmarkVerify(b *testing.B) {
	bench := newBench()
	v, data := bench.verifier(b), bench.good().marshal()
	b.Run("nitro", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := v.Verify(context.Background(), data, testTime); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		d, err := parseInsecure(data)
		if err != nil {
			b.Fatal(err)
		}
		signed := d.envelope.toBeSigned()
		for b.Loop() {
			path := []*x509.Certificate{bench.root.Certificate}
			for _, der := range append(d.cabundle[1:len(d.cabundle):len(d.cabundle)], d.signer) {
				c, err := x509.ParseCertificate(der)
				if err != nil {
					b.Fatal(err)
				}
				if err := path[len(path)-1].CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature); err != nil {
					b.Fatal(err)
				}
				path = append(path, c)
			}
			digest := sha512.Sum384(signed)
			r, s := new(big.Int).SetBytes(d.envelope.signature[:48]), new(big.Int).SetBytes(d.envelope.signature[48:])
			if !ecdsa.Verify(path[len(path)-1].PublicKey.(*ecdsa.PublicKey), digest[:], r, s) {
				b.Fatal("signature")
			}
		}
	})
}

// A document that is for another machine or challenge is read alone.
func BenchmarkParse(b *testing.B) {
	data := newBench().good().marshal()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseInsecure(data); err != nil {
			b.Fatal(err)
		}
	}
}

func TestParseAllocations(t *testing.T) {
	data := newBench().good().marshal()
	if n := testing.AllocsPerRun(100, func() {
		if _, err := parseInsecure(data); err != nil {
			t.Error(err)
		}
	}); n > 120 {
		t.Errorf("%v allocations", n)
	}
}
