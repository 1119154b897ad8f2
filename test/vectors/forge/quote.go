package forge

import (
	"bytes"
	"encoding/asn1"
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit/softak"
	"github.com/nodeattest/nodeattest/oid"
)

// Banks of PCRs, by their hash.
const (
	BankSHA1   = tpm2.TPMAlgSHA1
	BankSHA256 = tpm2.TPMAlgSHA256
	BankSHA384 = tpm2.TPMAlgSHA384
	bankSM3    = tpm2.TPMAlgSM3256
)

// Quoting is a quote before it is marshalled and signed. A good one is accepted; a vector
// changes one thing in it.
type Quoting struct {
	Signing
	PCRs []statement.PCR // sent with it, in this order
}

// QuoteBy quotes PCRs 0 to 7 of SHA-256.
func (w *Bench) QuoteBy(ak *SoftAK) *Quoting {
	q := &Quoting{Signing: w.signing(ak, tpm2.TPMSTAttestQuote)}
	q.Attest.ExtraData, q.Attest.Quote = LoneQuoteData, &statement.QuoteInfo{}
	q.SelectPCRs(SelectionOf(BankSHA256, 0xff, 0, 0))
	return q
}

// SelectionOf selects PCRs of a bank, by octets.
func SelectionOf(bank tpm2.TPMAlgID, octets ...byte) statement.PCRSelection {
	return statement.PCRSelection{Hash: bank, Select: octets}
}

// SelectPCRs quotes these, with values derived from bank and index.
func (q *Quoting) SelectPCRs(selections ...statement.PCRSelection) {
	q.Attest.Quote.Selections, q.PCRs = nil, nil
	for _, s := range selections {
		q.Attest.Quote.Selections = append(q.Attest.Quote.Selections, s)
		for _, i := range s.PCRs() {
			q.PCRs = append(q.PCRs, PCRValue(s.Hash, i))
		}
	}
	q.Digest()
}

// PCRValue is a PCR with the value that a good machine has.
func PCRValue(bank tpm2.TPMAlgID, index int) statement.PCR {
	size := Must(bank.Hash()).Size()
	return statement.PCR{Bank: bank, Index: index, Value: bytes.Repeat([]byte{byte(0x10 + index)}, size)}
}

// Digest computes the digest as a TPM does.
func (q *Quoting) Digest() {
	h := Must(q.Scheme.Hash.Hash()).New()
	for _, p := range q.PCRs {
		h.Write(p.Value)
	}
	q.Attest.Quote.PCRDigest = h.Sum(nil)
}

// ChangeAK changes the AK's public area, with the same key.
func (q *Quoting) ChangeAK(how func(*statement.Public)) {
	q.AK = &SoftAK{AK: softak.AK{Private: q.AK.Private, Public: softak.Changed(q.AK.Public, how)}}
	q.Attest.QualifiedSigner = q.AK.Primary()
}

// statement is the DER of the quote in an answer, with the values in their given order:
// statement.MarshalQuote would sort them.
func (q *Quoting) statement() []byte {
	raw, signature := q.Signed()
	var values [][]byte
	for _, p := range q.PCRs {
		values = append(values, Must(asn1.Marshal(struct {
			Bank, Index int
			Value       []byte
		}{int(p.Bank), p.Index, p.Value})))
	}
	return TLV(0x30, TLV(4, raw), TLV(4, signature), TLV(0x30, values...))
}

// QuoteAttack is one change to a good quote.
type QuoteAttack = Attack[func(*Quoting)]

// LoneQuoteData is the qualifying data of quotes outside answers.
var LoneQuoteData = Derive("qualifying data of quotes", 32)

// QuoteAttacks are all attacks on one quote.
func QuoteAttacks() []QuoteAttack {
	return slices.Concat(quotedStatements(), quotedSelections(), quotedValues(), quotedSigners())
}

// quotes applies a change of the signed bytes to the quote.
func quotes(how func(*Signing)) func(*Quoting) { return func(q *Quoting) { how(&q.Signing) } }

// quotedStatements concern the TPMS_ATTEST and its qualifying data.
func quotedStatements() []QuoteAttack {
	return listed("quotes", map[string]func(*Quoting){
		"forged-magic":   quotes(patch(func(b []byte) []byte { b[0] ^= 1; return b })),
		"trailing-bytes": quotes(patch(func(b []byte) []byte { return append(b, 0) })),
		"truncated":      quotes(patch(func(b []byte) []byte { return b[:len(b)-1] })),
		"is-a-certify-statement": func(q *Quoting) {
			certifyInPlace(&q.Signing, &statement.CertifyInfo{Name: q.AK.Public.Name(), QualifiedName: q.AK.Public.Name()})
		},
		"is-a-command-audit":                   quotes(patch(func(b []byte) []byte { b[4], b[5] = 0x80, 0x15; return b })),
		"clock-safe-flag-not-boolean":          quotes(unsafe),
		"without-qualifying-data":              func(q *Quoting) { q.Attest.ExtraData = nil },
		"with-a-prefix-of-the-qualifying-data": func(q *Quoting) { q.Attest.ExtraData = LoneQuoteData[:31] },
		"with-other-qualifying-data":           func(q *Quoting) { q.Attest.ExtraData = Derive("other qualifying data", 32) },
	})
}

// quotedSelections concern which PCRs the quote covers.
func quotedSelections() []QuoteAttack {
	selects := func(selections ...statement.PCRSelection) func(*Quoting) {
		return func(q *Quoting) { q.SelectPCRs(selections...) }
	}
	return listed("PCR selections", map[string]func(*Quoting){
		"of-no-bank":                 selects(),
		"of-no-pcr":                  selects(SelectionOf(BankSHA256, 0, 0, 0)),
		"of-no-pcr-of-a-second-bank": selects(SelectionOf(BankSHA256, 0xff, 0, 0), SelectionOf(BankSHA384, 0, 0, 0)),
		"of-one-bank-twice":          selects(SelectionOf(BankSHA256, 1, 0, 0), SelectionOf(BankSHA256, 2, 0, 0)),
		"of-the-sha1-bank":           selects(SelectionOf(BankSHA1, 1, 0, 0)),
		"of-an-unknown-bank":         func(q *Quoting) { q.Attest.Quote.Selections[0].Hash = tpm2.TPMAlgSM3256 },
		"of-five-octets":             selects(SelectionOf(BankSHA256, 1, 0, 0, 0, 0)),
	})
}

// quotedValues concern the values that the node sends with the quote.
func quotedValues() []QuoteAttack {
	return listed("PCR values", map[string]func(*Quoting){
		"pcr-listed-twice": func(q *Quoting) {
			q.PCRs = slices.Insert(q.PCRs, 0, statement.PCR{Bank: BankSHA256, Index: 7, Value: make([]byte, 32)})
		},
		"pcr-listed-twice-alike":    func(q *Quoting) { q.PCRs = append(q.PCRs, q.PCRs[0]) },
		"pcr-outside-the-selection": func(q *Quoting) { q.PCRs = append(q.PCRs, PCRValue(BankSHA256, 8)) },
		"pcr-of-another-bank":       func(q *Quoting) { q.PCRs = append(q.PCRs, PCRValue(BankSHA384, 0)) },
		"pcr-of-the-wrong-bank":     func(q *Quoting) { q.PCRs[0].Bank = BankSHA384 },
		"pcr-of-an-unknown-bank":    func(q *Quoting) { q.PCRs[0].Bank = bankSM3 },
		"pcr-32":                    func(q *Quoting) { q.PCRs[0].Index = 32 },
		"pcr-missing":               func(q *Quoting) { q.PCRs = q.PCRs[1:] },
		"pcrs-missing":              func(q *Quoting) { q.PCRs = []statement.PCR{} },
		"pcr-value-one-bit-off":     func(q *Quoting) { q.PCRs[3].Value[31] ^= 1 },
		"pcr-values-swapped":        func(q *Quoting) { q.PCRs[0].Value, q.PCRs[1].Value = q.PCRs[1].Value, q.PCRs[0].Value },
		"pcr-value-moved": func(q *Quoting) {
			q.PCRs[1].Value = append([]byte{q.PCRs[0].Value[31]}, q.PCRs[1].Value...)
			q.PCRs[0].Value = q.PCRs[0].Value[:31]
		},
		"pcr-digest-changed":            func(q *Quoting) { q.Attest.Quote.PCRDigest[0] ^= 1 },
		"pcr-digest-under-another-hash": func(q *Quoting) { own := q.Scheme; q.Scheme = SchemeECDSA384; q.Digest(); q.Scheme = own },
		"pcr-digest-absent":             func(q *Quoting) { q.Attest.Quote.PCRDigest = nil },
	})
}

// quotedSigners concern the AK and its signature.
func quotedSigners() []QuoteAttack {
	ak := func(how func(*statement.Public)) func(*Quoting) { return func(q *Quoting) { q.ChangeAK(how) } }
	signature := func(how func(*statement.Signature)) func(*Quoting) { return func(q *Quoting) { q.Signature = how } }
	return listed("signers of quotes", map[string]func(*Quoting){
		"by-another-ak":                   func(q *Quoting) { q.AK = &SoftAK{AK: softak.AK{Private: q.w.AKOther.Private, Public: q.AK.Public}} },
		"by-an-ak-that-decrypts":          ak(func(p *statement.Public) { p.Attributes |= statement.AttributeDecrypt }),
		"by-an-ak-that-is-not-restricted": ak(func(p *statement.Public) { p.Attributes &^= statement.AttributeRestricted }),
		"by-an-ak-without-a-scheme":       ak(func(p *statement.Public) { p.Scheme = softak.NoScheme }),
		"by-an-ak-under-a-sha1-name":      ak(func(p *statement.Public) { p.NameAlg = tpm2.TPMAlgSHA1 }),
		"by-a-key-from-outside":           func(q *Quoting) { q.Attest.QualifiedSigner = q.AK.Public.Name() },
		"by-nobody":                       func(q *Quoting) { q.Attest.QualifiedSigner = nil },
		"signed-with-another-hash":        func(q *Quoting) { q.Scheme.Hash = tpm2.TPMAlgSHA384; q.Digest() },
		"signed-with-r-zero":              signature(func(v *statement.Signature) { v.R = []byte{0} }),
		"signed-with-s-over-the-order":    signature(func(v *statement.Signature) { v.S = bytes.Repeat([]byte{0xff}, 32) }),
	})
}

// QuotedAttacks are attacks on the quote in an answer: it must be from the same AK, challenge
// and boot as the certify statement.
func QuotedAttacks() []Forged {
	log := EventLog()
	statements := func(how func([]message.Statement) []message.Statement) func(*Forgery) {
		return func(f *Forgery) { f.Behind = how }
	}
	der := func(how func([]byte) []byte) func(*Forgery) { return func(f *Forgery) { f.onQuote = how } }
	return listed("quotes in answers", map[string]func(*Forgery){
		"quote-by-another-ak":              func(f *Forgery) { f.quote.AK, f.quote.Attest.QualifiedSigner = f.w.AKOther, f.w.AKOther.Primary() },
		"quote-signed-by-another-ak":       func(f *Forgery) { f.quote.AK = f.w.AKOther },
		"quote-with-the-data-of-certify":   func(f *Forgery) { _, f.quote.Attest.ExtraData = f.Secrets(f.B) },
		"certify-with-the-data-of-a-quote": func(f *Forgery) { f.Attest.ExtraData = f.quote.Attest.ExtraData },
		"quote-of-another-challenge":       func(f *Forgery) { f.quote.Attest.ExtraData = LoneQuoteData },
		"quote-of-an-earlier-boot":         func(f *Forgery) { f.quote.Attest.ResetCount-- },
		"quote-before-a-resume":            func(f *Forgery) { f.quote.Attest.RestartCount++ },
		"quote-is-the-certify-statement":   func(f *Forgery) { certifyInPlace(&f.quote.Signing, f.Attest.Certified) },
		"quote-of-other-values":            func(f *Forgery) { f.quote.PCRs[7].Value = bytes.Repeat([]byte{1}, 32); f.quote.Digest() },
		"quote-without-an-asked-pcr":       func(f *Forgery) { f.quote.SelectPCRs(SelectionOf(BankSHA256, 0x7f, 0, 0)) },
		"quote-absent":                     statements(func([]message.Statement) []message.Statement { return nil }),
		"quote-twice":                      statements(func(s []message.Statement) []message.Statement { return append(s, s[0]) }),
		"event-log-without-quote":          statements(func([]message.Statement) []message.Statement { return []message.Statement{log} }),
		"event-log-before-quote":           statements(func(s []message.Statement) []message.Statement { return []message.Statement{log, s[0]} }),
		"quote-pcr-twice-in-der":           der(Replaced(2, Edited(func(e [][]byte) [][]byte { return append([][]byte{e[0]}, e...) }))),
		"quote-pcrs-descending":            der(Replaced(2, swapped)),
		"quote-without-values":             der(Replaced(2, With(TLV(0x30)...))),
		"quote-with-a-trailing-field":      der(Appended(5, 0)),
	})
}

// EventLog is a statement with an event log.
func EventLog() message.Statement {
	return message.Statement{Type: oid.NodeAttestEventLog, Stmt: Must(statement.MarshalEventLog([]byte("a log")))}
}
