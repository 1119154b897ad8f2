package main

import (
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
)

// heldQuote is a quote and a caller's expectations, which hold changes.
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
		out.PCRs = append(out.PCRs, vector.PCR(p))
	}
	if q.hold != nil {
		q.hold(out)
	}
	return out
}

func (w *world) quotes() {
	w.acceptedQuotes()
	w.quotesBy(w.AKP256, forge.QuoteAttacks())
	w.quotesBy(w.AKRSA, rsaQuotes())
	for _, a := range heldQuotes() {
		q := w.hold(w.AKP256)
		a.Change(q)
		w.refuseAs("quote-"+a.Name, a.What, a.Expect, q.vector(), nil)
	}
}

func (w *world) quotesBy(ak *forge.SoftAK, attacks []forge.QuoteAttack) {
	for _, a := range attacks {
		q := w.hold(ak)
		a.Change(q.Quoting)
		w.refuseAs("quote-"+a.Name, a.What, a.Expect, q.vector(), nil)
	}
}

// rsaQuotes are attacks on a quote by an RSA AK.
func rsaQuotes() []forge.QuoteAttack {
	signature := func(how func([]byte) []byte) func(*forge.Quoting) {
		return func(q *forge.Quoting) { q.Signature = func(v *statement.Signature) { v.RSA = how(v.RSA) } }
	}
	return listed("quotes by an RSA key", map[string]func(*forge.Quoting){
		"signed-with-sha1":      sha1AK,
		"signature-bit-flipped": signature(flipped),
		"signature-truncated":   signature(truncated),
	})
}

// sha1AK gives the AK a SHA-1 scheme, which the quote's digest follows.
func sha1AK(q *forge.Quoting) {
	q.Scheme = sha1RSASSA
	q.ChangeAK(func(p *statement.Public) { p.Scheme = q.Scheme })
	q.Digest()
}

// acceptedQuotes are good quotes, and quotes that a caller knowingly tolerates.
func (w *world) acceptedQuotes() {
	trusted, untrusted := &vector.Result{ClockTrusted: new(true)}, &vector.Result{ClockTrusted: new(false)}
	seven := forge.PCRValue(forge.BankSHA256, 7)
	selects := func(s ...statement.PCRSelection) func(*heldQuote) { return func(q *heldQuote) { q.SelectPCRs(s...) } }
	for _, a := range listed("good quotes", map[string]struct {
		result *vector.Result
		how    func(*heldQuote)
	}{
		"ecdsa":                    {trusted, func(*heldQuote) {}},
		"rsassa":                   {trusted, func(q *heldQuote) { q.Quoting = w.QuoteBy(w.AKRSA) }},
		"values-in-another-order":  {trusted, func(q *heldQuote) { slices.Reverse(q.PCRs) }},
		"selection-of-four-octets": {trusted, selects(forge.SelectionOf(forge.BankSHA256, 0xff, 0, 0, 0))},
		"selection-of-one-octet":   {trusted, selects(forge.SelectionOf(forge.BankSHA256, 0xff))},
		"two-banks":                {trusted, selects(forge.SelectionOf(forge.BankSHA384, 3, 0, 0), forge.SelectionOf(forge.BankSHA256, 0x80, 0, 0))},
		"selection-as-asked":       {trusted, wants(forge.BankSHA256, 0xff, 0, 0, 0)},
		"value-asked": {&vector.Result{ClockTrusted: new(true), Value: seven.Value},
			held(func(v *vector.Quote) { v.Asked = &vector.PCR{Bank: forge.BankSHA256, Index: 7} })},
		"with-a-resettable-pcr": {trusted, selects(forge.SelectionOf(forge.BankSHA256, 1, 0, 1))},
		"by-a-key-below-another": {untrusted,
			func(q *heldQuote) {
				q.Attest.QualifiedSigner = statement.QualifiedName(w.AKOther.Primary(), q.AK.Public.Name())
			}},
		"by-a-bare-key": {untrusted, held(func(v *vector.Quote) { v.AKPublic, v.AKKey = nil, forge.SPKI(w.AKP256.Private.Public()) })},
		"of-the-sha1-bank-allowed": {trusted, func(q *heldQuote) {
			q.SelectPCRs(forge.SelectionOf(forge.BankSHA1, 1, 0, 0), forge.SelectionOf(forge.BankSHA256, 1, 0, 0))
			q.hold = option("insecureAllowSHA1Bank")
		}},
		"signed-with-sha1-allowed": {trusted, func(q *heldQuote) {
			q.Quoting = w.QuoteBy(w.AKRSA)
			sha1AK(q.Quoting)
			q.hold = option("insecureAllowSHA1Signature")
		}},
		"under-a-sha1-name-allowed": {trusted, func(q *heldQuote) {
			q.ChangeAK(func(p *statement.Public) { p.NameAlg = tpm2.TPMAlgSHA1 })
			q.hold = option("insecureAllowSHA1Name")
		}},
		"with-any-qualifying-data": {trusted, func(q *heldQuote) {
			q.Attest.ExtraData, q.hold = []byte("recorded"), func(v *vector.Quote) {
				v.QualifyingData, v.Options = nil, []string{"insecureAllowAnyQualifyingData"}
			}
		}},
	}) {
		q := w.hold(w.AKP256)
		a.Change.how(q)
		w.acceptAs("quote-"+a.Name, a.What, q.vector(), nil, a.Change.result)
	}
}

// option is a caller that sets that field of statement.QuoteOptions.
func option(name string) func(*vector.Quote) {
	return func(v *vector.Quote) { v.Options = []string{name} }
}

// held is a good quote that is checked against something else.
func held(how func(*vector.Quote)) func(*heldQuote) { return func(q *heldQuote) { q.hold = how } }

// wants is a caller that requires that selection.
func wants(bank tpm2.TPMAlgID, octets ...byte) func(*heldQuote) {
	return held(func(v *vector.Quote) { v.Selection = []vector.PCRSelection{{Hash: bank, Select: octets}} })
}

// heldQuotes are good quotes that are checked against something else, and quotes that were
// changed after they were signed.
func heldQuotes() []forge.Attack[func(*heldQuote)] {
	asks := func(bank tpm2.TPMAlgID, index int) func(*heldQuote) {
		return func(q *heldQuote) {
			q.SelectPCRs(forge.SelectionOf(forge.BankSHA256, 1, 0, 0x81))
			q.hold = func(v *vector.Quote) { v.Asked = &vector.PCR{Bank: bank, Index: index} }
		}
	}
	return listed("held quotes", map[string]func(*heldQuote){
		"clock-changed":                        held(func(v *vector.Quote) { v.Attest[len(v.Attest)-1-clockBehind] ^= 1 }),
		"for-a-caller-without-an-ak":           held(func(v *vector.Quote) { v.AKPublic = nil }),
		"for-a-caller-without-qualifying-data": held(func(v *vector.Quote) { v.QualifyingData = nil }),
		"for-a-caller-of-two-minds":            held(option("insecureAllowAnyQualifyingData")),
		"of-fewer-pcrs-than-asked":             wants(forge.BankSHA256, 0xff, 1, 0),
		"of-more-pcrs-than-asked":              wants(forge.BankSHA256, 0x80, 0, 0),
		"of-another-bank-than-asked":           wants(forge.BankSHA384, 0xff, 0, 0),
		"for-a-caller-who-asks-for-nothing":    held(func(v *vector.Quote) { v.Selection = []vector.PCRSelection{} }),
		"asked-for-a-pcr-outside":              asks(forge.BankSHA256, 1),
		"asked-for-another-bank":               asks(forge.BankSHA384, 0),
		"asked-for-pcr-16":                     asks(forge.BankSHA256, 16),
		"asked-for-pcr-23":                     asks(forge.BankSHA256, 23),
		"signature-trailing-bytes":             held(func(v *vector.Quote) { v.Signature = append(v.Signature, 0) }),
	})
}

// clockBehind is the size of what follows the low byte of restartCount: the safe flag, the
// firmware version, one selection of three octets and a SHA-256 digest.
const clockBehind = 1 + 8 + 4 + 2 + 1 + 3 + 2 + 32

// quotedAnswers are answers with a quote.
func (w *world) quotedAnswers() {
	quoted := func(change func(*forge.Forgery)) *forge.Forgery {
		f := w.Forge(w.AKP256, forge.Join{}).WithQuote()
		change(f)
		return f
	}
	good := &vector.Environment{GoodPCRs: []vector.PCR{vector.PCR(forge.PCRValue(forge.BankSHA256, 0)), vector.PCR(forge.PCRValue(forge.BankSHA256, 7))}}
	unchanged := func(*forge.Forgery) {}
	w.accept("quote-in-answer", quoted(unchanged), good, resultOf(true))
	w.accept("quote-in-answer-unasked", quoted(unchanged), nil, resultOf(true))
	w.accept("quote-and-event-log-in-answer", quoted(func(f *forge.Forgery) {
		f.Behind = func(s []message.Statement) []message.Statement { return append(s, forge.EventLog()) }
	}), nil, resultOf(true))
	for _, a := range forge.QuotedAttacks() {
		v := w.refuseAs("answer-"+a.Name, a.What, a.Expect, quoted(a.Change), nil)
		if a.Wanted {
			v.Environment = good
		}
	}
}
