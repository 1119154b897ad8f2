package tpm

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// Checks of the quote of an answer, beside those of [statement.VerifyQuote].
const (
	// CheckQuoteMissing: there is a policy over quotes, and the answer carries none.
	CheckQuoteMissing Check = "quote-missing"
	// CheckQuoteBoot: quote and certify statement are not of one boot of one TPM: signer,
	// reset or restart count differ.
	CheckQuoteBoot Check = "quote-boot"
)

func clonedSelections(selections []statement.PCRSelection) []statement.PCRSelection {
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
			return tpmwire.Refuse(CheckQuoteMissing, "an answer without a quote", "one with a quote")
		}
		return nil
	}
	a.quoted = &statement.QuoteInput{CertifyInput: statement.CertifyInput{
		AK: a.in.AK, AKName: a.in.AKName, AKKey: a.in.AKKey,
		Covers:  func(data []byte) error { return covers(labelQuote, data) },
		Options: statement.CertifyOptions{InsecureAllowSHA1Signature: a.in.Options.InsecureAllowSHA1Signature},
	}}
	if err := a.quoted.ParseQuote(a.quote); err != nil {
		return err
	}
	if err := a.quoted.CheckBeforeSignature(); err != nil {
		return err
	}
	return checkSameBoot(a.in.Attest, a.quoted.Attest)
}

// checkSameBoot compares what two statements of one AK say of the TPM. Where the
// counts are obfuscated, they are so in both alike.
func checkSameBoot(certify, quote *statement.Attestation) error {
	if !bytes.Equal(certify.QualifiedSigner, quote.QualifiedSigner) {
		return tpmwire.Refuse(CheckQuoteBoot, "a quote by "+refusal.Hex(quote.QualifiedSigner), refusal.Hex(certify.QualifiedSigner))
	}
	if certify.ResetCount != quote.ResetCount || certify.RestartCount != quote.RestartCount {
		return tpmwire.Refuse(CheckQuoteBoot, "a quote of another boot ("+counts(quote)+")", counts(certify))
	}
	return nil
}

func counts(a *statement.Attestation) string {
	return strconv.FormatUint(uint64(a.ResetCount), 10) + " resets, " + strconv.FormatUint(uint64(a.RestartCount), 10) + " restarts"
}
