package main

import (
	"bytes"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/vector"
	"github.com/nodeattest/nodeattest/oid"
)

// quotedAnswer is a good answer with a good quote of the same challenge.
type quotedAnswer struct {
	*forgery
	quote *quoting
	// statements changes what stands behind the proof.
	statements func([]attest.AttestationStatement) []attest.AttestationStatement
	onQuote    func(der []byte) []byte
}

func (w *world) quotedAnswer() *quotedAnswer {
	a := &quotedAnswer{forgery: w.forge(w.akP256, join{}), quote: w.quoteBy(w.akP256)}
	secret, _ := a.secrets(a.b)
	a.quote.attest.ExtraData = vector.QuotedData(secret, must(a.b.Marshal()))
	return a
}

func (a *quotedAnswer) object(w *world) *csr.Request {
	p := takeApart(a.answer(w))
	q := a.quote.vector()
	e := &tpm.QuoteEvidence{Attest: q.Attest, Signature: q.Signature}
	for _, r := range q.PCRs {
		e.PCRs = append(e.PCRs, tpm.PCR{Bank: tpm2.TPMAlgID(r.Bank), Index: r.Index, Value: r.Value})
	}
	behind := []attest.AttestationStatement{{Type: oid.NodeAttestQuote, Stmt: change(must(tpm.MarshalQuote(e)), a.onQuote)}}
	if a.statements != nil {
		behind = a.statements(behind)
	}
	p.evidence.Statements = append(p.evidence.Statements, behind...)
	return p.together()
}

// quotedAnswers are attacks on the quote in an answer: it must be of the AK, the
// challenge and the boot of the certify statement.
func (w *world) quotedAnswers() {
	good := &vector.Environment{GoodPCRs: []vector.PCR{pcr(bankSHA256, 0), pcr(bankSHA256, 7)}}
	w.addGood("quote-in-answer", "The answer carries a quote, over the same challenge by the same AK, of the values that are asked for.", w.quotedAnswer().object(w), good, resultOf(true))
	w.addGood("quote-in-answer-unasked", "The answer carries a quote that nobody asks for.", w.quotedAnswer().object(w), nil, resultOf(true))
	log := attest.AttestationStatement{Type: oid.NodeAttestEventLog, Stmt: must(tpm.MarshalEventLog([]byte("a log")))}
	a := w.quotedAnswer()
	a.statements = func(s []attest.AttestationStatement) []attest.AttestationStatement { return append(s, log) }
	w.addGood("quote-and-event-log-in-answer", "An event log stands behind the quote, and nobody asks for it.", a.object(w), nil, resultOf(true))

	for _, c := range []struct {
		name, what, expect string
		change             func(*quotedAnswer)
		env                *vector.Environment
	}{
		{"quote-by-another-ak", "The quote is a good one of another TPM, over the node's challenge.", "quote-boot", func(a *quotedAnswer) {
			a.quote.ak = w.akOther
			a.quote.attest.QualifiedSigner = tpm.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, w.akOther.public.Name())
		}, good},
		{"quote-signed-by-another-ak", "Another TPM's AK signs the quote under the node's AK.", "signature",
			func(a *quotedAnswer) { a.quote.ak = w.akOther }, good},
		{"quote-with-the-data-of-certify", "The quote has the qualifying data of the certify statement.", "qualifying-data",
			func(a *quotedAnswer) { _, a.quote.attest.ExtraData = a.secrets(a.b) }, good},
		{"certify-with-the-data-of-a-quote", "The certify statement has the qualifying data of the quote.", "qualifying-data",
			func(a *quotedAnswer) { a.attest.ExtraData = a.quote.attest.ExtraData }, good},
		{"quote-of-another-challenge", "The quote is over another challenge.", "qualifying-data",
			func(a *quotedAnswer) { a.quote.attest.ExtraData = quotedData }, good},
		{"quote-of-an-earlier-boot", "The quote has another reset count than the certify statement.", "quote-boot",
			func(a *quotedAnswer) { a.quote.attest.ResetCount-- }, good},
		{"quote-before-a-resume", "The quote has another restart count than the certify statement.", "quote-boot",
			func(a *quotedAnswer) { a.quote.attest.RestartCount++ }, good},
		{"quote-is-the-certify-statement", "A certify statement stands where the quote belongs.", "attest-type", func(a *quotedAnswer) {
			a.quote.attest.Type, a.quote.attest.Quote, a.quote.tpm.Certified = tpm2.TPMSTAttestCertify, nil, a.tpm.Certified
		}, good},
		{"quote-of-other-values", "The quote is good, and PCR 7 has another value than the one asked for.", "pcr-policy",
			func(a *quotedAnswer) { a.quote.pcrs[7].Value = bytes.Repeat([]byte{1}, 32); a.quote.digest() }, good},
		{"quote-without-an-asked-pcr", "The quote does not cover PCR 7, which is asked for.", "pcr-not-quoted",
			func(a *quotedAnswer) { a.quote.selectPCRs(selectionOf(bankSHA256, 0x7f, 0, 0)) }, good},
		{"quote-absent", "The answer has no quote, and one is asked for.", "quote-missing", func(a *quotedAnswer) {
			a.statements = func([]attest.AttestationStatement) []attest.AttestationStatement { return nil }
		}, good},
		{"quote-twice", "The answer has two quotes.", "bundle-statements", func(a *quotedAnswer) {
			a.statements = func(s []attest.AttestationStatement) []attest.AttestationStatement { return append(s, s[0]) }
		}, good},
		{"event-log-without-quote", "The answer has an event log, and no quote that vouches for it.", "bundle-statements", func(a *quotedAnswer) {
			a.statements = func([]attest.AttestationStatement) []attest.AttestationStatement {
				return []attest.AttestationStatement{log}
			}
		}, nil},
		{"event-log-before-quote", "The event log stands in front of the quote.", "bundle-statements", func(a *quotedAnswer) {
			a.statements = func(s []attest.AttestationStatement) []attest.AttestationStatement {
				return []attest.AttestationStatement{log, s[0]}
			}
		}, nil},
		{"quote-pcr-twice-in-der", "The quote's list has PCR 0 twice.", "pcr-duplicate", func(a *quotedAnswer) {
			a.onQuote = replaced(2, edited(func(e [][]byte) [][]byte { return append([][]byte{e[0]}, e...) }))
		}, nil},
		{"quote-pcrs-descending", "The quote's list does not ascend.", "message-encoding", func(a *quotedAnswer) {
			a.onQuote = replaced(2, edited(func(e [][]byte) [][]byte { e[0], e[1] = e[1], e[0]; return e }))
		}, nil},
		{"quote-without-values", "The quote's list is empty.", "message-encoding", func(a *quotedAnswer) { a.onQuote = replaced(2, with(tlv(0x30)...)) }, nil},
		{"quote-with-a-field-behind", "A field stands behind the quote's values.", "message-encoding", func(a *quotedAnswer) { a.onQuote = appended(5, 0) }, nil},
	} {
		a := w.quotedAnswer()
		c.change(a)
		w.add(&vector.Vector{Name: "answer-" + c.name, Class: "binding", Level: vector.LevelVerify, Description: c.what, Expect: c.expect,
			Package: vector.PackageAttest, Object: a.object(w), Environment: c.env})
	}
}
