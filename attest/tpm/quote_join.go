package tpm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Checks of the quote of an answer, beside those of [VerifyQuote].
const (
	// CheckQuoteMissing: the verifier has a policy over quotes, and the answer carries
	// none.
	CheckQuoteMissing Check = "quote-missing"
	// CheckQuoteBoot: quote and certify statement are not of one boot of one TPM: signer,
	// reset or restart count differ.
	CheckQuoteBoot Check = "quote-boot"
)

// measuring is what an Attester adds to its answers.
type measuring struct {
	selection []PCRSelection // nil for no quote
	eventLog  func(ctx context.Context) ([]byte, error)
}

func newMeasuring(o *AttesterOptions) (measuring, error) {
	if o.Quote == nil {
		if o.EventLog != nil {
			return measuring{}, errors.New("EventLog without Quote: nothing would vouch for the log")
		}
		return measuring{}, nil
	}
	if _, err := selectedPCRs(o.Quote, false); err != nil {
		return measuring{}, fmt.Errorf("option Quote: %w", err)
	}
	return measuring{selection: clonedSelections(o.Quote), eventLog: o.EventLog}, nil
}

func clonedSelections(selections []PCRSelection) []PCRSelection {
	all := slices.Clone(selections)
	for n := range all {
		all[n].Select = bytes.Clone(all[n].Select)
	}
	return all
}

// readLog reads the event log, before the TPM is taken. nil means none.
func (m *measuring) readLog(ctx context.Context) ([]byte, error) {
	if m.eventLog == nil {
		return nil, nil
	}
	log, err := m.eventLog(ctx)
	if err != nil {
		return nil, fmt.Errorf("event log: %w", err)
	}
	return MarshalEventLog(log)
}

// quote quotes what there is to quote, and returns the statement's DER, nil for none.
func (m *measuring) quote(ctx context.Context, h *handles, ak *loadedKey, qualifyingData []byte) ([]byte, error) {
	if m.selection == nil {
		return nil, nil
	}
	e, err := quote(ctx, h, ak, m.selection, qualifyingData)
	if err != nil {
		return nil, fmt.Errorf("quote: %w", err)
	}
	return MarshalQuote(e)
}

// measuredStatements are the statements behind the proof: the quote, and behind it the
// event log.
func measuredStatements(quote, log []byte) []AttestationStatement {
	var s []AttestationStatement
	if quote != nil {
		s = append(s, AttestationStatement{Type: oid.NodeAttestQuote, Stmt: quote})
	}
	if log != nil {
		s = append(s, AttestationStatement{Type: oid.NodeAttestEventLog, Stmt: log})
	}
	return s
}

// readMeasured reads what an answer has behind certify and proof.
func (a *answer) readMeasured(s []AttestationStatement) (err error) {
	if len(s) > 0 {
		if a.quote, err = ParseQuote(s[0].Stmt); err != nil {
			return err
		}
	}
	if len(s) > 1 {
		a.eventLog, err = ParseEventLog(s[1].Stmt)
	}
	return err
}

// isAnswer: certify, proof, then optionally a quote, then with it an event log.
func isAnswer(s []AttestationStatement) bool {
	order := [...]oid.OID{oid.TCGAttestTPMCertify, oid.NodeAttestProof, oid.NodeAttestQuote, oid.NodeAttestEventLog}
	if len(s) < 2 || len(s) > len(order) {
		return false
	}
	for n := range s {
		if s[n].Type != order[n] {
			return false
		}
	}
	return true
}

// quoteOf checks all of an answer's quote but its signature: under the very AK of the
// certify statement, over this challenge, of this boot. It returns nil where there is no
// quote and none is needed.
func (v *Verifier) quoteOf(a *answer, certify *certifyInput, secret []byte) (*quoteInput, error) {
	if a.quote == nil {
		if v.quotePolicy != nil {
			return nil, refuseStatement(CheckQuoteMissing, "an answer without a quote", "one with a quote")
		}
		return nil, nil
	}
	in := &quoteInput{certifyInput: certifyInput{
		ak: certify.ak, akName: certify.akName, akKey: certify.akKey,
		qualifyingData: qualifyingData(secret, labelQuote, a.proof.Binding),
		policy:         statementPolicy{allowSHA1Signature: certify.policy.allowSHA1Signature},
	}}
	if err := in.parseQuote(a.quote); err != nil {
		return nil, err
	}
	if err := in.checkBeforeSignature(); err != nil {
		return nil, err
	}
	return in, checkSameBoot(certify.attest, in.attest)
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

// checkQuote verifies the quote's signature, the last of its checks, and fills the
// result. in is nil where there is no quote.
func (r *Result) checkQuote(ctx context.Context, w *work, a *answer, in *quoteInput) error {
	if in == nil {
		return nil
	}
	if err := w.signature(ctx); err != nil {
		return err
	}
	if err := in.checkSignature(); err != nil {
		return err
	}
	trust := AKByIssuer
	if r.Road == RoadEK {
		trust = AKByCredential
	}
	r.Measured = &Measured{Quote: in.quoted(&AK{trust: trust}), EventLog: a.eventLog}
	return nil
}

// checkMeasured asks the policy.
func (v *Verifier) checkMeasured(ctx context.Context, r *Result) error {
	if v.quotePolicy == nil {
		return nil
	}
	if r.Measured == nil { // quoteOf asked for it
		return refuseStatement(CheckQuoteMissing, "an answer without a quote", "one with a quote")
	}
	return v.quotePolicy.CheckQuote(ctx, r.Measured)
}

// measuredFacts lists the quoted PCRs.
func (r *Result) measuredFacts(standing Standing) []Fact {
	if r.Measured == nil {
		return nil
	}
	var facts []Fact
	for _, p := range r.Measured.Quote.PCRs() {
		facts = append(facts, Fact{standing, "PCR", p.String()})
	}
	return facts
}
