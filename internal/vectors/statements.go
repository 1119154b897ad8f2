package main

import (
	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

func (w *world) statements() {
	for _, a := range forge.StatementAttacks() {
		w.addAttack(&a)
	}
	w.wholeAnswers()
}

func (w *world) addAttack(a *forge.Attack) {
	ak := w.AKP256
	if a.RSA {
		ak = w.AKRSA
	}
	f := w.Forge(ak, forge.Join{})
	a.Change(f)
	alone := &vector.Vector{Name: a.Name, Class: "statement", Description: a.What, Expect: a.Expect}
	w.addStatement(f, alone)
	if a.Resident {
		alone.Statement.Options = append(alone.Statement.Options, "requireTPMResident")
	}
	if a.Alone {
		return
	}
	v := &vector.Vector{Name: a.Name + "-in-answer", Class: "statement", Level: vector.LevelVerify,
		Description: a.What, Expect: a.Expect, Package: vector.PackageAttest, Object: f.Answer()}
	if a.InAnswer != "" {
		v.Expect = a.InAnswer
	}
	if a.InPackage != "" {
		v.Package = a.InPackage
	}
	if a.Resident {
		v.Environment = &vector.Environment{RequireTPMResident: true}
	}
	w.add(v)
}

// addStatement fills in the statement of a forgery.
func (w *world) addStatement(f *forge.Forgery, v *vector.Vector) {
	e := f.Evidence()
	_, qd := f.Secrets(f.B)
	v.Level = vector.LevelStatement
	if v.Expect != "" {
		v.Package = vector.PackageAttest
	}
	v.Statement = &vector.Statement{Attest: e.Attest, Signature: e.Signature, Public: e.Public, AKPublic: f.AKPublic,
		QualifyingData: qd, Key: forge.SPKI(f.Key.Public()), Options: f.Options}
	w.add(v)
}

// wholeAnswers are attacks that only the answer of a node shows.
func (w *world) wholeAnswers() {
	add := func(name, what, expect string, f *forge.Forgery, env *vector.Environment) {
		w.add(&vector.Vector{Name: name, Class: "statement", Level: vector.LevelVerify, Description: what,
			Expect: expect, Package: vector.PackageAttest, Object: f.Answer(), Environment: env})
	}
	f := w.Forge(w.AKP256, forge.Join{})
	f.AKPublic = forge.Changed(f.AK.Public, func(p *statement.Public) { p.AuthPolicy = make([]byte, 32) }).Raw
	add("ak-public-area-changed", "The node sends an AK public area of the right key with a policy that the AK does not have: the qualified signer is not that of this area.", "ak-parent", f, nil)

	f = w.Forge(w.AKP256, forge.Join{})
	ek := statement.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, w.AKOther.Public.Name())
	f.Attest.QualifiedSigner = statement.QualifiedName(ek, f.AK.Public.Name())
	add("ak-below-another-key", "The AK stands below another key, which its issuer's profile does not admit, so nothing binds its attributes.", "ak-parent", f, nil)

	f = w.Forge(w.AKP256, forge.Join{})
	f.Attest.QualifiedSigner = statement.QualifiedNameOfPrimary(tpm2.TPMRHNull, f.AK.Public.Name())
	add("ak-in-the-null-hierarchy", "The AK is a primary key of the null hierarchy, which lasts until the next reset.", "ak-parent", f, nil)

	f = w.Forge(w.AKRSA, forge.Join{})
	f.Rescheme(statement.KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA1})
	tolerant := profileTCG()
	tolerant.Name, tolerant.InsecureAllowSHA1Signature = "another issuer", true
	add("sha1-signature-allowed-to-another-issuer", "The statement is signed with SHA-1, which the profile of another issuer allows.", "signature-hash", f,
		&vector.Environment{Issuers: []vector.Issuer{w.set.Environment.Issuers[0], {Roots: [][]byte{w.Stranger.Root().Raw}, Profile: tolerant}}})
}
