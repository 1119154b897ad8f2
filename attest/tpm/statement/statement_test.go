package statement

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/binary"
	"math/big"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestVerifyCertifyAccepts(t *testing.T) {
	keys := map[string]crypto.PublicKey{
		"P256": tpmlab.P256b().Public(), "P384": tpmlab.P384().Public(), "P521": tpmlab.P521().Public(),
		"RSA": tpmlab.RSA2048b().Public(),
	}
	for akName, ak := range forgers(t) {
		for keyName, key := range keys {
			if akName == "ECDSA P384" && keyName == "P384" || akName == "ECDSA P521" && keyName == "P521" {
				continue // the same key
			}
			t.Run(akName+" certifies "+keyName, func(t *testing.T) {
				f := goodForgery(t, ak, key)
				got := f.verify(t, "")
				if !got.TPMResident || !got.ClockTrusted || got.SignatureScheme != ak.public.Scheme {
					t.Errorf("resident %v, clock trusted %v, scheme %v", got.TPMResident, got.ClockTrusted, got.SignatureScheme)
				}
				if !got.Public.SameKey(key) || !bytes.Equal(got.AKPublic.Raw, ak.public.Raw) || got.Attestation.ResetCount != 1 {
					t.Errorf("got %+v", got)
				}
				f.options.RequireTPMResident = true
				f.verify(t, "")
			})
		}
	}
}

func TestVerifyCertifyWithKeyAlone(t *testing.T) {
	for name, ak := range forgers(t) {
		t.Run(name, func(t *testing.T) {
			f := goodForgery(t, ak, tpmlab.P256b().Public())
			f.options.AK = AKFromIssuer(ak.private.Public(), nil)
			got := f.verify(t, "")
			if got.AKPublic != nil || got.ClockTrusted {
				t.Errorf("an attestation key without public area: got %+v", got)
			}
			f.options.AK.public = ak.public.Raw // both, of one key
			f.verify(t, "")
			f.options.AK.key = tpmlab.P256b().Public()
			f.options.InsecureAllowAnyKey, f.options.Key = true, nil
			f.certify(publicArea(t, tpmlab.RSA2048b().Public(), testResidentAttributes, noScheme))
			f.verify(t, CheckAKMismatch)
		})
	}
}

func TestVerifyCertifySoftwareKey(t *testing.T) {
	ak := newForger(t, tpmlab.P256(), schemeECDSA)
	key := tpmlab.P256b().Public()
	for _, attributes := range []Attributes{testSoftwareAttributes, AttributeSign, testSoftwareAttributes | AttributeSensitiveDataOrigin} {
		t.Run(attributes.String(), func(t *testing.T) {
			f := goodForgery(t, ak, key)
			f.certifyExternal(publicArea(t, key, attributes, noScheme))
			if got := f.verify(t, ""); got.TPMResident {
				t.Error("a software key is called TPM-resident")
			}
			f.options.RequireTPMResident = true
			f.verify(t, checkResidency)
			// With a parent, but free to leave: imported, or made for duplication.
			f.certify(f.public)
			f.verify(t, checkResidency)
			f.options.RequireTPMResident = false
			if got := f.verify(t, ""); got.TPMResident {
				t.Error("a key without fixedTPM is called TPM-resident")
			}
		})
	}
}

func TestVerifyCertifyClock(t *testing.T) {
	ak := newForger(t, tpmlab.P256(), schemeECDSA)
	f := goodForgery(t, ak, tpmlab.P256b().Public())
	for _, h := range []tpm2.TPMHandle{tpm2.TPMRHOwner, tpm2.TPMRHPlatform, tpm2.TPMRHNull} {
		f.attest.QualifiedSigner = QualifiedNameOfPrimary(h, ak.public.Name())
		if got := f.verify(t, ""); got.ClockTrusted {
			t.Errorf("hierarchy %v: clock trusted", h)
		}
	}
	ek := QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, f.public.Name())
	f.attest.QualifiedSigner = QualifiedName(ek, ak.public.Name())
	if got := f.verify(t, ""); got.ClockTrusted {
		t.Error("child of an EK that is not known: clock trusted")
	}
}

// TestStatementAttacks has one row for each attack on a statement. Every signature
// is good; the row's change alone is the reason.
func TestStatementAttacks(t *testing.T) {
	otherKey := tpmlab.P256b().Public()
	rsaAK := func(t *testing.T) *forger { return newForger(t, tpmlab.RSA2048(), schemeRSASSA) }
	for _, row := range []struct {
		name   string
		want   refusal.Check
		ak     func(*testing.T) *forger
		change func(*testing.T, *forgery)
	}{
		{"forged magic", CheckMagic, nil, func(_ *testing.T, f *forgery) {
			f.patch = func(b []byte) []byte { b[3] ^= 1; return b }
		}},
		{"quote", checkStatementType, nil, func(_ *testing.T, f *forgery) {
			f.attest.Type, f.attest.Certified = tpm2.TPMSTAttestQuote, nil
			f.attest.Quote = &QuoteInfo{Selections: []PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{1, 0, 0}}}, PCRDigest: make([]byte, 32)}
		}},
		{"creation", checkStatementType, nil, changeType(tpm2.TPMSTAttestCreation)},
		{"time", checkStatementType, nil, changeType(tpm2.TPMSTAttestTime)},
		{"NV", checkStatementType, nil, changeType(tpm2.TPMSTAttestNV)},
		{"session audit", checkStatementType, nil, changeType(tpm2.TPMSTAttestSessionAudit)},
		{"command audit", checkStatementType, nil, changeType(tpm2.TPMSTAttestCommandAudit)},
		{"bytes after the statement", checkAttestEncoding, nil, func(_ *testing.T, f *forgery) {
			f.patch = func(b []byte) []byte { return append(b, 0) }
		}},
		{"Name of another key", checkCertifiedName, nil, func(t *testing.T, f *forgery) {
			other := publicArea(t, tpmlab.P384().Public(), testResidentAttributes, noScheme)
			f.attest.Certified.Name = other.Name()
		}},
		{"empty Name", checkCertifiedName, nil, func(_ *testing.T, f *forgery) { f.attest.Certified.Name = nil }},
		{"Name with its algorithm alone", checkCertifiedName, nil, func(_ *testing.T, f *forgery) {
			f.attest.Certified.Name = f.attest.Certified.Name[:2]
		}},
		{"public area swapped", checkCertifiedName, nil, func(t *testing.T, f *forgery) {
			f.public = publicArea(t, tpmlab.P384().Public(), testResidentAttributes, noScheme)
		}},
		{"attributes changed in the public area", checkCertifiedName, nil, func(t *testing.T, f *forgery) {
			f.public = changed(t, f.public, func(p *Public) { p.Attributes &^= AttributeUserWithAuth })
		}},
		{"another key requested", message.CheckKeyMismatch, nil, func(_ *testing.T, f *forgery) { f.options.Key = tpmlab.P384().Public() }},
		{"a key of another kind requested", message.CheckKeyMismatch, nil, func(_ *testing.T, f *forgery) { f.options.Key = tpmlab.RSA2048().Public() }},
		{"the attestation key certified", checkAKIsCertifiedKey, nil, func(t *testing.T, f *forgery) {
			f.certify(f.ak.public)
			f.options.Key, f.options.AllowRestrictedKey = f.ak.private.Public(), true
		}},
		{"the attestation key certified under other attributes", checkAKIsCertifiedKey, nil, func(t *testing.T, f *forgery) {
			f.certifyExternal(publicArea(t, f.ak.private.Public(), testSoftwareAttributes, noScheme))
			f.options.Key = f.ak.private.Public()
		}},
		{"external key claims fixedTPM", checkResidencyClaim, nil, func(_ *testing.T, f *forgery) { f.certifyExternal(f.public) }},
		{"external key claims fixedParent", checkResidencyClaim, nil, func(t *testing.T, f *forgery) {
			f.certifyExternal(publicArea(t, otherKey, testSoftwareAttributes|AttributeFixedParent, noScheme))
		}},
		{"fixedTPM without fixedParent", checkKeyAttributes, nil, recertify(testResidentAttributes &^ AttributeFixedParent)},
		{"fixedTPM with encryptedDuplication", checkKeyAttributes, nil, recertify(testResidentAttributes | AttributeEncryptedDuplication)},
		{"neither sign nor decrypt", checkKeyAttributes, nil, recertify(testResidentAttributes &^ AttributeSign)},
		{"decrypt alone", checkKeyAttributes, nil, recertify(testResidentAttributes&^AttributeSign | AttributeDecrypt)},
		{"restricted", checkKeyAttributes, nil, recertify(testAKAttributes)},
		{"x509sign", checkKeyAttributes, nil, recertify(testResidentAttributes | AttributeX509Sign)},
		{"SHA-1 name", checkNameAlgorithm, nil, func(t *testing.T, f *forgery) {
			f.certify(changed(t, f.public, func(p *Public) { p.NameAlg = tpm2.TPMAlgSHA1 }))
		}},
		{"SHA-1 name of the attestation key", checkNameAlgorithm, nil, func(t *testing.T, f *forgery) {
			f.useAK(changed(t, f.ak.public, func(p *Public) { p.NameAlg = tpm2.TPMAlgSHA1 }))
		}},
		{"SHA-1 name of an attestation key known by its key", checkNameAlgorithm, nil, func(t *testing.T, f *forgery) {
			f.useAK(changed(t, f.ak.public, func(p *Public) { p.NameAlg = tpm2.TPMAlgSHA1 }))
			f.options.AK = AKFromIssuer(f.ak.private.Public(), nil)
		}},
		{"Qualified Name under another algorithm", checkQualifiedName, nil, func(_ *testing.T, f *forgery) {
			f.attest.Certified.QualifiedName = QualifiedNameOfPrimary(tpm2.TPMRHOwner, appendName(nil, tpm2.TPMAlgSHA384, f.public.Raw))
		}},
		{"no Qualified Name", checkQualifiedName, nil, func(_ *testing.T, f *forgery) { f.attest.Certified.QualifiedName = nil }},
		{"no qualified signer", checkQualifiedSigner, nil, func(_ *testing.T, f *forgery) { f.attest.QualifiedSigner = nil }},
		{"qualified signer is a handle", checkQualifiedSigner, nil, func(_ *testing.T, f *forgery) {
			f.attest.QualifiedSigner = binary.BigEndian.AppendUint32(nil, uint32(tpm2.TPMRHEndorsement))
		}},
		{"qualified signer under another algorithm", checkQualifiedSigner, nil, func(_ *testing.T, f *forgery) {
			f.attest.QualifiedSigner = QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, appendName(nil, tpm2.TPMAlgSHA384, f.ak.public.Raw))
		}},
		{"attestation key loaded from outside", checkQualifiedSigner, nil, func(_ *testing.T, f *forgery) {
			f.attest.QualifiedSigner = f.ak.public.Name()
		}},
		{"weak RSA", checkWeakKey, nil, func(t *testing.T, f *forgery) {
			f.certify(publicArea(t, tpmlab.RSA1024().Public(), testResidentAttributes, noScheme))
			f.options.Key = tpmlab.RSA1024().Public()
		}},
		{"weak RSA that says 2048", checkPublicEncoding, nil, func(t *testing.T, f *forgery) {
			weak := publicArea(t, tpmlab.RSA1024().Public(), testResidentAttributes, noScheme)
			f.certify(changed(t, weak, func(p *Public) { p.KeyBits = 2048 }))
			f.options.Key = tpmlab.RSA1024().Public()
		}},
		{"RSA exponent 3", checkWeakKey, nil, func(t *testing.T, f *forgery) {
			pub := &rsa.PublicKey{N: tpmlab.RSA2048b().N, E: 3}
			f.certify(publicArea(t, pub, testResidentAttributes, noScheme))
			f.options.Key = pub
		}},
		{"weak curve", checkWeakKey, nil, func(_ *testing.T, f *forgery) {
			f.public = &Public{Raw: bytes.Clone(f.public.Raw)}
			copy(f.public.Raw[2+2+4+2+2+2:], []byte{0x00, 0x01}) // NIST P-192
		}},
		{"weak attestation key", checkWeakKey, func(t *testing.T) *forger {
			return newForger(t, tpmlab.RSA1024(), schemeRSASSA)
		}, func(*testing.T, *forgery) {}},
		{"point off the curve", CheckPoint, nil, func(t *testing.T, f *forgery) {
			f.certify(changed(t, f.public, func(p *Public) { p.Y = append([]byte{p.Y[0] ^ 1}, p.Y[1:]...) }))
		}},
		{"attestation key off the curve", CheckPoint, nil, func(t *testing.T, f *forgery) {
			f.useAK(changed(t, f.ak.public, func(p *Public) { p.Y = append([]byte{p.Y[0] ^ 1}, p.Y[1:]...) }))
		}},
		{"attestation key with NULL scheme", checkAKScheme, nil, rescheme(noScheme)},
		{"attestation key with ECDAA", checkAKScheme, nil, rescheme(KeyScheme{Alg: tpm2.TPMAlgECDAA, Hash: tpm2.TPMAlgSHA256, Count: 1})},
		{"attestation key with a symmetric scheme", checkAKScheme, nil, func(t *testing.T, f *forgery) {
			f.useAK(changed(t, f.ak.public, func(p *Public) {
				p.Symmetric = SymmetricScheme{Alg: tpm2.TPMAlgAES, KeyBits: 128, Mode: tpm2.TPMAlgCFB}
			}))
		}},
		{"attestation key not restricted", checkAKAttributes, nil, reattribute(testAKAttributes &^ AttributeRestricted)},
		{"attestation key can decrypt", checkAKAttributes, nil, reattribute(testAKAttributes | AttributeDecrypt)},
		{"attestation key cannot sign", checkAKAttributes, nil, reattribute(testAKAttributes &^ AttributeSign)},
		{"attestation key not fixed to its TPM", checkAKAttributes, nil, reattribute(testAKAttributes &^ AttributeFixedTPM)},
		{"attestation key not fixed to its parent", checkAKAttributes, nil, reattribute(testAKAttributes &^ AttributeFixedParent)},
		{"attestation key from outside", checkAKAttributes, nil, reattribute(testAKAttributes &^ AttributeSensitiveDataOrigin)},
		{"attestation key with x509sign", checkAKAttributes, nil, reattribute(testAKAttributes | AttributeX509Sign)},
		{"attestation key with encryptedDuplication", checkAKAttributes, nil, reattribute(testAKAttributes | AttributeEncryptedDuplication)},
		{"SHA-1 signature, and the key's own", CheckSignatureHash, rsaAK, func(t *testing.T, f *forgery) {
			f.scheme.Hash = tpm2.TPMAlgSHA1
			f.useAK(changed(t, f.ak.public, func(p *Public) { p.Scheme.Hash = tpm2.TPMAlgSHA1 }))
		}},
		{"SHA-1 signature, key alone", CheckSignatureHash, rsaAK, func(_ *testing.T, f *forgery) {
			f.scheme.Hash = tpm2.TPMAlgSHA1
			f.options.AK = AKFromIssuer(f.ak.private.Public(), nil)
		}},
		{"another hash than the key's", checkSignatureScheme, nil, func(_ *testing.T, f *forgery) { f.scheme.Hash = tpm2.TPMAlgSHA384 }},
		{"another scheme than the key's", checkSignatureScheme, rsaAK, func(_ *testing.T, f *forgery) { f.scheme = schemeRSAPSS }},
		{"a scheme for another kind of key", checkSignatureScheme, nil, func(_ *testing.T, f *forgery) {
			f.options.AK = AKFromIssuer(tpmlab.RSA2048().Public(), nil)
		}},
		{"RSA scheme for an ECC key", checkSignatureScheme, rsaAK, func(_ *testing.T, f *forgery) {
			f.options.AK = AKFromIssuer(tpmlab.P256().Public(), nil)
		}},
		{"RSA signature truncated", checkSignatureLength, rsaAK, func(_ *testing.T, f *forgery) {
			f.signature = func(v *Signature) { v.RSA = v.RSA[:len(v.RSA)-1] }
		}},
		{"RSA signature extended", checkSignatureLength, rsaAK, func(_ *testing.T, f *forgery) {
			f.signature = func(v *Signature) { v.RSA = append([]byte{0}, v.RSA...) }
		}},
		{"RSA signature by another key", checkSignature, rsaAK, func(_ *testing.T, f *forgery) {
			f.ak = &forger{private: tpmlab.RSA2048b(), public: f.ak.public}
		}},
		{"ECDSA signature by another key", checkSignature, nil, func(_ *testing.T, f *forgery) {
			f.ak = &forger{private: tpmlab.P256b(), public: f.ak.public}
		}},
		{"signature over other bytes", checkSignature, nil, func(_ *testing.T, f *forgery) {
			f.after = func(e *CertifyEvidence) { e.Attest[len(e.Attest)-1] ^= 1 }
		}},
		{"signature ends early", checkSignatureEncoding, nil, func(_ *testing.T, f *forgery) {
			f.after = func(e *CertifyEvidence) { e.Signature = e.Signature[:len(e.Signature)-1] }
		}},
		{"bytes after the signature", checkSignatureEncoding, nil, func(_ *testing.T, f *forgery) {
			f.after = func(e *CertifyEvidence) { e.Signature = append(e.Signature, 0) }
		}},
		{"bytes after the public area", checkPublicEncoding, nil, func(_ *testing.T, f *forgery) {
			f.after = func(e *CertifyEvidence) { e.Public = append(bytes.Clone(e.Public), 0) }
		}},
		{"no public area", checkPublicSize, nil, func(_ *testing.T, f *forgery) { f.after = func(e *CertifyEvidence) { e.Public = nil } }},
		{"no signature", checkSignatureSize, nil, func(_ *testing.T, f *forgery) { f.after = func(e *CertifyEvidence) { e.Signature = nil } }},
		{"HMAC signature", checkSignatureScheme, nil, func(_ *testing.T, f *forgery) {
			f.after = func(e *CertifyEvidence) { e.Signature = append([]byte{0, 5, 0, 0xb}, make([]byte, 32)...) }
		}},
		{"r = 0", checkSignatureRange, nil, changeRS(func(v *Signature) { v.R = []byte{0} })},
		{"r empty", checkSignatureRange, nil, changeRS(func(v *Signature) { v.R = nil })},
		{"s = 0", checkSignatureRange, nil, changeRS(func(v *Signature) { v.S = make([]byte, 32) })},
		{"r = order", checkSignatureRange, nil, changeRS(func(v *Signature) { v.R = elliptic.P256().Params().N.Bytes() })},
		{"s = order", checkSignatureRange, nil, changeRS(func(v *Signature) { v.S = elliptic.P256().Params().N.Bytes() })},
		{"s over the order", checkSignatureRange, nil, changeRS(func(v *Signature) { v.S = bytes.Repeat([]byte{0xff}, 32) })},
		{"r = order − 1", checkSignature, nil, changeRS(func(v *Signature) {
			v.R = new(big.Int).Sub(elliptic.P256().Params().N, big.NewInt(1)).Bytes()
		})},
		{"r + order, a byte wider", checkSignatureLength, nil, changeRS(func(v *Signature) {
			v.R = new(big.Int).Add(new(big.Int).SetBytes(v.R), elliptic.P256().Params().N).FillBytes(make([]byte, 33))
		})},
		{"qualifying data absent", message.CheckQualifyingData, nil, func(_ *testing.T, f *forgery) { f.attest.ExtraData = nil }},
		{"qualifying data a prefix", message.CheckQualifyingData, nil, func(_ *testing.T, f *forgery) { f.attest.ExtraData = testQualifyingData[:3] }},
		{"qualifying data with more after it", message.CheckQualifyingData, nil, func(_ *testing.T, f *forgery) {
			f.attest.ExtraData = append(bytes.Clone(testQualifyingData), 0)
		}},
		{"qualifying data other", message.CheckQualifyingData, nil, func(_ *testing.T, f *forgery) { f.attest.ExtraData = []byte{0, 0xff, 0x55, 0xab} }},
		{"none wanted, some given", message.CheckQualifyingData, nil, func(_ *testing.T, f *forgery) {
			f.options.QualifyingData, f.options.InsecureEmptyQualifyingData = nil, true
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			ak := newForger(t, tpmlab.P256(), schemeECDSA)
			if row.ak != nil {
				ak = row.ak(t)
			}
			f := goodForgery(t, ak, otherKey)
			if row.want != checkWeakKey {
				f.verify(t, "")
			}
			row.change(t, f)
			if got := f.verify(t, row.want); got != nil {
				t.Errorf("a result with the error: %+v", got)
			}
		})
	}
}

func changeType(st tpm2.TPMST) func(*testing.T, *forgery) {
	return func(_ *testing.T, f *forgery) {
		f.patch = func(b []byte) []byte { b[4], b[5] = byte(st>>8), byte(st); return b }
	}
}

func changeRS(change func(*Signature)) func(*testing.T, *forgery) {
	return func(_ *testing.T, f *forgery) { f.signature = change }
}

// recertify certifies the same key under other attributes.
func recertify(a Attributes) func(*testing.T, *forgery) {
	return func(t *testing.T, f *forgery) { f.certify(changed(t, f.public, func(p *Public) { p.Attributes = a })) }
}

// reattribute gives the attestation key other attributes.
func reattribute(a Attributes) func(*testing.T, *forgery) {
	return func(t *testing.T, f *forgery) { f.useAK(changed(t, f.ak.public, func(p *Public) { p.Attributes = a })) }
}

// rescheme gives the attestation key another scheme; it signs with the old one.
func rescheme(s KeyScheme) func(*testing.T, *forgery) {
	return func(t *testing.T, f *forgery) { f.useAK(changed(t, f.ak.public, func(p *Public) { p.Scheme = s })) }
}
