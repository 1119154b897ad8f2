package main

import (
	"bytes"
	"crypto"
	"math/big"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// requestFor is a join whose request has another key.
func (w *world) requestFor(key crypto.Signer) join {
	request := w.newPKCS10()
	request.key = key
	return join{request: request.der(), key: key}
}

// akWith gives the AK's public area other attributes.
func akWith(attributes tpm.Attributes) func(*world, *forgery) {
	return func(_ *world, f *forgery) {
		f.useAK(changed(f.ak.public, func(p *tpm.Public) { p.Attributes = attributes }))
	}
}

// akAttacks are about the public area of the AK that signs. Its key stays the one in
// its certificate.
func (w *world) akAttacks() []attack {
	return []attack{
		{name: "ak-not-restricted", what: "The AK is not restricted, so it signs anything.", expect: "ak-attributes", change: akWith(akAttributes &^ tpm.AttributeRestricted)},
		{name: "ak-can-decrypt", what: "The AK can decrypt too.", expect: "ak-attributes", change: akWith(akAttributes | tpm.AttributeDecrypt)},
		{name: "ak-cannot-sign", what: "The AK's public area says that it does not sign.", expect: "ak-attributes", change: akWith(akAttributes &^ tpm.AttributeSign)},
		{name: "ak-not-fixed-tpm", what: "The AK may leave its TPM.", expect: "ak-attributes", change: akWith(akAttributes &^ tpm.AttributeFixedTPM)},
		{name: "ak-not-fixed-parent", what: "The AK may be given another parent.", expect: "ak-attributes", change: akWith(akAttributes &^ tpm.AttributeFixedParent)},
		{name: "ak-made-outside", what: "The AK's private part was not made in a TPM (sensitiveDataOrigin clear).", expect: "ak-attributes", change: akWith(akAttributes &^ tpm.AttributeSensitiveDataOrigin)},
		{name: "ak-x509sign", what: "The AK signs certificates (x509sign).", expect: "ak-attributes", change: akWith(akAttributes | tpm.AttributeX509Sign)},
		{name: "ak-encrypted-duplication", what: "The AK has encryptedDuplication with fixedTPM, which no TPM allows.", expect: "ak-attributes", change: akWith(akAttributes | tpm.AttributeEncryptedDuplication)},
		{name: "ak-null-scheme", what: "The AK has no scheme of its own: a restricted key without one cannot exist.", expect: "ak-scheme",
			change: func(_ *world, f *forgery) {
				f.useAK(changed(f.ak.public, func(p *tpm.Public) { p.Scheme = noScheme }))
			}},
		{name: "ak-ecdaa", what: "The AK's scheme is ECDAA, which hides which TPM signed.", expect: "ak-scheme",
			change: func(_ *world, f *forgery) {
				f.useAK(changed(f.ak.public, func(p *tpm.Public) {
					p.Scheme = tpm.KeyScheme{Alg: tpm2.TPMAlgECDAA, Hash: tpm2.TPMAlgSHA256, Count: 1}
				}))
			}},
		{name: "ak-symmetric-scheme", what: "The AK has a storage key's symmetric scheme.", expect: "ak-scheme",
			change: func(_ *world, f *forgery) {
				f.useAK(changed(f.ak.public, func(p *tpm.Public) {
					p.Symmetric = tpm.SymmetricScheme{Alg: tpm2.TPMAlgAES, KeyBits: 128, Mode: tpm2.TPMAlgCFB}
				}))
			}},
		{name: "ak-sha1-name", what: "The AK's Name is a SHA-1 digest.", expect: "name-algorithm",
			change: func(_ *world, f *forgery) {
				f.useAK(changed(f.ak.public, func(p *tpm.Public) { p.NameAlg = tpm2.TPMAlgSHA1 }))
			}},
		{name: "ak-off-the-curve", what: "The AK's public area holds a point that is not on its curve.", expect: "key-point", inAnswer: "ak-mismatch",
			change: func(_ *world, f *forgery) { f.useAK(offCurve(f.ak.public)) }},
		{name: "ak-weak-curve", what: "The AK's public area says curve P-224.", expect: "key-strength",
			change: func(_ *world, f *forgery) { f.akPublic = withCurve(f.akPublic, 16, 2) }},
		{name: "ak-weak-rsa", what: "The AK is RSA with 1024 bits, certified by the right CA.", expect: "key-strength",
			change: func(w *world, f *forgery) { *f = *w.forge(w.newSoftAK(w.rsa1024, schemeRSASSA, "machine-1"), join{}) }},
		{name: "ak-public-with-bytes-behind", what: "A byte stands behind the AK's public area.", expect: "public-encoding",
			change: func(_ *world, f *forgery) { f.akPublic = append(bytes.Clone(f.akPublic), 0) }},
		{name: "ak-loaded-from-outside", what: "The qualified signer is the AK's bare Name: a key that was loaded from outside.", expect: "qualified-signer",
			change: func(_ *world, f *forgery) { f.attest.QualifiedSigner = f.ak.public.Name() }},
		{name: "qualified-signer-absent", what: "The qualified signer is empty, as where a TPM did not sign.", expect: "qualified-signer",
			change: func(_ *world, f *forgery) { f.attest.QualifiedSigner = nil }},
		{name: "qualified-signer-of-another-algorithm", what: "The qualified signer is under SHA-384, the AK's Name under SHA-256.", expect: "qualified-signer",
			change: func(_ *world, f *forgery) { f.attest.QualifiedSigner = append([]byte{0, 0x0c}, make([]byte, 48)...) }},
	}
}

// wholeAnswers are attacks that only the answer of a node shows.
func (w *world) wholeAnswers() {
	add := func(name, what, expect string, f *forgery, env *vector.Environment) {
		w.add(&vector.Vector{Name: name, Class: "statement", Level: vector.LevelVerify, Description: what,
			Expect: expect, Package: vector.PackageAttest, Object: f.answer(w), Environment: env})
	}
	f := w.forge(w.akP256, join{})
	f.akPublic = changed(f.ak.public, func(p *tpm.Public) { p.AuthPolicy = make([]byte, 32) }).Raw
	add("ak-public-area-changed", "The node sends an AK public area of the right key with a policy that the AK does not have: the qualified signer is not that of this area.", "ak-parent", f, nil)

	f = w.forge(w.akP256, join{})
	ek := tpm.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, w.akOther.public.Name())
	f.attest.QualifiedSigner = tpm.QualifiedName(ek, f.ak.public.Name())
	add("ak-below-another-key", "The AK stands below another key, which its issuer's profile does not admit, so nothing binds its attributes.", "ak-parent", f, nil)

	f = w.forge(w.akP256, join{})
	f.attest.QualifiedSigner = tpm.QualifiedNameOfPrimary(tpm2.TPMRHNull, f.ak.public.Name())
	add("ak-in-the-null-hierarchy", "The AK is a primary key of the null hierarchy, which lasts until the next reset.", "ak-parent", f, nil)

	f = w.forge(w.akRSA, join{})
	f.rescheme(tpm.KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA1})
	tolerant := profileTCG()
	tolerant.Name, tolerant.InsecureAllowSHA1Signature = "another issuer", true
	add("sha1-signature-allowed-to-another-issuer", "The statement is signed with SHA-1, which the profile of another issuer allows.", "signature-hash", f,
		&vector.Environment{Issuers: []vector.Issuer{w.set.Environment.Issuers[0], {Roots: [][]byte{w.stranger.Root().Raw}, Profile: tolerant}}})
}

// signatureAttacks are about the signature's value.
func signatureAttacks() []attack {
	rs := func(how func(*tpm.Signature)) func(*world, *forgery) {
		return func(_ *world, f *forgery) { f.signature = how }
	}
	return []attack{
		{name: "signature-bit-flipped", what: "One bit of the signature was changed.", expect: "signature", rsa: true,
			change: rs(func(v *tpm.Signature) { v.RSA[100] ^= 1 })},
		{name: "signature-over-other-bytes", what: "One bit of the statement's clock was changed behind the signature.", expect: "signature",
			change: func(_ *world, f *forgery) {
				f.after = func(e *tpm.CertifyEvidence) {
					e.Attest = bytes.Clone(e.Attest)
					e.Attest[6+2+len(f.attest.QualifiedSigner)+2+len(f.attest.ExtraData)+7] ^= 1
				}
			}},
		{name: "signature-by-another-key", what: "The statement was signed by another AK than the one that is named.", expect: "signature",
			change: func(w *world, f *forgery) {
				f.ak = &softAK{private: w.akOther.private, public: f.ak.public, chain: f.ak.chain}
			}},
		{name: "signature-truncated", what: "The RSA signature lacks its last byte, its size says so.", expect: "signature-length", rsa: true,
			change: rs(func(v *tpm.Signature) { v.RSA = v.RSA[:len(v.RSA)-1] })},
		{name: "signature-extended", what: "The RSA signature has a zero byte in front, its size says so.", expect: "signature-length", rsa: true,
			change: rs(func(v *tpm.Signature) { v.RSA = append([]byte{0}, v.RSA...) })},
		{name: "signature-structure-truncated", what: "The TPMT_SIGNATURE ends before its size does.", expect: "signature-encoding",
			change: func(_ *world, f *forgery) {
				f.after = func(e *tpm.CertifyEvidence) { e.Signature = e.Signature[:len(e.Signature)-1] }
			}},
		{name: "signature-structure-with-bytes-behind", what: "A byte stands behind the TPMT_SIGNATURE.", expect: "signature-encoding",
			change: func(_ *world, f *forgery) {
				f.after = func(e *tpm.CertifyEvidence) { e.Signature = append(e.Signature, 0) }
			}},
		{name: "signature-absent", what: "There is no signature.", expect: "signature-size", alone: true,
			change: func(_ *world, f *forgery) { f.after = func(e *tpm.CertifyEvidence) { e.Signature = nil } }},
		{name: "ecdsa-r-zero", what: "The ECDSA signature has r = 0.", expect: "signature-range", change: rs(func(v *tpm.Signature) { v.R = make([]byte, 32) })},
		{name: "ecdsa-r-empty", what: "The ECDSA signature has an r of no bytes.", expect: "signature-range", change: rs(func(v *tpm.Signature) { v.R = nil })},
		{name: "ecdsa-s-zero", what: "The ECDSA signature has s = 0.", expect: "signature-range", change: rs(func(v *tpm.Signature) { v.S = make([]byte, 32) })},
		{name: "ecdsa-r-is-the-order", what: "The ECDSA signature has r = the order of the curve.", expect: "signature-range", change: rs(func(v *tpm.Signature) { v.R = orderP256(0) })},
		{name: "ecdsa-s-is-the-order", what: "The ECDSA signature has s = the order of the curve.", expect: "signature-range", change: rs(func(v *tpm.Signature) { v.S = orderP256(0) })},
		{name: "ecdsa-s-over-the-order", what: "The ECDSA signature has an s of all ones.", expect: "signature-range",
			change: rs(func(v *tpm.Signature) { v.S = bytes.Repeat([]byte{0xff}, 32) })},
		{name: "ecdsa-r-just-under-the-order", what: "The ECDSA signature has r = the order of the curve less one: in range, and wrong.", expect: "signature",
			change: rs(func(v *tpm.Signature) { v.R = orderP256(-1) })},
		{name: "ecdsa-r-plus-the-order", what: "The order of the curve was added to the signature's r, which makes it a byte wider.", expect: "signature-length",
			change: rs(func(v *tpm.Signature) {
				sum := new(big.Int).Add(new(big.Int).SetBytes(v.R), new(big.Int).SetBytes(orderP256(0)))
				v.R = sum.FillBytes(make([]byte, 33))
			})},
	}
}

// schemeAttacks are about the signature's scheme and hash.
func schemeAttacks() []attack {
	sha1 := tpm.KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA1}
	return []attack{
		{name: "sha1-signature", what: "The AK's own scheme, and the signature, is over SHA-1.", expect: "signature-hash", rsa: true,
			change: func(_ *world, f *forgery) { f.rescheme(sha1) }},
		{name: "signature-with-another-hash", what: "The statement is signed with SHA-384, the AK's own hash is SHA-256.", expect: "signature-scheme",
			change: func(_ *world, f *forgery) { f.scheme.Hash = tpm2.TPMAlgSHA384 }},
		{name: "signature-with-another-scheme", what: "The statement is signed with RSAPSS, the AK's own scheme is RSASSA.", expect: "signature-scheme", rsa: true,
			change: func(_ *world, f *forgery) { f.scheme = schemeRSAPSS }},
		{name: "signature-sha1-for-a-sha256-ak", what: "The statement is signed with SHA-1, the AK's own hash is SHA-256.", expect: "signature-scheme", rsa: true,
			change: func(_ *world, f *forgery) { f.scheme = sha1 }},
		{name: "signature-of-another-kind-of-key", what: "An RSA signature stands behind the statement of an AK on P-256.", expect: "signature-scheme",
			change: func(w *world, f *forgery) {
				f.after = func(e *tpm.CertifyEvidence) { e.Signature = must(w.akRSA.sign(schemeRSASSA, e.Attest).Marshal()) }
			}},
		{name: "signature-is-an-hmac", what: "The signature is a TPMT_SIGNATURE with an HMAC.", expect: "signature-scheme",
			change: func(_ *world, f *forgery) {
				f.after = func(e *tpm.CertifyEvidence) { e.Signature = append([]byte{0, 5, 0, 0x0b}, make([]byte, 32)...) }
			}},
		{name: "signature-raw", what: "A bare RSA signature stands where a TPMT_SIGNATURE belongs.", expect: "signature-scheme", rsa: true,
			change: func(_ *world, f *forgery) {
				f.after = func(e *tpm.CertifyEvidence) { e.Signature = e.Signature[6:] }
			}},
	}
}
