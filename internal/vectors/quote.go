package main

import (
	"bytes"
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// Banks of PCRs, by their hash.
const (
	bankSHA1   = uint16(tpm2.TPMAlgSHA1)
	bankSHA256 = uint16(tpm2.TPMAlgSHA256)
	bankSHA384 = uint16(tpm2.TPMAlgSHA384)
	bankSM3    = uint16(tpm2.TPMAlgSM3256)
)

// quoting is a quote before it is marshalled and signed. A good one is accepted; a
// vector changes one thing of it.
type quoting struct {
	ak        *softAK
	attest    *tpm.Attestation
	pcrs      []vector.PCR
	scheme    tpm.KeyScheme
	patch     func(attest []byte) []byte
	signature func(*tpm.Signature)
	// after changes what the caller holds the quote against.
	after func(*vector.Quote)
}

// quoteAttack is one change to a good quote. An empty expect is acceptance.
type quoteAttack struct {
	name, what, expect string
	rsa                bool // by the RSA AK in place of the one on P-256
	change             func(w *world, q *quoting)
}

var quotedData = derive("qualifying data of quotes", 32)

// quoteBy quotes PCRs 0 to 7 of SHA-256, by a primary key of the endorsement hierarchy.
func (w *world) quoteBy(ak *softAK) *quoting {
	q := &quoting{ak: ak, scheme: ak.public.Scheme, attest: &tpm.Attestation{
		Type:            tpm2.TPMSTAttestQuote,
		QualifiedSigner: tpm.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, ak.public.Name()),
		ExtraData:       quotedData, Clock: 600000, ResetCount: 1, Safe: true, FirmwareVersion: 0x2019102300163636,
		Quote: &tpm.QuoteInfo{},
	}}
	q.selectPCRs(selectionOf(bankSHA256, 0xff, 0, 0))
	return q
}

func selectionOf(bank uint16, octets ...byte) vector.PCRSelection {
	return vector.PCRSelection{Bank: bank, Select: octets}
}

// selectPCRs quotes these, with values that follow from bank and index.
func (q *quoting) selectPCRs(selections ...vector.PCRSelection) {
	q.attest.Quote.Selections, q.pcrs = nil, nil
	for _, s := range selections {
		q.attest.Quote.Selections = append(q.attest.Quote.Selections, tpm.PCRSelection{Hash: tpm2.TPMAlgID(s.Bank), Select: s.Select})
		for i := range 8 * len(s.Select) {
			if s.Select[i/8]>>(i%8)&1 == 1 {
				q.pcrs = append(q.pcrs, pcr(s.Bank, i))
			}
		}
	}
	q.digest()
}

func pcr(bank uint16, index int) vector.PCR {
	size := hashes[tpm2.TPMAlgID(bank)].Size()
	return vector.PCR{Bank: bank, Index: index, Value: bytes.Repeat([]byte{byte(0x10 + index)}, size)}
}

// digest computes what the TPM would.
func (q *quoting) digest() {
	h := hashes[q.scheme.Hash].New()
	for _, p := range q.pcrs {
		h.Write(p.Value)
	}
	q.attest.Quote.PCRDigest = h.Sum(nil)
}

// useAK changes the AK's public area, of the same key.
func (q *quoting) useAK(public *tpm.Public) {
	q.ak = &softAK{private: q.ak.private, public: public}
	q.attest.QualifiedSigner = tpm.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, public.Name())
}

func (q *quoting) vector() *vector.Quote {
	raw := change(must(q.attest.Marshal()), q.patch)
	v := q.ak.sign(q.scheme, raw)
	if q.signature != nil {
		q.signature(v)
	}
	out := &vector.Quote{Attest: raw, Signature: must(v.Marshal()), PCRs: q.pcrs, AKPublic: q.ak.public.Raw, QualifyingData: quotedData}
	if q.after != nil {
		q.after(out)
	}
	return out
}

func (w *world) quotes() {
	w.acceptedQuotes()
	for _, table := range [][]quoteAttack{quotedStatements(), quotedSelections(), quotedValues(), quotedSigners()} {
		for _, a := range table {
			ak := w.akP256
			if a.rsa {
				ak = w.akRSA
			}
			q := w.quoteBy(ak)
			a.change(w, q)
			w.add(&vector.Vector{Name: "quote-" + a.name, Class: "statement", Level: vector.LevelQuote, Description: a.what,
				Expect: a.expect, Package: vector.PackageAttest, Quote: q.vector()})
		}
	}
}

// acceptedQuotes are the good ones, and what a caller lets through knowingly.
func (w *world) acceptedQuotes() {
	trusted, untrusted := &vector.Result{ClockTrusted: new(true)}, &vector.Result{ClockTrusted: new(false)}
	add := func(name, what string, result *vector.Result, ak *softAK, how func(*quoting)) {
		q := w.quoteBy(ak)
		if how != nil {
			how(q)
		}
		w.add(&vector.Vector{Name: "quote-" + name, Class: "accepted", Level: vector.LevelQuote, Description: what, Quote: q.vector(), Result: result})
	}
	add("ecdsa", "A quote over PCRs 0 to 7 by an AK on P-256.", trusted, w.akP256, nil)
	add("rsassa", "A quote over PCRs 0 to 7 by an RSA AK.", trusted, w.akRSA, nil)
	add("values-in-another-order", "The values come in another order, which decides nothing.", trusted, w.akP256, func(q *quoting) { slices.Reverse(q.pcrs) })
	add("selection-of-four-octets", "The selection has four octets, of which the last is empty.", trusted, w.akP256,
		func(q *quoting) { q.selectPCRs(selectionOf(bankSHA256, 0xff, 0, 0, 0)) })
	add("selection-of-one-octet", "The selection has one octet.", trusted, w.akP256, func(q *quoting) { q.selectPCRs(selectionOf(bankSHA256, 0xff)) })
	add("two-banks", "The quote covers two banks, which it lists in descending order.", trusted, w.akP256, func(q *quoting) {
		q.selectPCRs(selectionOf(bankSHA384, 3, 0, 0), selectionOf(bankSHA256, 0x80, 0, 0))
	})
	add("selection-as-asked", "The caller asks for this selection, in four octets.", trusted, w.akP256, func(q *quoting) {
		q.after = func(v *vector.Quote) { v.Selection = []vector.PCRSelection{selectionOf(bankSHA256, 0xff, 0, 0, 0)} }
	})
	asked := pcr(bankSHA256, 7)
	add("value-asked", "The caller asks for the value of PCR 7.", &vector.Result{ClockTrusted: new(true), Value: asked.Value}, w.akP256, func(q *quoting) {
		q.after = func(v *vector.Quote) { v.Asked = &vector.PCR{Bank: bankSHA256, Index: 7} }
	})
	add("with-a-resettable-pcr", "The quote covers PCR 16 too, and nobody asks for it.", trusted, w.akP256,
		func(q *quoting) { q.selectPCRs(selectionOf(bankSHA256, 1, 0, 1)) })
	add("by-a-key-below-another", "The AK stands below another key, so that the TPM obfuscates its clock.", untrusted, w.akP256, func(q *quoting) {
		parent := tpm.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, w.akOther.public.Name())
		q.attest.QualifiedSigner = tpm.QualifiedName(parent, q.ak.public.Name())
	})
	add("by-a-bare-key", "The AK is known by its key, without a public area.", untrusted, w.akP256, func(q *quoting) {
		q.after = func(v *vector.Quote) { v.AKPublic, v.AKKey = nil, spki(w.akP256.private.Public()) }
	})
	w.toleratedQuotes(func(name, what string, ak *softAK, how func(*quoting)) { add(name, what, trusted, ak, how) })
}

// toleratedQuotes are accepted with an option whose name says that it is insecure.
func (w *world) toleratedQuotes(add func(name, what string, ak *softAK, how func(*quoting))) {
	option := func(name string) func(*vector.Quote) {
		return func(v *vector.Quote) { v.Options = []string{name} }
	}
	add("of-the-sha1-bank-allowed", "The quote covers a PCR of the SHA-1 bank, which the caller allows.", w.akP256, func(q *quoting) {
		q.selectPCRs(selectionOf(bankSHA1, 1, 0, 0), selectionOf(bankSHA256, 1, 0, 0))
		q.after = option("insecureAllowSHA1Bank")
	})
	add("signed-with-sha1-allowed", "The AK's scheme is over SHA-1, which the caller allows.", w.akRSA, func(q *quoting) {
		sha1AK(q)
		q.after = option("insecureAllowSHA1Signature")
	})
	add("under-a-sha1-name-allowed", "The AK's Name is a SHA-1 digest, which the caller allows.", w.akP256, func(q *quoting) {
		q.useAK(changed(q.ak.public, func(p *tpm.Public) { p.NameAlg = tpm2.TPMAlgSHA1 }))
		q.after = option("insecureAllowSHA1Name")
	})
	add("with-any-qualifying-data", "The caller accepts a recorded quote with any qualifying data.", w.akP256, func(q *quoting) {
		q.attest.ExtraData = []byte("recorded")
		q.after = func(v *vector.Quote) {
			v.QualifyingData, v.Options = nil, []string{"insecureAllowAnyQualifyingData"}
		}
	})
}

// sha1AK gives the AK a scheme over SHA-1, which the quote's digest follows.
func sha1AK(q *quoting) {
	q.scheme = tpm.KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA1}
	q.useAK(changed(q.ak.public, func(p *tpm.Public) { p.Scheme = q.scheme }))
	q.digest()
}
