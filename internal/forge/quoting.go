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
	w         *Bench
	AK        *SoftAK                // that signs
	Attest    *statement.Attestation // the quote
	PCRs      []statement.PCR        // that are sent beside it, in this order
	scheme    statement.KeyScheme
	patch     func(attest []byte) []byte
	signature func(*statement.Signature)
	after     func(signature []byte) []byte
}

// QuoteBy quotes PCRs 0 to 7 of SHA-256, by a primary key of the endorsement hierarchy.
func (w *Bench) QuoteBy(ak *SoftAK) *Quoting {
	q := &Quoting{w: w, AK: ak, scheme: ak.Public.Scheme, Attest: &statement.Attestation{
		Type:            tpm2.TPMSTAttestQuote,
		QualifiedSigner: statement.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, ak.Public.Name()),
		ExtraData:       LoneQuoteData, Clock: 600000, ResetCount: 1, Safe: true, FirmwareVersion: 0x2019102300163636,
		Quote: &statement.QuoteInfo{},
	}}
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
		for i := range 8 * len(s.Select) {
			if s.Select[i/8]>>(i%8)&1 == 1 {
				q.PCRs = append(q.PCRs, PCRValue(s.Hash, i))
			}
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

// UseAK changes the AK's public area, of the same key.
func (q *Quoting) UseAK(public *statement.Public) {
	q.AK = &SoftAK{Private: q.AK.Private, Public: public}
	q.Attest.QualifiedSigner = statement.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, public.Name())
}

// Signed is the statement with its signature.
func (q *Quoting) Signed() (raw, signature []byte) {
	raw = Change(Must(q.Attest.Marshal()), q.patch)
	v := q.AK.sign(q.scheme, raw)
	if q.signature != nil {
		q.signature(v)
	}
	return raw, Change(Must(v.Marshal()), q.after)
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
	q.scheme = statement.KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA1}
	q.UseAK(Changed(q.AK.Public, func(p *statement.Public) { p.Scheme = q.scheme }))
	q.Digest()
}
