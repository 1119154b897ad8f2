package attest

import (
	"testing"

	"github.com/nodeattest/nodeattest/oid"
)

// The statements of an answer come in one order, none left out.
func TestStatementsOfAnswers(t *testing.T) {
	types := func(ids ...oid.OID) (s []AttestationStatement) {
		for _, id := range ids {
			s = append(s, AttestationStatement{Type: id, Stmt: []byte{5, 0}})
		}
		return s
	}
	certify, proof, quote, log := oid.TCGAttestTPMCertify, oid.NodeAttestProof, oid.NodeAttestQuote, oid.NodeAttestEventLog
	for name, c := range map[string]struct {
		statements []AttestationStatement
		want       bool
	}{
		"nothing":             {nil, false},
		"certify alone":       {types(certify), false},
		"certify and proof":   {types(certify, proof), true},
		"with a quote":        {types(certify, proof, quote), true},
		"with a log":          {types(certify, proof, quote, log), true},
		"a log, no quote":     {types(certify, proof, log), false},
		"a fifth":             {types(certify, proof, quote, log, log), false},
		"the other way round": {types(proof, certify), false},
	} {
		if isAnswer(c.statements) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
	var a answer
	expectCheck(t, a.readMeasured(types(quote)), CheckEncoding)
	if a.quote != nil {
		t.Error("a quote of nothing")
	}
	expectCheck(t, a.readMeasured(nil), "")
}

// An answer without a quote, where one is asked for, is refused before anything is
// verified, and again where the policy is asked.
func TestAnswersWithoutQuotes(t *testing.T) {
	v := &Verifier{quotePolicy: &PCRPolicy{}}
	_, err := v.quoteOf(&answer{}, &certifyInput{}, nil)
	expectCheck(t, err, CheckQuoteMissing)
	expectCheck(t, v.checkMeasured(t.Context(), &Result{}), CheckQuoteMissing)
	if in, err := (&Verifier{}).quoteOf(&answer{}, &certifyInput{}, nil); in != nil || err != nil {
		t.Errorf("none is asked for: %v, %v", in, err)
	}
	expectCheck(t, (&Verifier{}).checkMeasured(t.Context(), &Result{}), "")
}
