package statement

import (
	"bytes"
	"crypto/sha256"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

// A verification costs its public-key operation and the digest of the values, and
// little else. The comparison is with the bare signature check.
func BenchmarkVerifyQuote(b *testing.B) {
	for name, ak := range benchmarkCases(b) {
		f := goodQuoteForgery(b, ak)
		e := f.evidence(b)
		sig, err := ParseSignature(e.Signature)
		testkit.NoError(b, err)
		b.Run(name+"/VerifyQuote", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := VerifyQuote(e, f.options); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/signature", func(b *testing.B) {
			b.ReportAllocs()
			key := ak.private.Public()
			for b.Loop() {
				testkit.NoError(b, sig.verify(key, e.Attest))
			}
		})
	}
}

// BenchmarkVerifyQuoteByTurns gives what VerifyQuote costs as a multiple of the bare
// signature check and the digest of the values.
func BenchmarkVerifyQuoteByTurns(b *testing.B) {
	for name, ak := range benchmarkCases(b) {
		f := goodQuoteForgery(b, ak)
		e := f.evidence(b)
		sig, err := ParseSignature(e.Signature)
		testkit.NoError(b, err)
		key := ak.private.Public()
		b.Run(name, func(b *testing.B) {
			tpmlab.ByTurns(b, func() {}, []string{"x-ops"}, func() {
				if _, err := VerifyQuote(e, f.options); err != nil {
					b.Fatal(err)
				}
			}, func() {
				h := sha256.New()
				for i := range e.PCRs {
					h.Write(e.PCRs[i].Value)
				}
				if err := sig.verify(key, e.Attest); err != nil || !bytes.Equal(h.Sum(nil), f.attest.Quote.PCRDigest) {
					b.Fatal("a bad quote", err)
				}
			})
		})
	}
}

func BenchmarkParseQuote(b *testing.B) {
	der, err := MarshalQuote(goodQuoteForgery(b, newForger(b, tpmlab.P256(), schemeECDSA)).evidence(b))
	testkit.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseQuote(der); err != nil {
			b.Fatal(err)
		}
	}
}

// A quote costs a handful of allocations in addition to the signature's, and no more with more
// PCRs.
func TestQuoteAllocations(t *testing.T) {
	f := goodQuoteForgery(t, newForger(t, tpmlab.P256(), schemeECDSA))
	e := f.evidence(t)
	der, err := MarshalQuote(e)
	testkit.NoError(t, err)
	for name, c := range map[string]struct {
		limit float64
		run   func() error
	}{
		"parse": {3, func() error {
			_, err := ParseQuote(der)
			return err
		}},
		"checks": {12, func() error {
			in := QuoteInput{CertifyInput: CertifyInput{
				AK: f.ak.public, AKName: f.ak.public.Name(), AKKey: f.ak.private.Public(), Options: CertifyOptions{QualifyingData: testQualifyingData},
			}}
			if err := in.ParseQuote(e); err != nil {
				return err
			}
			return in.CheckBeforeSignature()
		}},
	} {
		got := testing.AllocsPerRun(100, func() {
			testkit.NoError(t, c.run())
		})
		if got > c.limit {
			t.Errorf("%s: %v allocations, want at most %v", name, got, c.limit)
		}
	}
}
