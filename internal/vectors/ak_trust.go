package main

import (
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// akTrusts are callers whose AK nobody vouches for, or whose qualifying data was lost on
// its way: good evidence, and what it is good for.
func (w *world) akTrusts() {
	statement := func(name, class, what, expect string, change func(*forge.Forgery), last func(*vector.Statement)) *vector.Vector {
		f := w.Forge(w.AKP256, forge.Join{})
		change(f)
		v := &vector.Vector{Name: name, Class: class, Description: what, Expect: expect}
		w.addStatement(f, v)
		last(v.Statement)
		return v
	}
	resident := func(f *forge.Forgery) {
		f.Certify(forge.PublicArea(f.Key.Public(), forge.ResidentAttributes, forge.NoScheme))
	}
	empty := func(f *forge.Forgery) { f.Attest.ExtraData = nil }
	v := statement("resident-key-by-an-ak-of-the-sender", "accepted",
		"The AK is the sender's word, so that the statement does not show where the certified key lives.", "",
		resident, func(s *vector.Statement) { s.AKTrust = "sender" })
	v.Result = &vector.Result{TPMResident: new(false)}
	v = statement("resident-key-by-an-ak-of-an-issuer", "accepted", "The same statement, and an issuer vouches for the AK's key.", "",
		resident, func(s *vector.Statement) { s.AKTrust, s.AKKey = "issuer", forge.SPKI(w.AKP256.Private.Public()) })
	v.Result = &vector.Result{TPMResident: new(true)}
	statement("resident-key-demanded-by-an-ak-of-the-sender", "statement",
		"Keys must live in the TPM, and the AK that says so is the sender's word.", "certify-options",
		resident, func(s *vector.Statement) { s.AKTrust, s.Options = "sender", []string{"requireTPMResident"} })
	statement("caller-gives-empty-qualifying-data", "statement",
		"The caller's nonce is empty, as where it was lost on the way, and the statement has none.", "certify-options",
		empty, func(s *vector.Statement) { s.QualifyingData = []byte{} })
	statement("caller-gives-qualifying-data-and-wants-none", "statement",
		"The caller gives qualifying data and asks for none.", "certify-options",
		empty, func(s *vector.Statement) { s.Options = []string{"insecureEmptyQualifyingData"} })
	w.quoteTrusts()
}

func (w *world) quoteTrusts() {
	quote := func(name, class, what, expect string, withoutData bool, after func(*vector.Quote)) *vector.Vector {
		q := w.hold(w.AKP256)
		if withoutData {
			q.Attest.ExtraData = nil
		}
		q.hold = after
		v := &vector.Vector{Name: "quote-" + name, Class: class, Level: vector.LevelQuote, Description: what, Expect: expect, Quote: q.vector()}
		if expect != "" {
			v.Package = vector.PackageAttest
		}
		w.add(v)
		return v
	}
	v := quote("by-an-ak-of-the-sender", "accepted", "The AK is the sender's word, so that its clock is nobody's.", "", false,
		func(q *vector.Quote) { q.AKTrust = "sender" })
	v.Result = &vector.Result{ClockTrusted: new(false)}
	v = quote("without-qualifying-data-by-option", "accepted", "The caller asks for a quote without qualifying data.", "", true,
		func(q *vector.Quote) {
			q.QualifyingData, q.Options = []byte{}, []string{"insecureEmptyQualifyingData"}
		})
	v.Result = &vector.Result{ClockTrusted: new(true)}
	quote("for-a-caller-with-empty-qualifying-data", "statement", "The caller's nonce is empty, and the quote has none.", "quote-options", true,
		func(q *vector.Quote) { q.QualifyingData = []byte{} })
}
