package statement

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// benchmarkCases are statements over a P-256 key by an RSA and by an ECDSA
// attestation key.
func benchmarkCases(b testing.TB) map[string]*forger {
	return map[string]*forger{
		"RSASSA":     newForger(b, tpmlab.RSA2048(), schemeRSASSA),
		"ECDSA P256": newForger(b, tpmlab.P256(), schemeECDSA),
	}
}

// BenchmarkVerifyCertify is the whole function. Its time less that of
// BenchmarkBareSignature is what reading and checking cost.
func BenchmarkVerifyCertify(b *testing.B) {
	for name, ak := range benchmarkCases(b) {
		f := goodForgery(b, ak, tpmlab.P256b().Public())
		e := f.evidence(b)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := VerifyCertify(e, f.options); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkBareSignature is the public-key operation alone, as a caller of the
// standard library would do it.
func BenchmarkBareSignature(b *testing.B) {
	for name, ak := range benchmarkCases(b) {
		f := goodForgery(b, ak, tpmlab.P256b().Public())
		e := f.evidence(b)
		v, err := ParseSignature(e.Signature)
		testkit.NoError(b, err)
		digest := tpmwire.AppendDigest(nil, crypto.SHA256, e.Attest)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			switch k := ak.private.Public().(type) {
			case *rsa.PublicKey:
				for b.Loop() {
					if rsa.VerifyPKCS1v15(k, crypto.SHA256, digest, v.RSA) != nil {
						b.Fatal()
					}
				}
			case *ecdsa.PublicKey:
				der, err := v.MarshalECDSA()
				testkit.NoError(b, err)
				for b.Loop() {
					if !ecdsa.VerifyASN1(k, digest, der) {
						b.Fatal()
					}
				}
			}
		})
	}
}

// BenchmarkStatementChecks is all but the signature: parsing and every check.
func BenchmarkStatementChecks(b *testing.B) {
	for name, ak := range benchmarkCases(b) {
		f := goodForgery(b, ak, tpmlab.P256b().Public())
		e := f.evidence(b)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				testkit.NoError(b, checksAlone(e, &f.options, ak.private.Public()))
			}
		})
	}
}

func checksAlone(e *CertifyEvidence, o *CertifyOptions, akKey crypto.PublicKey) error {
	in := CertifyInput{AKKey: akKey, Options: CertifyOptions{Key: o.Key, QualifyingData: o.QualifyingData}}
	if err := in.Parse(e, o.AK.public); err != nil {
		return err
	}
	return in.CheckBeforeSignature()
}

// BenchmarkGoTPMUnmarshal is go-tpm's decoder over the same four structures.
func BenchmarkGoTPMUnmarshal(b *testing.B) {
	f := goodForgery(b, newForger(b, tpmlab.P256(), schemeECDSA), tpmlab.P256b().Public())
	e := f.evidence(b)
	b.ReportAllocs()
	for b.Loop() {
		_, err1 := tpm2.Unmarshal[tpm2.TPMSAttest](e.Attest)
		_, err2 := tpm2.Unmarshal[tpm2.TPMTSignature](e.Signature)
		_, err3 := tpm2.Unmarshal[tpm2.TPMTPublic](e.Public)
		_, err4 := tpm2.Unmarshal[tpm2.TPMTPublic](f.options.AK.public)
		if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
			b.Fatal()
		}
	}
}

// TestStatementAllocations bounds what reading and checking allocate, and parsing
// alone: one object for each structure, and the attestation key's Name.
func TestStatementAllocations(t *testing.T) {
	for name, want := range map[string]float64{"RSASSA": 8, "ECDSA P256": 11} {
		ak := benchmarkCases(t)[name]
		f := goodForgery(t, ak, tpmlab.P256b().Public())
		e := f.evidence(t)
		var in CertifyInput
		in.AKKey = ak.private.Public()
		if got := testing.AllocsPerRun(100, func() { _ = in.Parse(e, f.options.AK.public) }); got > 5 {
			t.Errorf("%s: parsing allocates %v objects, want 5", name, got)
		}
		if got := testing.AllocsPerRun(100, func() { _ = checksAlone(e, &f.options, in.AKKey) }); got > want {
			t.Errorf("%s: parsing and checks allocate %v objects, want at most %v", name, got, want)
		}
		a, err := ParseAttestation(e.Attest)
		testkit.NoError(t, err)
		if got := testing.AllocsPerRun(100, func() { _ = f.public.HasName(a.Certified.Name) }); got != 0 {
			t.Errorf("%s: HasName allocates %v objects", name, got)
		}
	}
}
