package tpm

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/nodeattest/nodeattest/refusal"
)

// Checks of the quote of an answer, beside those of [VerifyQuote].
const (
	// CheckQuoteMissing: there is a policy over quotes, and the answer carries none.
	CheckQuoteMissing Check = "quote-missing"
	// CheckQuoteBoot: quote and certify statement are not of one boot of one TPM: signer,
	// reset or restart count differ.
	CheckQuoteBoot Check = "quote-boot"
)

func clonedSelections(selections []PCRSelection) []PCRSelection {
	all := slices.Clone(selections)
	for n := range all {
		all[n].Select = bytes.Clone(all[n].Select)
	}
	return all
}

// checkQuote checks all of an answer's quote but its signature: under the very AK of the
// certify statement, over this challenge, of this boot.
func (a *answer) checkQuote(covers func(label string, data []byte) error) error {
	if a.quote == nil {
		if a.kind.quotePolicy != nil {
			return refuseStatement(CheckQuoteMissing, "an answer without a quote", "one with a quote")
		}
		return nil
	}
	a.quoted = &quoteInput{certifyInput: certifyInput{
		ak: a.in.ak, akName: a.in.akName, akKey: a.in.akKey,
		covers: func(data []byte) error { return covers(labelQuote, data) },
		policy: statementPolicy{allowSHA1Signature: a.in.policy.allowSHA1Signature},
	}}
	if err := a.quoted.parseQuote(a.quote); err != nil {
		return err
	}
	if err := a.quoted.checkBeforeSignature(); err != nil {
		return err
	}
	return checkSameBoot(a.in.attest, a.quoted.attest)
}

// checkSameBoot compares what two statements of one AK say of the TPM. Where the
// counts are obfuscated, they are so in both alike.
func checkSameBoot(certify, quote *Attestation) error {
	if !bytes.Equal(certify.QualifiedSigner, quote.QualifiedSigner) {
		return refuseStatement(CheckQuoteBoot, "a quote by "+refusal.Hex(quote.QualifiedSigner), refusal.Hex(certify.QualifiedSigner))
	}
	if certify.ResetCount != quote.ResetCount || certify.RestartCount != quote.RestartCount {
		return refuseStatement(CheckQuoteBoot, "a quote of another boot ("+counts(quote)+")", counts(certify))
	}
	return nil
}

func counts(a *Attestation) string {
	return strconv.FormatUint(uint64(a.ResetCount), 10) + " resets, " + strconv.FormatUint(uint64(a.RestartCount), 10) + " restarts"
}
