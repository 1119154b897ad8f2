package tpm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// CheckPCRPolicy: a quoted PCR has another value than the policy accepts.
const CheckPCRPolicy Check = "pcr-policy"

// CheckQuotePolicy: a policy over quotes is empty, so that nothing was asked. It is
// the caller's fault, not the evidence's.
const CheckQuotePolicy Check = "quote-policy"

// Measured is what a node has shown of its boot.
type Measured struct {
	// Quote is the verified quote: made by the node's AK, over this challenge.
	Quote *statement.Quoted
	// EventLog is the log that came along, as it was received; nil where none did.
	// Nothing in it is true before it was replayed against Quote, as package
	// attest/tpm/eventlog does.
	EventLog []byte
}

// QuotePolicy decides whether a node may have booted what its quote says. It must
// refuse what the quote does not cover: [statement.Quoted.Value] does.
type QuotePolicy interface {
	// CheckQuote returns nil to accept. An [*Error] is a refusal, an error that wraps
	// csr.ErrRetry leaves it open. m and its Quote are not nil.
	CheckQuote(ctx context.Context, m *Measured) error
}

// PCRPolicy is a [QuotePolicy] that accepts exact values. The zero value refuses
// everything; [NewPCRPolicy] makes one.
type PCRPolicy struct {
	sets [][]statement.PCR
}

// NewPCRPolicy returns a policy that accepts a quote where every PCR of at least one
// of the sets has exactly the set's value. A set is one known-good machine, or
// software version; the quote may cover more PCRs than a set names, never fewer.
//
// No set, an empty one, a PCR twice in one, a value of another length than its bank's
// digests, a bank of SHA-1 and a PCR that proves nothing ([statement.ResettablePCR]) are errors.
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
		return tpmwire.Refuse(CheckQuotePolicy, "no PCR", "at least one")
	}
	for _, p := range set {
		if err := statement.CheckBank(p.Bank, false); err != nil {
			return err
		}
		if statement.ResettablePCR(p.Index) {
			return tpmwire.Refuse(statement.CheckPCRResettable, p.ID().String(), "a PCR that only a reset of the machine resets")
		}
	}
	return nil
}

// CheckQuote accepts where one set fits. A refusal is an [*Error] with
// [CheckQuoteMissing], [statement.CheckPCRNotQuoted] or [CheckPCRPolicy] and, where there are several sets, with what
// the first one had against the quote as its cause.
func (p *PCRPolicy) CheckQuote(_ context.Context, m *Measured) error {
	if p == nil || len(p.sets) == 0 {
		return tpmwire.Refuse(CheckQuotePolicy, "no values", "NewPCRPolicy")
	}
	if m == nil || m.Quote == nil {
		return tpmwire.Refuse(CheckQuoteMissing, "an answer without a quote", "one with a quote")
	}
	var first error
	for _, set := range p.sets {
		err := checkSet(set, m.Quote)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	if len(p.sets) == 1 {
		return first
	}
	return &Error{Check: CheckPCRPolicy, Got: "none of " + strconv.Itoa(len(p.sets)) + " sets of values",
		Want: "one of them", Err: first}
}

func checkSet(set []statement.PCR, q *statement.Quoted) error {
	for _, want := range set {
		value, err := q.Value(want.Bank, want.Index)
		if err != nil {
			return err
		}
		if got := (statement.PCR{Bank: want.Bank, Index: want.Index, Value: value}); !got.Equal(want) {
			return tpmwire.Refuse(CheckPCRPolicy, got.String(), want.String())
		}
	}
	return nil
}

// DefaultPCRs selects what firmware and boot loader measure, PCRs 0 to 7 of the
// SHA-256 bank: TCG PC Client Platform Firmware Profile 1.06, 3.3.4. Each call
// returns a fresh value.
func DefaultPCRs() []statement.PCRSelection {
	return []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0xff, 0, 0}}}
}
