package forge

import (
	"bytes"
	"encoding/asn1"
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
)

// Banks of PCRs, by their hash.
const (
	BankSHA1   = tpm2.TPMAlgSHA1
	BankSHA256 = tpm2.TPMAlgSHA256
	BankSHA384 = tpm2.TPMAlgSHA384
	bankSM3    = tpm2.TPMAlgSM3256
)

// Quoting is a quote before it is marshalled and signed. A good one is accepted; a
// vector changes one thing of it.
type Quoting struct {
	Signing
	PCRs []statement.PCR // that are sent beside it, in this order
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

// SelectPCRs quotes these, with values that follow from bank and index.
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

// Digest computes what the TPM would.
func (q *Quoting) Digest() {
	h := Must(q.scheme.Hash.Hash()).New()
	for _, p := range q.PCRs {
		h.Write(p.Value)
	}
	q.Attest.Quote.PCRDigest = h.Sum(nil)
}

// ChangeAK changes the AK's public area, of the same key.
func (q *Quoting) ChangeAK(how func(*statement.Public)) {
	q.AK = &SoftAK{Private: q.AK.Private, Public: Changed(q.AK.Public, how)}
	q.Attest.QualifiedSigner = q.AK.Primary()
}

// statement is the DER of the quote in an answer, with the values in the order that
// they have: statement.MarshalQuote would sort them.
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

// SHA1AK gives the AK a scheme over SHA-1, which the quote's digest follows.
func SHA1AK(q *Quoting) {
	q.scheme = sha1RSASSA
	q.ChangeAK(func(p *statement.Public) { p.Scheme = q.scheme })
	q.Digest()
}

// QuoteAttack is one change to a good quote.
type QuoteAttack = Attack[func(*Quoting)]

// LoneQuoteData is the qualifying data of quotes outside answers.
var LoneQuoteData = Derive("qualifying data of quotes", 32)

// QuoteAttacks are all attacks on one quote.
func QuoteAttacks() []QuoteAttack {
	return slices.Concat(quotedStatements(), quotedSelections(), quotedValues(), quotedSigners())
}

// quotes has a change of what is signed be one of the quote.
func quotes(how func(*Signing)) func(*Quoting) { return func(q *Quoting) { how(&q.Signing) } }

// quotedStatements are about the TPMS_ATTEST and its qualifying data.
func quotedStatements() []QuoteAttack {
	return []QuoteAttack{
		{Name: "forged-magic", What: "The structure does not begin with TPM_GENERATED_VALUE.", Expect: "attest-magic",
			Change: quotes(patch(func(b []byte) []byte { b[0] ^= 1; return b }))},
		{Name: "with-bytes-behind", What: "A byte stands behind the TPMS_ATTEST, under the signature.", Expect: "attest-encoding",
			Change: quotes(patch(func(b []byte) []byte { return append(b, 0) }))},
		{Name: "truncated", What: "The TPMS_ATTEST lacks its last byte, under the signature.", Expect: "attest-encoding",
			Change: quotes(patch(func(b []byte) []byte { return b[:len(b)-1] }))},
		{Name: "is-a-certify-statement", What: "A certify statement with the right qualifying data stands in place of the quote.", Expect: "attest-type",
			Change: func(q *Quoting) {
				certifyInPlace(&q.Signing, &statement.CertifyInfo{Name: q.AK.Public.Name(), QualifiedName: q.AK.Public.Name()})
			}},
		{Name: "is-a-command-audit", What: "The type says command audit over the bytes of a quote.", Expect: "attest-type",
			Change: quotes(patch(func(b []byte) []byte { b[4], b[5] = 0x80, 0x15; return b }))},
		{Name: "clock-safe-flag-not-boolean", What: "The clock's safe flag is 2, which is no TPMI_YES_NO.", Expect: "attest-encoding",
			Change: quotes(unsafe)},
		{Name: "without-qualifying-data", live: "quote-qualifying-data-absent", What: "The quote has no qualifying data.", Expect: "qualifying-data",
			Change: func(q *Quoting) { q.Attest.ExtraData = nil }},
		{Name: "with-a-prefix-of-the-qualifying-data", What: "The quote has the first bytes of the qualifying data.", Expect: "qualifying-data",
			Change: func(q *Quoting) { q.Attest.ExtraData = LoneQuoteData[:31] }},
		{Name: "with-other-qualifying-data", live: "quote-qualifying-data-other", What: "The quote is for another challenge.", Expect: "qualifying-data",
			Change: func(q *Quoting) { q.Attest.ExtraData = Derive("other qualifying data", 32) }},
	}
}

// quotedSelections are about which PCRs the quote covers.
func quotedSelections() []QuoteAttack {
	selects := func(selections ...statement.PCRSelection) func(*Quoting) {
		return func(q *Quoting) { q.SelectPCRs(selections...) }
	}
	return []QuoteAttack{
		{Name: "of-no-bank", What: "The quote selects no bank.", Expect: "pcr-selection", Change: selects()},
		{Name: "of-no-pcr", What: "The quote selects a bank, and no PCR of it.", Expect: "pcr-selection", Change: selects(SelectionOf(BankSHA256, 0, 0, 0))},
		{Name: "of-no-pcr-of-a-second-bank", What: "The quote selects no PCR of its second bank.", Expect: "pcr-selection",
			Change: selects(SelectionOf(BankSHA256, 0xff, 0, 0), SelectionOf(BankSHA384, 0, 0, 0))},
		{Name: "of-one-bank-twice", What: "The quote lists one bank twice, with a PCR each.", Expect: "pcr-selection",
			Change: selects(SelectionOf(BankSHA256, 1, 0, 0), SelectionOf(BankSHA256, 2, 0, 0))},
		{Name: "of-the-sha1-bank", What: "The quote is over a PCR of the SHA-1 bank, for which collisions can be computed.", Expect: "pcr-bank",
			Change: selects(SelectionOf(BankSHA1, 1, 0, 0))},
		{Name: "of-an-unknown-bank", What: "The quote says that it is over the bank of another hash, SM3.", Expect: "pcr-bank",
			Change: func(q *Quoting) { q.Attest.Quote.Selections[0].Hash = tpm2.TPMAlgSM3256 }},
		{Name: "of-five-octets", What: "The selection has five octets, more than any TPM's.", Expect: "attest-encoding", Change: selects(SelectionOf(BankSHA256, 1, 0, 0, 0, 0))},
	}
}

// quotedValues are about the values that the node sends beside the quote.
func quotedValues() []QuoteAttack {
	return []QuoteAttack{
		{Name: "pcr-listed-twice", What: "The node lists PCR 7 with a value that it wishes for, and again with the quoted one.", Expect: "pcr-duplicate",
			Change: func(q *Quoting) {
				q.PCRs = slices.Insert(q.PCRs, 0, statement.PCR{Bank: BankSHA256, Index: 7, Value: make([]byte, 32)})
			}},
		{Name: "pcr-listed-twice-alike", What: "The node lists PCR 0 twice with the quoted value.", Expect: "pcr-duplicate",
			Change: func(q *Quoting) { q.PCRs = append(q.PCRs, q.PCRs[0]) }},
		{Name: "pcr-outside-the-selection", What: "The node sends a value of PCR 8, which was not quoted.", Expect: "pcr-not-quoted",
			Change: func(q *Quoting) { q.PCRs = append(q.PCRs, PCRValue(BankSHA256, 8)) }},
		{Name: "pcr-of-another-bank", What: "The node sends a value of PCR 0 in a bank that was not quoted.", Expect: "pcr-not-quoted",
			Change: func(q *Quoting) { q.PCRs = append(q.PCRs, PCRValue(BankSHA384, 0)) }},
		{Name: "pcr-of-the-wrong-bank", What: "The node says of a quoted value that it is of the SHA-384 bank.", Expect: "pcr-value",
			Change: func(q *Quoting) { q.PCRs[0].Bank = BankSHA384 }},
		{Name: "pcr-of-an-unknown-bank", What: "The node sends a value of a bank of SM3.", Expect: "pcr-bank",
			Change: func(q *Quoting) { q.PCRs[0].Bank = bankSM3 }},
		{Name: "pcr-32", What: "The node sends a value of PCR 32, which no selection can name.", Expect: "pcr-selection",
			Change: func(q *Quoting) { q.PCRs[0].Index = 32 }},
		{Name: "pcr-missing", What: "The node leaves out the value of PCR 0.", Expect: "pcr-missing", Change: func(q *Quoting) { q.PCRs = q.PCRs[1:] }},
		{Name: "pcrs-missing", What: "The node sends no values.", Expect: "pcr-missing", Change: func(q *Quoting) { q.PCRs = []statement.PCR{} }},
		{Name: "pcr-value-one-bit-off", What: "One bit of the value of PCR 3 was changed.", Expect: "pcr-digest", Change: func(q *Quoting) { q.PCRs[3].Value[31] ^= 1 }},
		{Name: "pcr-values-swapped", What: "The values of PCRs 0 and 1 were swapped.", Expect: "pcr-digest",
			Change: func(q *Quoting) { q.PCRs[0].Value, q.PCRs[1].Value = q.PCRs[1].Value, q.PCRs[0].Value }},
		{Name: "pcr-value-moved", What: "The last byte of PCR 0 moved to the front of PCR 1, which changes no digest.", Expect: "pcr-value",
			Change: func(q *Quoting) {
				q.PCRs[1].Value = append([]byte{q.PCRs[0].Value[31]}, q.PCRs[1].Value...)
				q.PCRs[0].Value = q.PCRs[0].Value[:31]
			}},
		{Name: "pcr-digest-changed", What: "The quoted digest is that of other values.", Expect: "pcr-digest",
			Change: func(q *Quoting) { q.Attest.Quote.PCRDigest[0] ^= 1 }},
		{Name: "pcr-digest-under-another-hash", What: "The quoted digest is SHA-384, the AK's hash is SHA-256.", Expect: "pcr-digest",
			Change: func(q *Quoting) { own := q.scheme; q.scheme = SchemeECDSA384; q.Digest(); q.scheme = own }},
		{Name: "pcr-digest-absent", What: "The quote has no digest.", Expect: "pcr-digest", Change: func(q *Quoting) { q.Attest.Quote.PCRDigest = nil }},
	}
}

// quotedSigners are about the AK and its signature.
func quotedSigners() []QuoteAttack {
	ak := func(how func(*statement.Public)) func(*Quoting) { return func(q *Quoting) { q.ChangeAK(how) } }
	signature := func(how func(*statement.Signature)) func(*Quoting) { return func(q *Quoting) { q.Signature = how } }
	return []QuoteAttack{
		{Name: "by-another-ak", What: "Another AK signs under the public area of the one that is named.", Expect: "signature",
			Change: func(q *Quoting) { q.AK = &SoftAK{Private: q.w.AKOther.Private, Public: q.AK.Public} }},
		{Name: "by-an-ak-that-decrypts", What: "The AK can decrypt too.", Expect: "ak-attributes", Change: ak(func(p *statement.Public) { p.Attributes |= statement.AttributeDecrypt })},
		{Name: "by-an-ak-that-is-not-restricted", What: "The AK is not restricted, so it signs anything.", Expect: "ak-attributes",
			Change: ak(func(p *statement.Public) { p.Attributes &^= statement.AttributeRestricted })},
		{Name: "by-an-ak-without-a-scheme", What: "The AK has no scheme of its own.", Expect: "ak-scheme", Change: ak(func(p *statement.Public) { p.Scheme = NoScheme })},
		{Name: "by-an-ak-under-a-sha1-name", What: "The AK's Name is a SHA-1 digest.", Expect: "name-algorithm", Change: ak(func(p *statement.Public) { p.NameAlg = tpm2.TPMAlgSHA1 })},
		{Name: "by-a-key-from-outside", What: "The qualified signer is the AK's bare Name: a key that was loaded from outside.", Expect: "qualified-signer",
			Change: func(q *Quoting) { q.Attest.QualifiedSigner = q.AK.Public.Name() }},
		{Name: "by-nobody", What: "The qualified signer is empty.", Expect: "qualified-signer", Change: func(q *Quoting) { q.Attest.QualifiedSigner = nil }},
		{Name: "signed-with-sha1", What: "The AK's own scheme, the signature and the digest are over SHA-1.", Expect: "signature-hash", RSA: true, Change: SHA1AK},
		{Name: "signed-with-another-hash", What: "The quote is signed with SHA-384, the AK's own hash is SHA-256.", Expect: "signature-scheme",
			Change: func(q *Quoting) { q.scheme.Hash = tpm2.TPMAlgSHA384; q.Digest() }},
		{Name: "signed-with-r-zero", What: "The ECDSA signature has r = 0.", Expect: "signature-range", Change: signature(func(v *statement.Signature) { v.R = []byte{0} })},
		{Name: "signed-with-s-over-the-order", What: "The ECDSA signature has an s of all ones.", Expect: "signature-range",
			Change: signature(func(v *statement.Signature) { v.S = bytes.Repeat([]byte{0xff}, 32) })},
		{Name: "signature-bit-flipped", What: "One bit of the signature was changed.", Expect: "signature", RSA: true, Change: signature(func(v *statement.Signature) { v.RSA[100] ^= 1 })},
		{Name: "signature-truncated", What: "The RSA signature lacks its last byte, its size says so.", Expect: "signature-length", RSA: true,
			Change: signature(func(v *statement.Signature) { v.RSA = v.RSA[:len(v.RSA)-1] })},
	}
}

// QuotedAttacks are attacks on the quote in an answer: it must be of the AK, the
// challenge and the boot of the certify statement.
func QuotedAttacks() []Forged {
	log := EventLog()
	statements := func(how func([]message.Statement) []message.Statement) func(*Forgery) {
		return func(f *Forgery) { f.Behind = how }
	}
	der := func(how func([]byte) []byte) func(*Forgery) { return func(f *Forgery) { f.onQuote = how } }
	wanted := []Forged{
		{Name: "quote-by-another-ak", What: "The quote is a good one of another TPM, over the node's challenge.", Expect: "quote-boot",
			Change: func(f *Forgery) { f.quote.AK, f.quote.Attest.QualifiedSigner = f.w.AKOther, f.w.AKOther.Primary() }},
		{Name: "quote-signed-by-another-ak", What: "Another TPM's AK signs the quote under the node's AK.", Expect: "signature",
			Change: func(f *Forgery) { f.quote.AK = f.w.AKOther }},
		{Name: "quote-with-the-data-of-certify", live: "quote-qualifying-data-of-certify", What: "The quote has the qualifying data of the certify statement.", Expect: "qualifying-data",
			Change: func(f *Forgery) { _, f.quote.Attest.ExtraData = f.Secrets(f.B) }},
		{Name: "certify-with-the-data-of-a-quote", What: "The certify statement has the qualifying data of the quote.", Expect: "qualifying-data",
			Change: func(f *Forgery) { f.Attest.ExtraData = f.quote.Attest.ExtraData }},
		{Name: "quote-of-another-challenge", What: "The quote is over another challenge.", Expect: "qualifying-data",
			Change: func(f *Forgery) { f.quote.Attest.ExtraData = LoneQuoteData }},
		{Name: "quote-of-an-earlier-boot", live: "quote-of-another-boot", What: "The quote has another reset count than the certify statement.", Expect: "quote-boot",
			Change: func(f *Forgery) { f.quote.Attest.ResetCount-- }},
		{Name: "quote-before-a-resume", What: "The quote has another restart count than the certify statement.", Expect: "quote-boot",
			Change: func(f *Forgery) { f.quote.Attest.RestartCount++ }},
		{Name: "quote-is-the-certify-statement", live: "quote-is-the-certify-statement", What: "A certify statement stands where the quote belongs.", Expect: "attest-type",
			Change: func(f *Forgery) { certifyInPlace(&f.quote.Signing, f.Attest.Certified) }},
		{Name: "quote-of-other-values", live: "quote-values-not-accepted", What: "The quote is good, and PCR 7 has another value than the one asked for.", Expect: "pcr-policy",
			Change: func(f *Forgery) { f.quote.PCRs[7].Value = bytes.Repeat([]byte{1}, 32); f.quote.Digest() }},
		{Name: "quote-without-an-asked-pcr", live: "quote-without-a-needed-pcr", What: "The quote does not cover PCR 7, which is asked for.", Expect: "pcr-not-quoted",
			Change: func(f *Forgery) { f.quote.SelectPCRs(SelectionOf(BankSHA256, 0x7f, 0, 0)) }},
		{Name: "quote-absent", live: "quote-missing", What: "The answer has no quote, and one is asked for.", Expect: "quote-missing",
			Change: statements(func([]message.Statement) []message.Statement { return nil })},
		{Name: "quote-twice", live: "two-quotes", What: "The answer has two quotes.", Expect: "bundle-statements",
			Change: statements(func(s []message.Statement) []message.Statement { return append(s, s[0]) })},
	}
	for i := range wanted {
		wanted[i].Wanted = true
	}
	return append(wanted, []Forged{
		{Name: "event-log-without-quote", What: "The answer has an event log, and no quote that vouches for it.", Expect: "bundle-statements",
			Change: statements(func([]message.Statement) []message.Statement { return []message.Statement{log} })},
		{Name: "event-log-before-quote", What: "The event log stands in front of the quote.", Expect: "bundle-statements",
			Change: statements(func(s []message.Statement) []message.Statement { return []message.Statement{log, s[0]} })},
		{Name: "quote-pcr-twice-in-der", What: "The quote's list has PCR 0 twice.", Expect: "pcr-duplicate",
			Change: der(Replaced(2, Edited(func(e [][]byte) [][]byte { return append([][]byte{e[0]}, e...) })))},
		{Name: "quote-pcrs-descending", What: "The quote's list does not ascend.", Expect: "message-encoding", Change: der(Replaced(2, swapped))},
		{Name: "quote-without-values", What: "The quote's list is empty.", Expect: "message-encoding", Change: der(Replaced(2, With(TLV(0x30)...)))},
		{Name: "quote-with-a-field-behind", What: "A field stands behind the quote's values.", Expect: "message-encoding", Change: der(Appended(5, 0))},
	}...)
}

// EventLog is a statement with an event log.
func EventLog() message.Statement {
	return message.Statement{Type: oid.NodeAttestEventLog, Stmt: Must(statement.MarshalEventLog([]byte("a log")))}
}
