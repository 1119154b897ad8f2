package tpm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

// Checks of an answer's quote after [statement.VerifyQuote].
const (
	// CheckQuoteMissing: there is a quote policy, and the answer carries no quote.
	CheckQuoteMissing refusal.Check = "quote-missing"
	// checkQuoteBoot: the quote and the certify statement are not from the same boot of the
	// same TPM: their signer, reset count or restart count differ.
	checkQuoteBoot refusal.Check = "quote-boot"
)

// checkQuote checks everything about an answer's quote but its signature: that it is by the
// same AK as the certify statement, over this challenge, and from this boot.
func (a *answer) checkQuote(covers func(label string, data []byte) error) error {
	if a.quote == nil {
		if a.kind.quotePolicy != nil && !a.kind.quoteless {
			return CheckQuoteMissing.Refuse("an answer without a quote", "one with a quote")
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

// replayWork is a policy's budget for a byte of the event log in a bank: it is parsed, and hashed
// from each value that a PCR can start with.
const replayWork = 8

// checkQuotePolicy asks the policy about a machine, once the replay of the log has been counted. m is nil
// without a quote.
func (a *answer) checkQuotePolicy(ctx context.Context, m *Measured, machine attest.Identity, budget *attest.Budget) error {
	if a.kind.quotePolicy == nil {
		return nil
	}
	if m == nil {
		m = &Measured{Machine: machine}
	} else {
		m.Machine = machine
		banks := map[tpm2.TPMAlgID]bool{}
		for _, p := range m.Quote.PCRs() {
			banks[p.Bank] = true
		}
		if err := budget.Work(ctx, replayWork*len(banks)*len(m.EventLog)); err != nil {
			return err
		}
	}
	return a.kind.quotePolicy.CheckQuote(ctx, m)
}

// checkSameBoot compares what two statements by one AK say about the TPM. If the counts are
// obfuscated, both obfuscate them in the same way.
func checkSameBoot(certify, quote *statement.Attestation) error {
	if !bytes.Equal(certify.QualifiedSigner, quote.QualifiedSigner) {
		return checkQuoteBoot.Refuse("a quote by "+refusal.Hex(quote.QualifiedSigner), refusal.Hex(certify.QualifiedSigner))
	}
	if certify.ResetCount != quote.ResetCount || certify.RestartCount != quote.RestartCount {
		return checkQuoteBoot.Refuse("a quote of another boot ("+counts(quote)+")", counts(certify))
	}
	return nil
}

func counts(a *statement.Attestation) string {
	return strconv.FormatUint(uint64(a.ResetCount), 10) + " resets, " + strconv.FormatUint(uint64(a.RestartCount), 10) + " restarts"
}

// checkPCRPolicy: a quoted PCR does not have a value that the policy accepts.
const checkPCRPolicy refusal.Check = "pcr-policy"

// CheckQuotePolicy: a quote policy is empty, so it requires nothing, or is misconfigured. The
// fault is the operator's and not the evidence's, so CheckQuote returns it together with
// [refusal.ErrRetry].
const CheckQuotePolicy refusal.Check = "quote-policy"

// Measured is a node's evidence about its boot.
type Measured struct {
	// Machine is the identity of the machine whose AK made the quote: its certificate or EK is
	// trusted, and whether it may be the node is not decided yet.
	Machine attest.Identity
	// Quote is the verified quote: made by the node's AK, over this challenge. It is nil without one
	// (KindConfig.QuoteOptional).
	Quote *statement.Quoted
	// EventLog is the log that came with it, as received, or nil if none did. Nothing in it
	// can be relied on before it has been replayed against Quote, as package
	// attest/tpm/eventlog does.
	EventLog []byte
}

// QuotePolicy decides whether a node may have booted what its quote says. It must refuse a PCR that
// the quote does not cover: [statement.Quoted.Value] does.
//
// One with a method Validate() error is asked by [NewKind] whether it can decide anything.
type QuotePolicy interface {
	// CheckQuote returns nil to accept. A [*refusal.Error] is a refusal; an error that wraps
	// refusal.ErrRetry leaves the decision open. m is not nil, nor is its Quote unless
	// KindConfig.QuoteOptional is set.
	CheckQuote(ctx context.Context, m *Measured) error
}

// PCRPolicy is a [QuotePolicy] that accepts exact values. The zero value decides
// nothing; [NewPCRPolicy] makes one.
type PCRPolicy struct {
	sets [][]statement.PCR
}

// NewPCRPolicy returns a policy that accepts a quote if every PCR of at least one of the sets
// has exactly the set's value. A set is one known-good machine, or software version; the
// quote may cover more PCRs than a set names, but never fewer.
//
// It is an error to give no sets or an empty set, and for a set to have a PCR twice, a value
// whose length is not that of its bank's digests, a SHA-1 bank, a PCR that proves nothing
// ([statement.ResettablePCR]), or for one of PCRs 0 to 7 the value that it has before anything is
// measured: firmware measures a separator into each (TCG PC Client Platform Firmware Profile 1.06,
// 3.3.4), so such a machine's firmware does not serve that bank, and root can fill it in. So is a set in
// which every value is that of a PCR with a separator alone, or with nothing: most machines have it.
func NewPCRPolicy(sets ...[]statement.PCR) (*PCRPolicy, error) {
	if len(sets) == 0 {
		return nil, errors.New("tpm: PCR policy: no values")
	}
	p := &PCRPolicy{}
	for n, set := range sets {
		sorted, err := statement.SortedPCRs(set)
		if err == nil {
			err = checkGoodValues(sorted)
		}
		if err != nil {
			return nil, fmt.Errorf("tpm: PCR policy: set %d: %w", n, err)
		}
		for i := range sorted {
			sorted[i].Value = slices.Clone(sorted[i].Value)
		}
		p.sets = append(p.sets, sorted)
	}
	return p, nil
}

func checkGoodValues(set []statement.PCR) error {
	if len(set) == 0 {
		return CheckQuotePolicy.Refuse("no PCR", "at least one")
	}
	for _, p := range set {
		if err := statement.CheckBank(p.Bank, false); err != nil {
			return err
		}
		if statement.ResettablePCR(p.Index) {
			return statement.CheckPCRResettable.Refuse(p.ID().String(), "a PCR that only a reset of the machine resets")
		}
		if p.Index <= 7 && unextended(p.Value) {
			return CheckQuotePolicy.Refuse(p.String()+", into which nothing was measured", "what firmware measures: at least a separator")
		}
	}
	if !slices.ContainsFunc(set, distinct) {
		return CheckQuotePolicy.Refuse("a set of separators alone, which would admit most machines", "a PCR into which a program or a setting was measured")
	}
	return nil
}

// distinct reports whether a value says anything about a machine: something other than a separator was
// measured. A separator is four bytes of zeros or ones: profile 1.06, 10.4.1.
func distinct(p statement.PCR) bool {
	if unextended(p.Value) {
		return false
	}
	hash := tpmwire.HashOf(p.Bank)
	for _, b := range []byte{0, 0xff} {
		separator := tpmwire.AppendDigest(nil, hash, bytes.Repeat([]byte{b}, 4))
		if bytes.Equal(p.Value, tpmwire.AppendDigest(nil, hash, append(make([]byte, len(p.Value)), separator...))) {
			return false
		}
	}
	return true
}

// unextended reports whether a value is that of a PCR since a reset: zeros or ones, or zeros before
// the locality of TPM2_Startup, up to 4, in PCR 0.
func unextended(value []byte) bool {
	first, last := value[:len(value)-1], value[len(value)-1]
	zeros := last <= 4 && bytes.Count(first, []byte{0}) == len(first)
	return zeros || bytes.Count(value, []byte{0xff}) == len(value)
}

// CheckQuote accepts a quote that matches one of the sets. A refusal is a [*refusal.Error]
// with the check "quote-missing", [statement.CheckPCRNotQuoted] or the check "pcr-policy" and,
// if there are several sets, its cause is the error of the first one.
func (p *PCRPolicy) CheckQuote(_ context.Context, m *Measured) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if m == nil || m.Quote == nil {
		return CheckQuoteMissing.Refuse("an answer without a quote", "one with a quote")
	}
	var errs []error
	for _, set := range p.sets {
		err := checkSet(set, m.Quote)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return &refusal.Error{Check: checkPCRPolicy, Got: "none of " + strconv.Itoa(len(errs)) + " sets of values",
		Want: "one of them", Err: errs[0]}
}

// Validate returns an error with [CheckQuotePolicy] for a policy that [NewPCRPolicy] did not make.
func (p *PCRPolicy) Validate() error {
	if p == nil || len(p.sets) == 0 {
		return &refusal.Error{Check: CheckQuotePolicy, Got: "no values", Want: "NewPCRPolicy", Err: refusal.ErrRetry}
	}
	return nil
}

func checkSet(set []statement.PCR, q *statement.Quoted) error {
	for _, want := range set {
		value, err := q.Value(want.Bank, want.Index)
		if err != nil {
			return err
		}
		if got := (statement.PCR{Bank: want.Bank, Index: want.Index, Value: value}); !got.Equal(want) {
			return checkPCRPolicy.Refuse(got.String(), want.String())
		}
	}
	return nil
}

// DefaultPCRs selects the PCRs of the firmware and the boot loader, 0 to 7 of the
// SHA-256 bank: TCG PC Client Platform Firmware Profile 1.06, 3.3.4. Each call returns a
// fresh value.
func DefaultPCRs() []statement.PCRSelection {
	return []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0xff, 0, 0}}}
}
