package forge

import (
	"bytes"
	"encoding/asn1"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
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
	size := Hashes[bank].Size()
	return statement.PCR{Bank: bank, Index: index, Value: bytes.Repeat([]byte{byte(0x10 + index)}, size)}
}

// Digest computes what the TPM would.
func (q *Quoting) Digest() {
	h := Hashes[q.scheme.Hash].New()
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
