package statement

import (
	"bytes"
	"crypto/elliptic"
	"errors"
	"math/big"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestVerifyCertifyOptionsAllow(t *testing.T) {
	otherKey := tpmlab.P256b().Public()
	for _, row := range []struct {
		name    string
		without refusal.Check
		change  func(*testing.T, *forgery)
		allow   func(*CertifyOptions)
	}{
		{"decryption key", checkKeyAttributes, recertify(testResidentAttributes&^AttributeSign | AttributeDecrypt),
			func(o *CertifyOptions) { o.AllowDecryptionKey = true }},
		{"restricted key", checkKeyAttributes, recertify(testAKAttributes), func(o *CertifyOptions) { o.AllowRestrictedKey = true }},
		{"SHA-1 name", checkNameAlgorithm, func(t *testing.T, f *forgery) {
			f.certify(changed(t, f.public, func(p *Public) { p.NameAlg = tpm2.TPMAlgSHA1 }))
			f.useAK(changed(t, f.ak.public, func(p *Public) { p.NameAlg = tpm2.TPMAlgSHA1 }))
		}, func(o *CertifyOptions) { o.InsecureAllowSHA1Name = true }},
		{"SHA-1 signature", CheckSignatureHash, func(t *testing.T, f *forgery) {
			f.scheme.Hash = tpm2.TPMAlgSHA1
			f.useAK(changed(t, f.ak.public, func(p *Public) { p.Scheme.Hash = tpm2.TPMAlgSHA1 }))
		}, func(o *CertifyOptions) { o.InsecureAllowSHA1Signature = true }},
		{"any key", message.CheckKeyMismatch, func(_ *testing.T, f *forgery) { f.options.Key = tpmlab.P384().Public() },
			func(o *CertifyOptions) { o.Key, o.InsecureAllowAnyKey = nil, true }},
		{"any qualifying data", message.CheckQualifyingData, func(_ *testing.T, f *forgery) { f.attest.ExtraData = []byte("other") },
			func(o *CertifyOptions) { o.QualifyingData, o.InsecureAllowAnyQualifyingData = nil, true }},
		{"empty qualifying data", message.CheckQualifyingData, func(_ *testing.T, f *forgery) { f.attest.ExtraData = nil },
			func(o *CertifyOptions) { o.QualifyingData, o.InsecureEmptyQualifyingData = nil, true }},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := goodForgery(t, newForger(t, tpmlab.RSA2048(), schemeRSASSA), otherKey)
			row.change(t, f)
			f.verify(t, row.without)
			row.allow(&f.options)
			f.verify(t, "")
		})
	}
}

func TestCertifyOptionsRefuse(t *testing.T) {
	ak := newForger(t, tpmlab.P256(), schemeECDSA)
	f := goodForgery(t, ak, tpmlab.P256b().Public())
	e := f.evidence(t)
	for name, change := range map[string]func(*CertifyOptions){
		"zero":                  func(o *CertifyOptions) { *o = CertifyOptions{} },
		"no attestation key":    func(o *CertifyOptions) { o.AK = AK{} },
		"nil qualifying data":   func(o *CertifyOptions) { o.QualifyingData = nil },
		"empty qualifying data": func(o *CertifyOptions) { o.QualifyingData = []byte{} },
		"empty and some data":   func(o *CertifyOptions) { o.InsecureEmptyQualifyingData = true },
		"empty and any data": func(o *CertifyOptions) {
			o.QualifyingData, o.InsecureEmptyQualifyingData, o.InsecureAllowAnyQualifyingData = nil, true, true
		},
		"a credential's AK without its area": func(o *CertifyOptions) { o.AK = AKFromCredential(nil) },
		"an issuer's AK without its key":     func(o *CertifyOptions) { o.AK = AKFromIssuer(nil, o.AK.public) },
		"the sender's AK without either":     func(o *CertifyOptions) { o.AK = InsecureAKFromSender(nil, []byte{}) },
		"residency by the sender's own AK":   func(o *CertifyOptions) { o.AK, o.RequireTPMResident = InsecureAKFromSender(nil, o.AK.public), true },
		"residency by the sender's own AK key": func(o *CertifyOptions) {
			o.AK, o.RequireTPMResident = InsecureAKFromSender(ak.private.Public(), nil), true
		},
		"any and some data":       func(o *CertifyOptions) { o.InsecureAllowAnyQualifyingData = true },
		"no expected key":         func(o *CertifyOptions) { o.Key = nil },
		"any and an expected key": func(o *CertifyOptions) { o.InsecureAllowAnyKey = true },
	} {
		t.Run(name, func(t *testing.T) {
			o := f.options
			change(&o)
			_, err := VerifyCertify(e, o)
			tpmlab.ExpectCheck(t, err, checkCertifyOptions)
		})
	}
	_, err := VerifyCertify(nil, f.options)
	tpmlab.ExpectCheck(t, err, checkCertifyOptions)
}

// Who compares the qualifying data by himself decides about it alone.
func TestCovers(t *testing.T) {
	f := goodForgery(t, newForger(t, tpmlab.P256(), schemeECDSA), tpmlab.P256b().Public())
	e := f.evidence(t)
	refusesAll := errors.New("none of these data")
	for name, want := range map[string]error{"accepted": nil, "refused": refusesAll} {
		t.Run(name, func(t *testing.T) {
			in := CertifyInput{AKKey: f.options.AK.key, Options: f.options, Covers: func(data []byte) error {
				if !bytes.Equal(data, f.options.QualifyingData) {
					t.Errorf("got %x", data)
				}
				return want
			}}
			in.Options.QualifyingData = []byte("other data")
			testkit.NoError(t, in.Parse(e, f.options.AK.public))
			if err := in.CheckBeforeSignature(); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
}

// TestEveryBit changes every bit of the statement, the signature and the public area
// of good evidence: none may be accepted.
func TestEveryBit(t *testing.T) {
	f := goodForgery(t, newForger(t, tpmlab.P256(), schemeECDSA), tpmlab.P256b().Public())
	good := f.evidence(t)
	for part, of := range map[string]func(*CertifyEvidence) *[]byte{
		"statement":   func(e *CertifyEvidence) *[]byte { return &e.Attest },
		"signature":   func(e *CertifyEvidence) *[]byte { return &e.Signature },
		"public area": func(e *CertifyEvidence) *[]byte { return &e.Public },
	} {
		t.Run(part, func(t *testing.T) {
			for i := range len(*of(good)) * 8 {
				e := *good
				b := bytes.Clone(*of(good))
				b[i/8] ^= 1 << (i % 8)
				*of(&e) = b
				if _, err := VerifyCertify(&e, f.options); err == nil {
					t.Errorf("%s: bit %d of byte %d does not count", part, i%8, i/8)
				}
			}
		})
	}
}

// TestHighS accepts both halves of the range of s: TPMs do not normalize it.
func TestHighS(t *testing.T) {
	f := goodForgery(t, newForger(t, tpmlab.P256(), schemeECDSA), tpmlab.P256b().Public())
	f.signature = func(v *Signature) {
		v.S = new(big.Int).Sub(elliptic.P256().Params().N, new(big.Int).SetBytes(v.S)).Bytes()
	}
	f.verify(t, "")
	f.signature = nil
	f.verify(t, "")
}
