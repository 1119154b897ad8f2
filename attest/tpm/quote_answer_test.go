package tpm

import (
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmlab/forger"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// The statements of an answer come in one order, none left out, and a hello is one alone.
func TestStatementsOfMessages(t *testing.T) {
	const (
		hello   = oid.NodeAttestHello
		certify = oid.TCGAttestTPMCertify
		proof   = oid.NodeAttestProof
		quote   = oid.NodeAttestQuote
		log     = oid.NodeAttestEventLog
	)
	evidence := func(types []oid.OID) *attest.Evidence {
		e := &attest.Evidence{}
		for _, id := range types {
			e.Statements = append(e.Statements, attest.Statement{Type: id, DER: []byte{5, 0}})
		}
		return e
	}
	for name, c := range map[string]struct {
		types         []oid.OID
		hello, answer bool // of that frame; what is in it is none
	}{
		"nothing":                  {nil, false, false},
		"a hello":                  {[]oid.OID{hello}, true, false},
		"a hello twice":            {[]oid.OID{hello, hello}, false, false},
		"a hello of documents":     {[]oid.OID{oid.NodeAttestDocumentHello}, false, false},
		"certify alone":            {[]oid.OID{certify}, false, false},
		"certify and proof":        {[]oid.OID{certify, proof}, false, true},
		"with a quote":             {[]oid.OID{certify, proof, quote}, false, true},
		"with a log":               {[]oid.OID{certify, proof, quote, log}, false, true},
		"a log, no quote":          {[]oid.OID{certify, proof, log}, false, false},
		"a fifth":                  {[]oid.OID{certify, proof, quote, log, log}, false, false},
		"the other way round":      {[]oid.OID{proof, certify}, false, false},
		"with a hello":             {[]oid.OID{hello, certify, proof}, false, false},
		"a proof of documents":     {[]oid.OID{certify, oid.NodeAttestDocumentProof}, false, false},
		"a document for the quote": {[]oid.OID{certify, proof, oid.NodeAttestDocument}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&Kind{}).ReadHello(evidence(c.types))
			if errors.Is(err, attest.CheckStatements) == c.hello || !c.hello == errors.Is(err, refusal.Check("message-encoding")) {
				t.Errorf("hello: %v", err)
			}
			_, err = (&Kind{}).ReadAnswer(evidence(c.types))
			if errors.Is(err, attest.CheckStatements) == c.answer || !c.answer == errors.Is(err, refusal.Check("message-encoding")) {
				t.Errorf("answer: %v", err)
			}
		})
	}
}

// A quote or an event log that is none is refused when the answer is read, and an answer
// without them has none.
func TestMeasurementsOfAnswers(t *testing.T) {
	f := forger.NewCertify(t, forger.NewAK(t, tpmlab.RSA2048b(), forger.RSASSA), tpmlab.P256b().Public())
	certify := tpmlab.First(statement.MarshalTCGAttestCertify(f.Evidence(t)))
	proof := testProofOf(t)
	good := []attest.Statement{{Type: oid.TCGAttestTPMCertify, DER: certify}, {Type: oid.NodeAttestProof, DER: proof}}
	quote := attest.Statement{Type: oid.NodeAttestQuote, DER: []byte{5, 0}}
	read := func(statements ...attest.Statement) (attest.AnswerEvidence, error) {
		return (&Kind{}).ReadAnswer(&attest.Evidence{Statements: statements})
	}
	a, err := read(good...)
	if err != nil {
		t.Fatal(err)
	}
	if a := a.(*answer); a.quote != nil || a.eventLog != nil {
		t.Error("a quote, or a log, of nothing")
	}
	got, err := read(append(good[:2:2], quote)...)
	tpmlab.ExpectCheck(t, err, refusal.Check("message-encoding"))
	if got != nil {
		t.Error("a quote of nothing was read")
	}
	bare := f.Evidence(t)
	bare.Public = nil
	_, err = read(attest.Statement{Type: oid.TCGAttestTPMCertify, DER: tpmlab.First(statement.MarshalTCGAttestCertify(bare))}, good[1])
	tpmlab.ExpectCheck(t, err, refusal.Check("message-encoding"))
}

// An answer without a quote, where one is asked for, is refused before anything is
// verified, and again where the policy is asked.
func TestAnswersWithoutQuotes(t *testing.T) {
	covers := func(string, []byte) error { return errors.New("not asked here") }
	policy := &PCRPolicy{sets: [][]statement.PCR{{{}}}}
	a := &answer{kind: &Kind{quotePolicy: policy}}
	tpmlab.ExpectCheck(t, a.checkQuote(covers), checkQuoteMissing)
	tpmlab.ExpectCheck(t, policy.CheckQuote(t.Context(), nil), checkQuoteMissing)
	tpmlab.ExpectCheck(t, policy.CheckQuote(t.Context(), &Measured{}), checkQuoteMissing)
	tpmlab.ExpectCheck(t, (&PCRPolicy{}).CheckQuote(t.Context(), nil), CheckQuotePolicy)
	a = &answer{kind: &Kind{}}
	if err := a.checkQuote(covers); err != nil || a.quoted != nil {
		t.Errorf("none is asked for: %v, %v", a.quoted, err)
	}
}
