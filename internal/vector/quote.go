package vector

import (
	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/forge"
)

// Quote is one quote, the PCR values beside it, and what both are held against.
type Quote struct {
	// Attest is a TPMS_ATTEST, Signature a TPMT_SIGNATURE unless RawSignature is set,
	// without outer size.
	Attest       []byte        `json:"attest"`
	Signature    []byte        `json:"signature"`
	RawSignature *RawSignature `json:"rawSignature,omitempty"`
	// PCRs are the values that the node sends, in its order.
	PCRs []PCR `json:"pcrs"`
	// AKPublic is the AK's TPMT_PUBLIC, AKKey its SubjectPublicKeyInfo: one or both.
	AKPublic []byte `json:"akPublic,omitempty"`
	AKKey    []byte `json:"akKey,omitempty"`
	// AKTrust says where the trust in the AK comes from: "credential", "issuer" or
	// "sender". Absent, it is a credential where there is AKPublic alone, else an issuer.
	AKTrust string `json:"akTrust,omitempty"`
	// QualifyingData is what the quote must contain; null for a caller who gives none.
	QualifyingData []byte `json:"qualifyingData"`
	// Selection is what must have been quoted, no more and no less; absent for a
	// caller who leaves that to the node.
	Selection []PCRSelection `json:"selection,omitzero"`
	// Options are names of fields of statement.QuoteOptions that are set, in camel case.
	Options []string `json:"options,omitempty"`
	// Asked is the PCR, without a value, whose value the caller asks the verified
	// quote for. What the quote does not cover is a refusal.
	Asked *PCR `json:"asked,omitempty"`
}

// PCR is one register: Bank is the number of its hash (TPM_ALG_ID: 4 SHA-1, 11
// SHA-256, 12 SHA-384, 13 SHA-512), Index counts from 0.
type PCR struct {
	Bank  tpm2.TPMAlgID `json:"bank"`
	Index int           `json:"index"`
	// Value is the register's digest.
	Value []byte `json:"value,omitempty"`
}

// PCRSelection is a TPMS_PCR_SELECTION: bit i%8 of octet i/8 selects PCR i.
type PCRSelection struct {
	// Hash is the number of the bank's hash, Select the octets, one at least.
	Hash   tpm2.TPMAlgID `json:"bank"`
	Select []byte        `json:"select"`
}

func pcrs(in []PCR) (out []statement.PCR) {
	for _, p := range in {
		out = append(out, statement.PCR(p))
	}
	return out
}

// verified gives the quote to statement.VerifyQuote.
func (q *Quote) verified() (*statement.Quoted, *Result, error) {
	e := &statement.QuoteEvidence{Attest: q.Attest, Signature: q.Signature, PCRs: pcrs(q.PCRs), RawSignature: q.RawSignature.scheme()}
	o := statement.QuoteOptions{QualifyingData: q.QualifyingData, AK: akOf(q.AKTrust, q.AKPublic, q.AKKey)}
	if q.Selection != nil {
		o.Selection = []statement.PCRSelection{}
	}
	for _, s := range q.Selection {
		o.Selection = append(o.Selection, statement.PCRSelection(s))
	}
	for _, name := range q.Options {
		forge.Check(setOption(&o, name))
	}
	quoted, err := statement.VerifyQuote(e, o)
	if err != nil {
		return nil, nil, err
	}
	found := &Result{ClockTrusted: &quoted.ClockTrusted}
	if q.Asked != nil {
		found.Value, err = quoted.Value(q.Asked.Bank, q.Asked.Index)
	}
	return quoted, found, err
}

func (q *Quote) verify() (*Result, error) {
	_, found, err := q.verified()
	return found, err
}
