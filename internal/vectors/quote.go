package main

import (
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// heldQuote is a quote and what a caller holds it against, which hold changes.
type heldQuote struct {
	*forge.Quoting
	hold func(*vector.Quote)
}

func (w *world) hold(ak *forge.SoftAK) *heldQuote { return &heldQuote{Quoting: w.QuoteBy(ak)} }

func (q *heldQuote) vector() *vector.Quote {
	raw, signature := q.Signed()
	out := &vector.Quote{Attest: raw, Signature: signature, AKPublic: q.AK.Public.Raw, QualifyingData: forge.LoneQuoteData}
	if q.PCRs != nil {
		out.PCRs = []vector.PCR{}
	}
	for _, p := range q.PCRs {
		out.PCRs = append(out.PCRs, pcrOf(p))
	}
	if q.hold != nil {
		q.hold(out)
	}
	return out
}

func pcrOf(p statement.PCR) vector.PCR {
	return vector.PCR{Bank: uint16(p.Bank), Index: p.Index, Value: p.Value}
}

func wanted(bank tpm2.TPMAlgID, octets ...byte) vector.PCRSelection {
	return vector.PCRSelection{Bank: uint16(bank), Select: octets}
}

func (w *world) quotes() {
	w.acceptedQuotes()
	add := func(name, what, expect string, q *heldQuote) {
		w.add(&vector.Vector{Name: "quote-" + name, Class: "statement", Level: vector.LevelQuote, Description: what,
			Expect: expect, Package: vector.PackageAttest, Quote: q.vector()})
	}
	for _, a := range forge.QuoteAttacks() {
		ak := w.AKP256
		if a.RSA {
			ak = w.AKRSA
		}
		q := w.hold(ak)
		a.Change(q.Quoting)
		add(a.Name, a.What, a.Expect, q)
	}
	for _, a := range heldQuotes() {
		q := w.hold(w.AKP256)
		a.change(q)
		add(a.name, a.what, a.expect, q)
	}
}

// acceptedQuotes are the good ones, and what a caller lets through knowingly.
func (w *world) acceptedQuotes() {
	trusted, untrusted := &vector.Result{ClockTrusted: new(true)}, &vector.Result{ClockTrusted: new(false)}
	add := func(name, what string, result *vector.Result, ak *forge.SoftAK, how func(*heldQuote)) {
		q := w.hold(ak)
		if how != nil {
			how(q)
		}
		w.add(&vector.Vector{Name: "quote-" + name, Class: "accepted", Level: vector.LevelQuote, Description: what, Quote: q.vector(), Result: result})
	}
	add("ecdsa", "A quote over PCRs 0 to 7 by an AK on P-256.", trusted, w.AKP256, nil)
	add("rsassa", "A quote over PCRs 0 to 7 by an RSA AK.", trusted, w.AKRSA, nil)
	add("values-in-another-order", "The values come in another order, which decides nothing.", trusted, w.AKP256, func(q *heldQuote) { slices.Reverse(q.PCRs) })
	add("selection-of-four-octets", "The selection has four octets, of which the last is empty.", trusted, w.AKP256,
		func(q *heldQuote) { q.SelectPCRs(forge.SelectionOf(forge.BankSHA256, 0xff, 0, 0, 0)) })
	add("selection-of-one-octet", "The selection has one octet.", trusted, w.AKP256, func(q *heldQuote) { q.SelectPCRs(forge.SelectionOf(forge.BankSHA256, 0xff)) })
	add("two-banks", "The quote covers two banks, which it lists in descending order.", trusted, w.AKP256, func(q *heldQuote) {
		q.SelectPCRs(forge.SelectionOf(forge.BankSHA384, 3, 0, 0), forge.SelectionOf(forge.BankSHA256, 0x80, 0, 0))
	})
	add("selection-as-asked", "The caller asks for this selection, in four octets.", trusted, w.AKP256, func(q *heldQuote) {
		q.hold = func(v *vector.Quote) { v.Selection = []vector.PCRSelection{wanted(forge.BankSHA256, 0xff, 0, 0, 0)} }
	})
	seven := forge.PCRValue(forge.BankSHA256, 7)
	add("value-asked", "The caller asks for the value of PCR 7.", &vector.Result{ClockTrusted: new(true), Value: seven.Value}, w.AKP256, func(q *heldQuote) {
		q.hold = func(v *vector.Quote) { v.Asked = &vector.PCR{Bank: uint16(forge.BankSHA256), Index: 7} }
	})
	add("with-a-resettable-pcr", "The quote covers PCR 16 too, and nobody asks for it.", trusted, w.AKP256,
		func(q *heldQuote) { q.SelectPCRs(forge.SelectionOf(forge.BankSHA256, 1, 0, 1)) })
	add("by-a-key-below-another", "The AK stands below another key, so that the TPM obfuscates its clock.", untrusted, w.AKP256, func(q *heldQuote) {
		parent := statement.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, w.AKOther.Public.Name())
		q.Attest.QualifiedSigner = statement.QualifiedName(parent, q.AK.Public.Name())
	})
	add("by-a-bare-key", "The AK is known by its key, without a public area.", untrusted, w.AKP256, func(q *heldQuote) {
		q.hold = func(v *vector.Quote) { v.AKPublic, v.AKKey = nil, forge.SPKI(w.AKP256.Private.Public()) }
	})
	w.toleratedQuotes(func(name, what string, ak *forge.SoftAK, how func(*heldQuote)) { add(name, what, trusted, ak, how) })
}

// toleratedQuotes are accepted with an option whose name says that it is insecure.
func (w *world) toleratedQuotes(add func(name, what string, ak *forge.SoftAK, how func(*heldQuote))) {
	option := func(name string) func(*vector.Quote) {
		return func(v *vector.Quote) { v.Options = []string{name} }
	}
	add("of-the-sha1-bank-allowed", "The quote covers a PCR of the SHA-1 bank, which the caller allows.", w.AKP256, func(q *heldQuote) {
		q.SelectPCRs(forge.SelectionOf(forge.BankSHA1, 1, 0, 0), forge.SelectionOf(forge.BankSHA256, 1, 0, 0))
		q.hold = option("insecureAllowSHA1Bank")
	})
	add("signed-with-sha1-allowed", "The AK's scheme is over SHA-1, which the caller allows.", w.AKRSA, func(q *heldQuote) {
		forge.SHA1AK(q.Quoting)
		q.hold = option("insecureAllowSHA1Signature")
	})
	add("under-a-sha1-name-allowed", "The AK's Name is a SHA-1 digest, which the caller allows.", w.AKP256, func(q *heldQuote) {
		q.UseAK(forge.Changed(q.AK.Public, func(p *statement.Public) { p.NameAlg = tpm2.TPMAlgSHA1 }))
		q.hold = option("insecureAllowSHA1Name")
	})
	add("with-any-qualifying-data", "The caller accepts a recorded quote with any qualifying data.", w.AKP256, func(q *heldQuote) {
		q.Attest.ExtraData = []byte("recorded")
		q.hold = func(v *vector.Quote) {
			v.QualifyingData, v.Options = nil, []string{"insecureAllowAnyQualifyingData"}
		}
	})
}

// heldQuotes are good quotes that are held against something else, and quotes that were
// changed after they were signed.
func heldQuotes() []struct {
	name, what, expect string
	change             func(*heldQuote)
} {
	held := func(how func(*vector.Quote)) func(*heldQuote) { return func(q *heldQuote) { q.hold = how } }
	asks := func(p vector.PCR) func(*heldQuote) {
		return func(q *heldQuote) {
			q.SelectPCRs(forge.SelectionOf(forge.BankSHA256, 1, 0, 0x81))
			q.hold = func(v *vector.Quote) { v.Asked = &p }
		}
	}
	return []struct {
		name, what, expect string
		change             func(*heldQuote)
	}{
		{name: "clock-changed", what: "One bit of the clock was changed behind the signature.", expect: "signature",
			change: held(func(v *vector.Quote) { v.Attest[len(v.Attest)-1-clockBehind] ^= 1 })},
		{name: "for-a-caller-without-an-ak", what: "The caller names no AK.", expect: "quote-options",
			change: held(func(v *vector.Quote) { v.AKPublic = nil })},
		{name: "for-a-caller-without-qualifying-data", what: "The caller gives no qualifying data.", expect: "quote-options",
			change: held(func(v *vector.Quote) { v.QualifyingData = nil })},
		{name: "for-a-caller-of-two-minds", what: "The caller gives qualifying data and allows any.", expect: "quote-options",
			change: held(func(v *vector.Quote) { v.Options = []string{"insecureAllowAnyQualifyingData"} })},
		{name: "of-fewer-pcrs-than-asked", what: "The caller asks for PCR 8 too, which the node did not have quoted.", expect: "pcr-selection",
			change: held(func(v *vector.Quote) { v.Selection = []vector.PCRSelection{wanted(forge.BankSHA256, 0xff, 1, 0)} })},
		{name: "of-more-pcrs-than-asked", what: "The caller asks for PCR 7 alone.", expect: "pcr-selection",
			change: held(func(v *vector.Quote) { v.Selection = []vector.PCRSelection{wanted(forge.BankSHA256, 0x80, 0, 0)} })},
		{name: "of-another-bank-than-asked", what: "The caller asks for the same PCRs of the SHA-384 bank.", expect: "pcr-selection",
			change: held(func(v *vector.Quote) { v.Selection = []vector.PCRSelection{wanted(forge.BankSHA384, 0xff, 0, 0)} })},
		{name: "for-a-caller-who-asks-for-nothing", what: "The caller asks for no PCR at all, which every quote would fulfil.", expect: "pcr-selection",
			change: held(func(v *vector.Quote) { v.Selection = []vector.PCRSelection{} })},
		{name: "asked-for-a-pcr-outside", what: "The caller asks for the value of a PCR that was not quoted.", expect: "pcr-not-quoted", change: asks(vector.PCR{Bank: uint16(forge.BankSHA256), Index: 1})},
		{name: "asked-for-another-bank", what: "The caller asks for the value of a quoted PCR in another bank.", expect: "pcr-not-quoted", change: asks(vector.PCR{Bank: uint16(forge.BankSHA384)})},
		{name: "asked-for-pcr-16", what: "The caller asks for PCR 16, which any program can reset.", expect: "pcr-resettable", change: asks(vector.PCR{Bank: uint16(forge.BankSHA256), Index: 16})},
		{name: "asked-for-pcr-23", what: "The caller asks for PCR 23, which any program can reset.", expect: "pcr-resettable", change: asks(vector.PCR{Bank: uint16(forge.BankSHA256), Index: 23})},
		{name: "signature-with-bytes-behind", what: "A byte stands behind the TPMT_SIGNATURE.", expect: "signature-encoding",
			change: held(func(v *vector.Quote) { v.Signature = append(v.Signature, 0) })},
	}
}

// clockBehind is what stands behind the low byte of restartCount: the safe flag, the
// firmware version, one selection of three octets and a digest of SHA-256.
const clockBehind = 1 + 8 + 4 + 2 + 1 + 3 + 2 + 32
