package tpm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/softak"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/refusal"
)

func quotedForPolicy(t testing.TB) *Measured {
	t.Helper()
	f := goodQuoteForgery(t, softak.NewAK(tpmlab.P256(), softak.ECDSA))
	f.selectPCRs(mustSelect(t, tpm2.TPMAlgSHA256, 0, 7, 16), mustSelect(t, tpm2.TPMAlgSHA384, 7))
	q, err := statement.VerifyQuote(f.evidence(t), f.options)
	testkit.NoError(t, err)
	return &Measured{Quote: q}
}

func pcrOf(bank tpm2.TPMAlgID, index int, fill byte) statement.PCR {
	return statement.PCR{Bank: bank, Index: index, Value: bytes.Repeat([]byte{fill}, tpmwire.HashOf(bank).Size())}
}

func TestPCRPolicy(t *testing.T) {
	m := quotedForPolicy(t)
	good0, good7 := pcrOf(tpm2.TPMAlgSHA256, 0, 0x10), pcrOf(tpm2.TPMAlgSHA256, 7, 0x17)
	bad7 := pcrOf(tpm2.TPMAlgSHA256, 7, 0x18)
	almost := pcrOf(tpm2.TPMAlgSHA256, 7, 0x17)
	almost.Value[31] ^= 1
	for _, c := range []struct {
		name string
		sets [][]statement.PCR
		want refusal.Check
	}{
		{"all", [][]statement.PCR{{good7, good0}}, ""},
		{"nothing measured into PCR 8", [][]statement.PCR{{good7, pcrOf(tpm2.TPMAlgSHA256, 8, 0)}}, statement.CheckPCRNotQuoted},
		{"some", [][]statement.PCR{{good7}}, ""},
		{"another bank", [][]statement.PCR{{good0, pcrOf(tpm2.TPMAlgSHA384, 7, 0x17)}}, ""},
		{"the second set", [][]statement.PCR{{bad7}, {good7}}, ""},
		{"another value", [][]statement.PCR{{good0, bad7}}, checkPCRPolicy},
		{"one bit", [][]statement.PCR{{good0, almost}}, checkPCRPolicy},
		{"a PCR that was not quoted", [][]statement.PCR{{good0, pcrOf(tpm2.TPMAlgSHA256, 1, 1)}}, statement.CheckPCRNotQuoted},
		{"a bank that was not quoted", [][]statement.PCR{{pcrOf(tpm2.TPMAlgSHA512, 0, 1)}}, statement.CheckPCRNotQuoted},
		{"half of each set", [][]statement.PCR{{good0, bad7}, {pcrOf(tpm2.TPMAlgSHA256, 0, 1), good7}}, checkPCRPolicy},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := NewPCRPolicy(c.sets...)
			testkit.NoError(t, err)
			tpmlab.ExpectCheck(t, p.CheckQuote(t.Context(), m), c.want)
		})
	}
}

// countingPolicy counts how often it is asked.
type countingPolicy int

func (p *countingPolicy) CheckQuote(context.Context, *Measured) error { *p++; return nil }

// TestReplayIsCounted: the replay of an event log is part of the work that one request may cost. A log
// of any size and any number of banks fits in with all signatures of an answer.
func TestReplayIsCounted(t *testing.T) {
	asked := new(countingPolicy)
	a := &answer{evidence: evidence{kind: &Kind{quotePolicy: asked}}}
	m := quotedForPolicy(t) // of two banks
	m.EventLog = make([]byte, statement.MaxEventLogSize)
	budget := attest.NewBudget(12)
	for range 12 {
		testkit.NoError(t, budget.Signature(t.Context()))
	}
	_, _, before := budget.Spent()
	if err := a.checkQuotePolicy(t.Context(), m, "ek:sha256:00", budget); err != nil || *asked != 1 {
		t.Fatalf("the longest log: %v, asked %d times", err, *asked)
	}
	if _, _, work := budget.Spent(); work-before != replayWork*2*len(m.EventLog) {
		t.Errorf("it counted for %d", work-before)
	}
	if err := budget.Work(t.Context(), replayWork*len(m.EventLog)); err != nil { // a third bank
		t.Error(err)
	}
	if err := a.checkQuotePolicy(t.Context(), m, "ek:sha256:00", budget); !errors.Is(err, attest.CheckBudget) || *asked != 1 {
		t.Errorf("over the budget: got %v, asked %d times", err, *asked)
	}
	if err := a.checkQuotePolicy(t.Context(), &Measured{Quote: m.Quote}, "ek:sha256:00", budget); err != nil || *asked != 2 {
		t.Errorf("no log: got %v, asked %d times", err, *asked)
	}
}

func TestPCRPolicyKeepsItsValues(t *testing.T) {
	set := []statement.PCR{pcrOf(tpm2.TPMAlgSHA256, 7, 0x17)}
	p, err := NewPCRPolicy(set)
	testkit.NoError(t, err)
	set[0].Value[0], set[0].Index = 0, 3
	tpmlab.ExpectCheck(t, p.CheckQuote(t.Context(), quotedForPolicy(t)), "")
}

// separated is a PCR into which a separator alone was measured.
func separated(bank tpm2.TPMAlgID, index int, fill byte) statement.PCR {
	hash := tpmwire.HashOf(bank)
	digest := tpmwire.AppendDigest(nil, hash, bytes.Repeat([]byte{fill}, 4))
	return statement.PCR{Bank: bank, Index: index, Value: tpmwire.AppendDigest(nil, hash, append(make([]byte, hash.Size()), digest...))}
}

func TestNewPCRPolicyRefuses(t *testing.T) {
	good := pcrOf(tpm2.TPMAlgSHA256, 7, 1)
	if _, err := NewPCRPolicy(); err == nil {
		t.Error("no sets")
	}
	for _, c := range []struct {
		set  []statement.PCR
		want error
	}{
		{nil, CheckQuotePolicy},
		{[]statement.PCR{good, good}, refusal.Check("pcr-duplicate")},
		{[]statement.PCR{good, pcrOf(tpm2.TPMAlgSHA256, 7, 2)}, refusal.Check("pcr-duplicate")},
		{[]statement.PCR{{Bank: tpm2.TPMAlgSHA256, Index: 7, Value: good.Value[:31]}}, refusal.Check("pcr-value")},
		{[]statement.PCR{{Bank: tpm2.TPMAlgSHA256, Index: 7, Value: nil}}, refusal.Check("pcr-value")},
		{[]statement.PCR{pcrOf(tpm2.TPMAlgSHA1, 7, 1)}, refusal.Check("pcr-bank")},
		{[]statement.PCR{pcrOf(tpm2.TPMAlgSHA256, 16, 1)}, statement.CheckPCRResettable},
		{[]statement.PCR{pcrOf(tpm2.TPMAlgSHA256, 23, 1)}, statement.CheckPCRResettable},
		{[]statement.PCR{pcrOf(tpm2.TPMAlgSHA256, 32, 1)}, statement.CheckPCRSelection},
		{[]statement.PCR{pcrOf(tpm2.TPMAlgSHA256, 0, 0)}, CheckQuotePolicy},
		{[]statement.PCR{pcrOf(tpm2.TPMAlgSHA384, 4, 0)}, CheckQuotePolicy},
		{[]statement.PCR{pcrOf(tpm2.TPMAlgSHA256, 7, 0xff)}, CheckQuotePolicy},
		{[]statement.PCR{{Bank: tpm2.TPMAlgSHA256, Index: 0, Value: append(make([]byte, 31), 4)}}, CheckQuotePolicy},
		{[]statement.PCR{separated(tpm2.TPMAlgSHA256, 7, 0)}, CheckQuotePolicy},
		{[]statement.PCR{separated(tpm2.TPMAlgSHA384, 2, 0xff), separated(tpm2.TPMAlgSHA256, 2, 0)}, CheckQuotePolicy},
		{[]statement.PCR{pcrOf(tpm2.TPMAlgSHA256, 8, 0), separated(tpm2.TPMAlgSHA256, 3, 0)}, CheckQuotePolicy},
		{[]statement.PCR{separated(tpm2.TPMAlgSHA256, 2, 0), pcrOf(tpm2.TPMAlgSHA256, 7, 2)}, nil},
		{[]statement.PCR{pcrOf(tpm2.TPMAlgSHA256, 7, 0xaa), pcrOf(tpm2.TPMAlgSHA256, 4, 0xfe)}, nil},
	} {
		t.Run(fmt.Sprint(c.want), func(t *testing.T) {
			if _, err := NewPCRPolicy([]statement.PCR{good}, c.set); !errors.Is(err, c.want) {
				t.Errorf("%v: got %v, want %v", c.set, err, c.want)
			}
		})
	}
}

func TestZeroPCRPolicyRefuses(t *testing.T) {
	m := quotedForPolicy(t)
	for name, p := range map[string]*PCRPolicy{"nil": nil, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			err := p.CheckQuote(t.Context(), m)
			tpmlab.ExpectCheck(t, err, CheckQuotePolicy)
			if !errors.Is(err, refusal.ErrRetry) {
				t.Errorf("%v denies a machine for the operator's mistake", err)
			}
		})
	}
}

// anyBoot is a policy of others, which has no method Validate.
type anyBoot struct{}

func (*anyBoot) CheckQuote(context.Context, *Measured) error { return nil }

func TestDefaultPCRs(t *testing.T) {
	if got := DefaultPCRs()[0].PCRs(); !slices.Equal(got, []int{0, 1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("got %v", got)
	}
}
