package forge

import (
	"bytes"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
)

// QuotedAttack is one change to a good answer with a good quote, where the policy asks
// for one or does not.
type QuotedAttack struct {
	// Name is the vector's, What its description, Expect the check that refuses.
	Name, What, Expect string
	Change             func(*Forgery)
	Wanted             bool // the policy asks for a quote
	live               string
}

// QuotedAttacks are attacks on the quote in an answer: it must be of the AK, the
// challenge and the boot of the certify statement.
func QuotedAttacks() []QuotedAttack {
	log := EventLog()
	return []QuotedAttack{
		{"quote-by-another-ak", "The quote is a good one of another TPM, over the node's challenge.", "quote-boot", func(f *Forgery) {
			f.quote.AK = f.w.AKOther
			f.quote.Attest.QualifiedSigner = statement.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, f.w.AKOther.Public.Name())
		}, true, ""},
		{"quote-signed-by-another-ak", "Another TPM's AK signs the quote under the node's AK.", "signature",
			func(f *Forgery) { f.quote.AK = f.w.AKOther }, true, ""},
		{"quote-with-the-data-of-certify", "The quote has the qualifying data of the certify statement.", "qualifying-data",
			func(f *Forgery) { _, f.quote.Attest.ExtraData = f.Secrets(f.B) }, true, "quote-qualifying-data-of-certify"},
		{"certify-with-the-data-of-a-quote", "The certify statement has the qualifying data of the quote.", "qualifying-data",
			func(f *Forgery) { f.Attest.ExtraData = f.quote.Attest.ExtraData }, true, ""},
		{"quote-of-another-challenge", "The quote is over another challenge.", "qualifying-data",
			func(f *Forgery) { f.quote.Attest.ExtraData = LoneQuoteData }, true, ""},
		{"quote-of-an-earlier-boot", "The quote has another reset count than the certify statement.", "quote-boot",
			func(f *Forgery) { f.quote.Attest.ResetCount-- }, true, "quote-of-another-boot"},
		{"quote-before-a-resume", "The quote has another restart count than the certify statement.", "quote-boot",
			func(f *Forgery) { f.quote.Attest.RestartCount++ }, true, ""},
		{"quote-is-the-certify-statement", "A certify statement stands where the quote belongs.", "attest-type", func(f *Forgery) {
			f.quote.Attest.Type, f.quote.Attest.Quote, f.quote.Attest.Certified = tpm2.TPMSTAttestCertify, nil, f.Attest.Certified
		}, true, "quote-is-the-certify-statement"},
		{"quote-of-other-values", "The quote is good, and PCR 7 has another value than the one asked for.", "pcr-policy",
			func(f *Forgery) { f.quote.PCRs[7].Value = bytes.Repeat([]byte{1}, 32); f.quote.Digest() }, true, "quote-values-not-accepted"},
		{"quote-without-an-asked-pcr", "The quote does not cover PCR 7, which is asked for.", "pcr-not-quoted",
			func(f *Forgery) { f.quote.SelectPCRs(SelectionOf(BankSHA256, 0x7f, 0, 0)) }, true, "quote-without-a-needed-pcr"},
		{"quote-absent", "The answer has no quote, and one is asked for.", "quote-missing", func(f *Forgery) {
			f.Behind = func([]message.Statement) []message.Statement { return nil }
		}, true, "quote-missing"},
		{"quote-twice", "The answer has two quotes.", "bundle-statements", func(f *Forgery) {
			f.Behind = func(s []message.Statement) []message.Statement { return append(s, s[0]) }
		}, true, "two-quotes"},
		{"event-log-without-quote", "The answer has an event log, and no quote that vouches for it.", "bundle-statements", func(f *Forgery) {
			f.Behind = func([]message.Statement) []message.Statement {
				return []message.Statement{log}
			}
		}, false, ""},
		{"event-log-before-quote", "The event log stands in front of the quote.", "bundle-statements", func(f *Forgery) {
			f.Behind = func(s []message.Statement) []message.Statement {
				return []message.Statement{log, s[0]}
			}
		}, false, ""},
		{"quote-pcr-twice-in-der", "The quote's list has PCR 0 twice.", "pcr-duplicate", func(f *Forgery) {
			f.onQuote = Replaced(2, Edited(func(e [][]byte) [][]byte { return append([][]byte{e[0]}, e...) }))
		}, false, ""},
		{"quote-pcrs-descending", "The quote's list does not ascend.", "message-encoding", func(f *Forgery) {
			f.onQuote = Replaced(2, Edited(func(e [][]byte) [][]byte { e[0], e[1] = e[1], e[0]; return e }))
		}, false, ""},
		{"quote-without-values", "The quote's list is empty.", "message-encoding", func(f *Forgery) { f.onQuote = Replaced(2, With(TLV(0x30)...)) }, false, ""},
		{"quote-with-a-field-behind", "A field stands behind the quote's values.", "message-encoding", func(f *Forgery) { f.onQuote = Appended(5, 0) }, false, ""},
	}
}

// EventLog is a statement with an event log.
func EventLog() message.Statement {
	return message.Statement{Type: oid.NodeAttestEventLog, Stmt: Must(statement.MarshalEventLog([]byte("a log")))}
}
