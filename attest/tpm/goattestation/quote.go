package goattestation

import (
	"bytes"
	"crypto"
	"fmt"
	"slices"
	"strconv"

	goattest "github.com/google/go-attestation/attest"
	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
)

// banks are the hashes of PCRs.
var banks = []tpm2.TPMAlgID{tpm2.TPMAlgSHA1, tpm2.TPMAlgSHA256, tpm2.TPMAlgSHA384, tpm2.TPMAlgSHA512}

// maxPCRs is how many PCRs four banks of 32 have.
const maxPCRs = 128

// QuoteEvidence returns the quote q with the PCRs of its bank, for [statement.VerifyQuote]. pcrs
// may be of more banks, as in an attest.PlatformParameters: each of its Quotes takes its own.
// Whether PCRs were verified before (PCR.QuoteVerified) is not carried over.
//
// A refusal is a [*refusal.Error]: the check "go-attestation-value" if q is not a quote, if a PCR's
// hash is not SHA-1, SHA-256, SHA-384 or SHA-512, or if none is in a bank of the quote;
// "pcr-duplicate" for two values of one PCR, of which go-attestation would take the last; else
// another check of [statement.SortedPCRs], [statement.ParseAttestation] or
// [statement.ParseSignature].
func QuoteEvidence(q goattest.Quote, pcrs []goattest.PCR) (*statement.QuoteEvidence, error) {
	e := &statement.QuoteEvidence{Attest: bytes.Clone(q.Quote), Signature: bytes.Clone(q.Signature)}
	a, err := attestation(e.Attest, tpm2.TPMSTAttestQuote, "TPM2_Quote")
	if err == nil {
		_, err = statement.ParseSignature(e.Signature)
	}
	if err == nil {
		e.PCRs, err = pcrsHere(pcrs)
	}
	if err != nil {
		return nil, fmt.Errorf("goattestation: Quote: %w", err)
	}
	e.PCRs = slices.DeleteFunc(e.PCRs, func(p statement.PCR) bool { return !covers(a.Quote, p.Bank) })
	if len(e.PCRs) == 0 {
		return nil, fmt.Errorf("goattestation: Quote: %w", checkValue.Refuse(
			strconv.Itoa(len(pcrs))+" PCRs, none in a bank that the quote covers", "the values of the quoted PCRs"))
	}
	return e, nil
}

// covers reports whether a quote selects PCRs of a bank.
func covers(q *statement.QuoteInfo, bank tpm2.TPMAlgID) bool {
	return slices.ContainsFunc(q.Selections, func(s statement.PCRSelection) bool { return s.Hash == bank && len(s.PCRs()) != 0 })
}

// Quote returns e in go-attestation's form, the PCRs ascending. go-attestation reads quotes over
// one bank alone and signatures with RSASSA or ECDSA: other quotes, and values of another bank than
// the quote's, are refused with the check "go-attestation-value", the rest as by [QuoteEvidence].
func Quote(e *statement.QuoteEvidence) (goattest.Quote, []goattest.PCR, error) {
	if e == nil {
		e = &statement.QuoteEvidence{}
	}
	q, pcrs, err := quoteThere(e)
	if err != nil {
		return goattest.Quote{}, nil, fmt.Errorf("goattestation: statement of TPM2_Quote: %w", err)
	}
	return q, pcrs, nil
}

func quoteThere(e *statement.QuoteEvidence) (q goattest.Quote, pcrs []goattest.PCR, err error) {
	a, err := attestation(e.Attest, tpm2.TPMSTAttestQuote, "TPM2_Quote")
	if err != nil {
		return q, nil, err
	}
	if n := len(a.Quote.Selections); n != 1 {
		return q, nil, checkValue.Refuse("a quote over "+strconv.Itoa(n)+" banks", "one: go-attestation reads no other; quote each bank apart")
	}
	q.Quote = bytes.Clone(e.Attest)
	if q.Signature, err = signatureThere(e.Signature, e.RawSignature); err != nil {
		return q, nil, err
	}
	sorted, err := statement.SortedPCRs(e.PCRs)
	if err != nil {
		return q, nil, err
	}
	for _, p := range sorted {
		if !covers(a.Quote, p.Bank) {
			return q, nil, checkValue.Refuse("the value of "+p.ID().String(), "values of the quoted bank: go-attestation skips others")
		}
		hash, err := p.Bank.Hash()
		if err != nil {
			return q, nil, err
		}
		pcrs = append(pcrs, goattest.PCR{Index: p.Index, Digest: bytes.Clone(p.Value), DigestAlg: hash})
	}
	return q, pcrs, nil
}

// pcrsHere are PCRs in our form, sorted.
func pcrsHere(pcrs []goattest.PCR) ([]statement.PCR, error) {
	if n := len(pcrs); n > maxPCRs {
		return nil, checkValue.Refuse(strconv.Itoa(n)+" PCRs", "at most "+strconv.Itoa(maxPCRs))
	}
	list := make([]statement.PCR, len(pcrs))
	for n, p := range pcrs {
		bank, ok := bankOf(p.DigestAlg)
		if !ok {
			return nil, checkValue.Refuse(fmt.Sprintf("PCR %d in a bank of %v", p.Index, p.DigestAlg), "SHA-1, SHA-256, SHA-384 or SHA-512")
		}
		list[n] = statement.PCR{Bank: bank, Index: p.Index, Value: bytes.Clone(p.Digest)}
	}
	return statement.SortedPCRs(list)
}

func bankOf(h crypto.Hash) (tpm2.TPMAlgID, bool) {
	n := slices.IndexFunc(banks, func(bank tpm2.TPMAlgID) bool {
		hash, err := bank.Hash()
		return err == nil && hash == h
	})
	if n < 0 {
		return 0, false
	}
	return banks[n], true
}
