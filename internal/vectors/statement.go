package main

import (
	"bytes"
	"crypto/elliptic"
	"crypto/rsa"
	"math/big"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// attack is one change to a good forgery. It becomes two vectors: the statement
// alone, and, with -in-answer behind its name, the same in the answer of a node.
type attack struct {
	name, what, expect string
	// rsa takes the RSA AK in place of the one on P-256.
	rsa    bool
	change func(w *world, f *forgery)
	// inAnswer is what refuses the answer, where that is another check; inPackage
	// its package, attest unless given.
	inAnswer, inPackage string
	// alone leaves out the answer: it has no place for this change.
	alone bool
	env   *vector.Environment
}

func (w *world) statements() {
	for _, table := range [][]attack{attestAttacks(), nameAttacks(), w.keyAttacks(), w.akAttacks(), signatureAttacks(), schemeAttacks()} {
		for i := range table {
			w.addAttack(&table[i])
		}
	}
	w.wholeAnswers()
}

func (w *world) addAttack(a *attack) {
	ak := w.akP256
	if a.rsa {
		ak = w.akRSA
	}
	f := w.forge(ak, join{})
	a.change(w, f)
	w.addStatement(f, &vector.Vector{Name: a.name, Class: "statement", Description: a.what, Expect: a.expect})
	if a.alone {
		return
	}
	v := &vector.Vector{Name: a.name + "-in-answer", Class: "statement", Level: vector.LevelVerify,
		Description: a.what, Expect: a.expect, Package: vector.PackageAttest, Object: f.answer(w), Environment: a.env}
	if a.inAnswer != "" {
		v.Expect = a.inAnswer
	}
	if a.inPackage != "" {
		v.Package = a.inPackage
	}
	if f.resident {
		v.Environment = &vector.Environment{RequireTPMResident: true}
	}
	w.add(v)
}

// addStatement fills in the statement of a forgery.
func (w *world) addStatement(f *forgery, v *vector.Vector) {
	e := f.evidence()
	_, qd := f.secrets(f.b)
	v.Level = vector.LevelStatement
	if v.Expect != "" {
		v.Package = vector.PackageAttest
	}
	v.Statement = &vector.Statement{Attest: e.Attest, Signature: e.Signature, Public: e.Public, AKPublic: f.akPublic,
		QualifyingData: qd, Key: spki(f.key.Public()), Options: f.options}
	if f.resident {
		v.Statement.Options = append(v.Statement.Options, "requireTPMResident")
	}
	w.add(v)
}

func patch(how func([]byte) []byte) func(*world, *forgery) {
	return func(_ *world, f *forgery) { f.patch = how }
}

// attestAttacks are about the TPMS_ATTEST itself.
func attestAttacks() []attack {
	return []attack{
		{name: "forged-magic", what: "The AK signed a structure that begins with other bytes than TPM_GENERATED_VALUE, as a key that is not restricted would.", expect: "attest-magic",
			change: patch(func(b []byte) []byte { b[3] ^= 1; return b })},
		{name: "forged-quote", what: "A quote with the right qualifying data stands in place of the certify statement.", expect: "attest-type",
			change: func(_ *world, f *forgery) {
				f.attest.Type, f.tpm.Certified = tpm2.TPMSTAttestQuote, nil
				f.attest.Quote = &tpm.QuoteInfo{Selections: []tpm.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{1, 0, 0}}}, PCRDigest: make([]byte, 32)}
			}},
		{name: "command-audit", what: "The statement's type says command audit over the bytes of a certify statement.", expect: "attest-type",
			change: patch(func(b []byte) []byte { b[4], b[5] = 0x80, 0x15; return b })},
		{name: "statement-with-bytes-behind", what: "A byte stands behind the TPMS_ATTEST, under the signature.", expect: "attest-encoding",
			change: patch(func(b []byte) []byte { return append(b, 0) })},
		{name: "statement-truncated", what: "The TPMS_ATTEST lacks its last byte, under the signature.", expect: "attest-encoding",
			change: patch(func(b []byte) []byte { return b[:len(b)-1] })},
		{name: "statement-too-long", what: "The TPMS_ATTEST is over 1024 bytes, under the signature.", expect: "attest-size",
			change: patch(func(b []byte) []byte { return append(b, make([]byte, 1024)...) })},
		{name: "statement-safe-flag-not-boolean", what: "The clock's safe flag is 2, which is no TPMI_YES_NO.", expect: "attest-encoding",
			change: func(_ *world, f *forgery) {
				f.patch = func(b []byte) []byte { b[6+2+len(f.attest.QualifiedSigner)+2+len(f.attest.ExtraData)+16] = 2; return b }
			}},
		{name: "qualifying-data-absent", what: "The statement has no qualifying data.", expect: "qualifying-data",
			change: func(_ *world, f *forgery) { f.attest.ExtraData = nil }},
		{name: "qualifying-data-prefix", what: "The statement has the first 31 bytes of the qualifying data.", expect: "qualifying-data",
			change: func(_ *world, f *forgery) { f.attest.ExtraData = f.attest.ExtraData[:31] }},
		{name: "qualifying-data-extended", what: "The statement has the qualifying data with a zero byte behind it.", expect: "qualifying-data",
			change: func(_ *world, f *forgery) { f.attest.ExtraData = append(bytes.Clone(f.attest.ExtraData), 0) }},
		{name: "qualifying-data-other", what: "The statement has other qualifying data of the same length.", expect: "qualifying-data",
			change: func(_ *world, f *forgery) { f.attest.ExtraData = derive("other qualifying data", 32) }},
		{name: "qualifying-data-is-the-binding-hash", what: "The qualifying data is the challenge's secret itself, not what follows from it.", expect: "qualifying-data",
			change: func(_ *world, f *forgery) { f.attest.ExtraData, _ = f.secrets(f.b) }},
	}
}

// nameAttacks are about the certified Name and the public area behind it.
func nameAttacks() []attack {
	return []attack{
		{name: "name-of-another-key", what: "The certified Name is that of another key than the public area sent along.", expect: "certified-name",
			change: func(w *world, f *forgery) {
				f.tpm.Certified.Name = publicArea(w.tls2.Public(), residentAttributes, noScheme).Name()
			}},
		{name: "name-empty", what: "The certified Name is empty.", expect: "certified-name",
			change: func(_ *world, f *forgery) { f.tpm.Certified.Name = nil }},
		{name: "name-is-algorithm-alone", what: "The certified Name is its algorithm without a digest.", expect: "certified-name",
			change: func(_ *world, f *forgery) { f.tpm.Certified.Name = f.tpm.Certified.Name[:2] }},
		{name: "public-area-swapped", what: "The public area sent along is that of another key.", expect: "certified-name",
			change: func(w *world, f *forgery) {
				f.public = publicArea(w.tls2.Public(), residentAttributes, noScheme)
			}},
		{name: "public-area-attributes-changed", what: "The public area sent along has other attributes than the one certified.", expect: "certified-name",
			change: func(_ *world, f *forgery) {
				f.public = changed(f.public, func(p *tpm.Public) { p.Attributes &^= tpm.AttributeUserWithAuth })
			}},
		{name: "public-area-with-bytes-behind", what: "A byte stands behind the public area.", expect: "public-encoding",
			change: func(_ *world, f *forgery) {
				f.after = func(e *tpm.CertifyEvidence) { e.Public = append(bytes.Clone(e.Public), 0) }
			}},
		{name: "public-area-absent", what: "There is no public area of the certified key.", expect: "public-size", inAnswer: "message-encoding",
			change: func(_ *world, f *forgery) { f.after = func(e *tpm.CertifyEvidence) { e.Public = nil } }},
		{name: "request-key-swapped", what: "The statement certifies another key than the one in the request.", expect: "key-mismatch",
			change: func(w *world, f *forgery) { f.certify(publicArea(w.tls2.Public(), residentAttributes, noScheme)) }},
		{name: "request-key-of-another-kind", what: "The statement certifies an RSA key, the request has a key on P-256.", expect: "key-mismatch",
			change: func(w *world, f *forgery) { f.certify(publicArea(w.rsaTLS.Public(), residentAttributes, noScheme)) }},
		{name: "sha1-name", what: "The certified key's Name is a SHA-1 digest.", expect: "name-algorithm",
			change: func(_ *world, f *forgery) {
				f.certify(changed(f.public, func(p *tpm.Public) { p.NameAlg = tpm2.TPMAlgSHA1 }))
			}},
		{name: "qualified-name-absent", what: "The certified Qualified Name is empty.", expect: "certified-qualified-name",
			change: func(_ *world, f *forgery) { f.tpm.Certified.QualifiedName = nil }},
		{name: "qualified-name-of-another-algorithm", what: "The certified Qualified Name is under SHA-384, the Name under SHA-256.", expect: "certified-qualified-name",
			change: func(_ *world, f *forgery) {
				f.tpm.Certified.QualifiedName = append([]byte{0, 0x0c}, make([]byte, 48)...)
			}},
	}
}

// keyAttacks are about the certified key.
func (w *world) keyAttacks() []attack {
	public := func(attributes tpm.Attributes) func(*world, *forgery) {
		return func(_ *world, f *forgery) { f.certify(publicArea(f.key.Public(), attributes, noScheme)) }
	}
	return []attack{
		{name: "external-key-claims-fixed-tpm", what: "A key that was loaded from outside (its Qualified Name is its Name) says fixedTPM.", expect: "key-residency-claim",
			change: func(_ *world, f *forgery) { f.certifyExternal(f.public) }},
		{name: "external-key-claims-fixed-parent", what: "A key that was loaded from outside says fixedParent.", expect: "key-residency-claim",
			change: func(_ *world, f *forgery) {
				f.certifyExternal(publicArea(f.key.Public(), softwareAttributes|tpm.AttributeFixedParent, noScheme))
			}},
		{name: "software-key-passed-off-as-resident", what: "Keys must live in the TPM, and a software key was loaded with sensitiveDataOrigin set.", expect: "key-residency",
			change: func(_ *world, f *forgery) {
				f.certifyExternal(publicArea(f.key.Public(), softwareAttributes|tpm.AttributeSensitiveDataOrigin, noScheme))
				f.resident = true
			}},
		{name: "imported-key-passed-off-as-resident", what: "Keys must live in the TPM, and the certified one has a parent but not fixedTPM.", expect: "key-residency",
			change: func(_ *world, f *forgery) {
				f.certify(publicArea(f.key.Public(), softwareAttributes, noScheme))
				f.resident = true
			}},
		{name: "key-fixed-tpm-without-fixed-parent", what: "The certified key has fixedTPM without fixedParent, which no TPM allows.", expect: "key-attributes",
			change: public(residentAttributes &^ tpm.AttributeFixedParent)},
		{name: "key-cannot-sign", what: "The certified key can decrypt and not sign.", expect: "key-attributes",
			change: public(residentAttributes&^tpm.AttributeSign | tpm.AttributeDecrypt)},
		{name: "key-restricted", what: "The certified key is restricted, an attestation key itself.", expect: "key-attributes", change: public(akAttributes)},
		{name: "key-x509sign", what: "The certified key has x509sign.", expect: "key-attributes", change: public(residentAttributes | tpm.AttributeX509Sign)},
		{name: "ak-certified-as-tls-key", what: "The AK certifies itself, and the request is for the AK's key.", expect: "ak-is-certified-key",
			change: func(w *world, f *forgery) {
				*f = *w.forge(f.ak, w.requestFor(f.ak.private))
				f.certify(f.ak.public)
				f.options = []string{"allowRestrictedKey"}
			}},
		{name: "ak-certified-under-other-attributes", what: "The AK's key, loaded from outside as a plain signing key, is certified for a request with that key.", expect: "ak-is-certified-key",
			change: func(w *world, f *forgery) {
				*f = *w.forge(f.ak, w.requestFor(f.ak.private))
				f.certifyExternal(publicArea(f.key.Public(), softwareAttributes, noScheme))
			}},
		{name: "weak-rsa", what: "The certified key, and the request's, is RSA with 1024 bits.", expect: "key-strength", inPackage: vector.PackageCSR,
			change: func(w *world, f *forgery) { *f = *w.forge(f.ak, w.requestFor(repeatable{w.rsa1024})) }},
		{name: "weak-rsa-says-2048", what: "The certified public area says 2048 bits and holds a modulus of 1024.", expect: "public-encoding",
			change: func(w *world, f *forgery) {
				weak := publicArea(w.rsa1024.Public(), residentAttributes, noScheme)
				f.certify(changed(weak, func(p *tpm.Public) { p.KeyBits = 2048 }))
			}},
		{name: "rsa-exponent-3", what: "The certified key has the RSA exponent 3.", expect: "key-strength",
			change: func(w *world, f *forgery) {
				f.certify(publicArea(&rsa.PublicKey{N: w.rsaTLS.N, E: 3}, residentAttributes, noScheme))
			}},
		{name: "weak-curve", what: "The certified public area says curve P-192.", expect: "key-strength",
			change: func(_ *world, f *forgery) {
				f.after = func(e *tpm.CertifyEvidence) { e.Public = withCurve(e.Public, 14, 1) }
			}},
		{name: "point-off-the-curve", what: "The certified public area holds a point that is not on its curve, under its own Name.", expect: "key-point",
			change: func(_ *world, f *forgery) { f.certify(offCurve(f.public)) }},
	}
}

// offCurve changes the last bit of Y.
func offCurve(p *tpm.Public) *tpm.Public {
	return changed(p, func(p *tpm.Public) {
		p.Y = bytes.Clone(p.Y)
		p.Y[len(p.Y)-1] ^= 1
	})
}

// withCurve writes a curve identifier at an offset of a public area.
func withCurve(raw []byte, offset int, curve byte) []byte {
	raw = bytes.Clone(raw)
	raw[offset], raw[offset+1] = 0, curve
	return raw
}

// orderP256 and its neighbours, 32 bytes each.
func orderP256(plus int64) []byte {
	return new(big.Int).Add(elliptic.P256().Params().N, big.NewInt(plus)).FillBytes(make([]byte, 32))
}
