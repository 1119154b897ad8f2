package main

import (
	"cmp"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

func (w *world) statements() {
	for _, a := range forge.StatementAttacks() {
		ak := w.AKP256
		if a.RSA {
			ak = w.AKRSA
		}
		f := w.Forge(ak, forge.Join{})
		a.Change(f)
		alone := w.refuse(a.Name, a.What, a.Expect, w.statementOf(f), nil)
		if a.Alone {
			continue
		}
		v := w.refuse(a.Name+"-in-answer", a.What, cmp.Or(a.InAnswer, a.Expect), f, nil)
		v.Package = packageOf(a.InCSR)
		if a.Resident {
			alone.Statement.Options = append(alone.Statement.Options, "requireTPMResident")
			v.Environment = &vector.Environment{RequireTPMResident: true}
		}
	}
	w.wholeAnswers()
	w.refusedOptions()
}

// statementOf is the statement of a forgery, and what it is held against.
func (w *world) statementOf(f *forge.Forgery) *vector.Statement {
	e := f.Evidence()
	_, qd := f.Secrets(f.B)
	return &vector.Statement{Attest: e.Attest, Signature: e.Signature, Public: e.Public, AKPublic: f.AKPublic,
		QualifyingData: qd, Key: forge.SPKI(f.Key.Public()), Options: f.Options}
}

// wholeAnswers are attacks that only the answer of a node shows.
func (w *world) wholeAnswers() {
	answer := func(name, what string, change func(*forge.Forgery)) {
		f := w.Forge(w.AKP256, forge.Join{})
		change(f)
		w.refuse(name, what, "ak-parent", f, nil)
	}
	answer("ak-public-area-changed", "The node sends an AK public area of the right key with a policy that the AK does not have: the qualified signer is not that of this area.",
		func(f *forge.Forgery) { f.AKPublic = otherPolicy(f.AK) })
	answer("ak-below-another-key", "The AK stands below another key, which its issuer's profile does not admit, so nothing binds its attributes.",
		func(f *forge.Forgery) { w.below(f) })
	answer("ak-in-the-null-hierarchy", "The AK is a primary key of the null hierarchy, which lasts until the next reset.", func(f *forge.Forgery) {
		f.Attest.QualifiedSigner = statement.QualifiedNameOfPrimary(tpm2.TPMRHNull, f.AK.Public.Name())
	})
	tolerant := profileTCG()
	tolerant.Name, tolerant.InsecureAllowSHA1Signature = "another issuer", true
	w.refuse("sha1-signature-allowed-to-another-issuer", "The statement is signed with SHA-1, which the profile of another issuer allows.", "signature-hash", w.overSHA1(),
		&vector.Environment{Issuers: []vector.Issuer{w.set.Environment.Issuers[0], {Roots: [][]byte{w.Stranger.Root().Raw}, Profile: tolerant}}})
}

// otherPolicy is the public area of an AK with a policy that it does not have.
func otherPolicy(ak *forge.SoftAK) []byte {
	return forge.Changed(ak.Public, func(p *statement.Public) { p.AuthPolicy = make([]byte, 32) }).Raw
}

// below has the AK stand below another key.
func (w *world) below(f *forge.Forgery) *forge.Forgery {
	f.Attest.QualifiedSigner = statement.QualifiedName(w.AKOther.Primary(), f.AK.Public.Name())
	return f
}

// overSHA1 is an answer whose AK has a scheme over SHA-1.
func (w *world) overSHA1() *forge.Forgery {
	f := w.Forge(w.AKRSA, forge.Join{})
	f.Rescheme(statement.KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA1})
	return f
}

// refusedOptions are callers that give the lower function too little to decide.
func (w *world) refusedOptions() {
	for _, a := range []row[func(*vector.Statement)]{
		{"caller-gives-no-ak", "The caller gives no AK.", "", func(s *vector.Statement) { s.AKPublic = nil }},
		{"caller-gives-no-qualifying-data", "The caller gives no qualifying data, and does not say that any will do.", "",
			func(s *vector.Statement) { s.QualifyingData = nil }},
		{"caller-gives-no-key", "The caller gives no key, and does not say that any will do.", "", func(s *vector.Statement) { s.Key = nil }},
		{"caller-gives-qualifying-data-and-takes-any", "The caller gives qualifying data and says that any will do.", "",
			func(s *vector.Statement) { s.Options = []string{"insecureAllowAnyQualifyingData"} }},
	} {
		s := w.statementOf(w.Forge(w.AKP256, forge.Join{}))
		a.in(s)
		w.refuse(a.name, a.what, "certify-options", s, nil)
	}
}

// akTrusts are callers whose AK nobody vouches for, or whose qualifying data was lost on
// its way: good evidence, and what it is good for.
func (w *world) akTrusts() {
	s := func(change func(*forge.Forgery), last func(*vector.Statement)) *vector.Statement {
		f := w.Forge(w.AKP256, forge.Join{})
		change(f)
		s := w.statementOf(f)
		last(s)
		return s
	}
	resident := func(f *forge.Forgery) {
		f.Certify(forge.PublicArea(f.Key.Public(), forge.ResidentAttributes, forge.NoScheme))
	}
	empty := func(f *forge.Forgery) { f.Attest.ExtraData = nil }
	w.accept("resident-key-by-an-ak-of-the-sender", "The AK is the sender's word, so that the statement does not show where the certified key lives.",
		s(resident, func(s *vector.Statement) { s.AKTrust = "sender" }), nil, &vector.Result{TPMResident: new(false)})
	w.accept("resident-key-by-an-ak-of-an-issuer", "The same statement, and an issuer vouches for the AK's key.",
		s(resident, func(s *vector.Statement) { s.AKTrust, s.AKKey = "issuer", forge.SPKI(w.AKP256.Private.Public()) }), nil, &vector.Result{TPMResident: new(true)})
	w.refuse("resident-key-demanded-by-an-ak-of-the-sender", "Keys must live in the TPM, and the AK that says so is the sender's word.", "certify-options",
		s(resident, func(s *vector.Statement) { s.AKTrust, s.Options = "sender", []string{"requireTPMResident"} }), nil)
	w.refuse("caller-gives-empty-qualifying-data", "The caller's nonce is empty, as where it was lost on the way, and the statement has none.", "certify-options",
		s(empty, func(s *vector.Statement) { s.QualifyingData = []byte{} }), nil)
	w.refuse("caller-gives-qualifying-data-and-wants-none", "The caller gives qualifying data and asks for none.", "certify-options",
		s(empty, func(s *vector.Statement) { s.Options = []string{"insecureEmptyQualifyingData"} }), nil)

	quote := func(data []byte, after func(*vector.Quote)) *vector.Quote {
		q := w.hold(w.AKP256)
		q.Attest.ExtraData, q.hold = data, after
		return q.vector()
	}
	w.accept("quote-by-an-ak-of-the-sender", "The AK is the sender's word, so that its clock is nobody's.",
		quote(forge.LoneQuoteData, func(q *vector.Quote) { q.AKTrust = "sender" }), nil, &vector.Result{ClockTrusted: new(false)})
	w.accept("quote-without-qualifying-data-by-option", "The caller asks for a quote without qualifying data.", quote(nil, func(q *vector.Quote) {
		q.QualifyingData, q.Options = []byte{}, []string{"insecureEmptyQualifyingData"}
	}), nil, &vector.Result{ClockTrusted: new(true)})
	w.refuse("quote-for-a-caller-with-empty-qualifying-data", "The caller's nonce is empty, and the quote has none.", "quote-options",
		quote(nil, func(q *vector.Quote) { q.QualifyingData = []byte{} }), nil)
}
