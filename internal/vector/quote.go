package vector

import (
	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
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
	Bank  uint16 `json:"bank"`
	Index int    `json:"index"`
	// Value is the register's digest.
	Value []byte `json:"value,omitempty"`
}

// PCRSelection is a TPMS_PCR_SELECTION: bit i%8 of octet i/8 selects PCR i.
type PCRSelection struct {
	// Bank is the number of the bank's hash, Select the octets, one at least.
	Bank   uint16 `json:"bank"`
	Select []byte `json:"select"`
}

func pcrs(in []PCR) []statement.PCR {
	var out []statement.PCR
	for _, p := range in {
		out = append(out, statement.PCR{Bank: tpm2.TPMAlgID(p.Bank), Index: p.Index, Value: p.Value})
	}
	return out
}

// verified gives the quote to statement.VerifyQuote.
func (q *Quote) verified() (*statement.Quoted, *Result, error) {
	e := &statement.QuoteEvidence{Attest: q.Attest, Signature: q.Signature, PCRs: pcrs(q.PCRs)}
	var err error
	if q.RawSignature != nil {
		if e.RawSignature, err = q.RawSignature.scheme(); err != nil {
			return nil, nil, &brokenVector{err}
		}
	}
	o := &statement.QuoteOptions{QualifyingData: q.QualifyingData}
	if o.AK, err = akOf(q.AKTrust, q.AKPublic, q.AKKey); err != nil {
		return nil, nil, &brokenVector{err}
	}
	if q.Selection != nil {
		o.Selection = []statement.PCRSelection{}
	}
	for _, s := range q.Selection {
		o.Selection = append(o.Selection, statement.PCRSelection{Hash: tpm2.TPMAlgID(s.Bank), Select: s.Select})
	}
	for _, name := range q.Options {
		if err := setOption(o, name); err != nil {
			return nil, nil, &brokenVector{err}
		}
	}
	quoted, err := statement.VerifyQuote(e, o)
	if err != nil {
		return nil, nil, err
	}
	found := &Result{ClockTrusted: &quoted.ClockTrusted}
	if q.Asked != nil {
		found.Value, err = quoted.Value(tpm2.TPMAlgID(q.Asked.Bank), q.Asked.Index)
	}
	return quoted, found, err
}

func (q *Quote) verify() (*Result, error) {
	_, found, err := q.verified()
	return found, err
}
