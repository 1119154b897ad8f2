package tpm

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/softak"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
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
		hello, answer bool // of that frame, with bad content
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

// A malformed quote or event log is refused when the answer is read, and an answer
// without them has none.
func TestMeasurementsOfAnswers(t *testing.T) {
	f := goodCertifyForgery(t, softak.NewAK(tpmlab.RSA2048b(), softak.RSASSA), tpmlab.P256b().Public())
	certify := testkit.Must(statement.MarshalTCGAttestCertify(f.Evidence(t)))
	proof := testProofOf(t)
	good := []attest.Statement{{Type: oid.TCGAttestTPMCertify, DER: certify}, {Type: oid.NodeAttestProof, DER: proof}}
	quote := attest.Statement{Type: oid.NodeAttestQuote, DER: []byte{5, 0}}
	read := func(statements ...attest.Statement) (attest.AnswerEvidence, error) {
		return (&Kind{}).ReadAnswer(&attest.Evidence{Statements: statements})
	}
	a, err := read(good...)
	testkit.NoError(t, err)
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
	_, err = read(attest.Statement{Type: oid.TCGAttestTPMCertify, DER: testkit.Must(statement.MarshalTCGAttestCertify(bare))}, good[1])
	tpmlab.ExpectCheck(t, err, refusal.Check("message-encoding"))
}

// An answer without a quote, where one is asked for, is refused before anything is
// verified, and again where the policy is asked.
func TestAnswersWithoutQuotes(t *testing.T) {
	covers := func(string, []byte) error { return errors.New("not asked here") }
	policy := &PCRPolicy{sets: [][]statement.PCR{{{}}}}
	a := &answer{evidence: evidence{kind: &Kind{quotePolicy: policy}}}
	tpmlab.ExpectCheck(t, a.checkQuote(covers), CheckQuoteMissing)
	tpmlab.ExpectCheck(t, policy.CheckQuote(t.Context(), nil), CheckQuoteMissing)
	tpmlab.ExpectCheck(t, policy.CheckQuote(t.Context(), &Measured{}), CheckQuoteMissing)
	tpmlab.ExpectCheck(t, (&PCRPolicy{}).CheckQuote(t.Context(), nil), CheckQuotePolicy)
	a = &answer{evidence: evidence{kind: &Kind{}}}
	if err := a.checkQuote(covers); err != nil || a.quoted != nil {
		t.Errorf("none is asked for: %v, %v", a.quoted, err)
	}
}

// quotedAnswer is an answer before the check of its quote: a certify statement that holds, and a
// quote by a key in software over the same challenge.
func quotedAnswer(t *testing.T, change func(*quoteForgery)) *answer {
	t.Helper()
	ak := softak.NewAK(tpmlab.P256(), softak.ECDSA)
	good := goodCertifyForgery(t, ak, tpmlab.P256b().Public())
	raw, err := good.Attest.Marshal()
	testkit.NoError(t, err)
	stated, err := statement.ParseAttestation(raw)
	testkit.NoError(t, err)
	secret, binding := []byte("secret"), []byte("binding")
	f := goodQuoteForgery(t, ak)
	f.attest.ExtraData = dataOf(secret, labelQuote, binding)
	change(f)
	return &answer{evidence: evidence{kind: &Kind{}}, quote: f.evidence(t),
		in: statement.CertifyInput{Attest: stated, AK: ak.Public, AKName: ak.Public.Name(), AKKey: ak.Private.Public()}}
}

// A quote counts only by the very AK of the certify statement, over the same
// challenge, of the same boot.
func TestQuoteOfAnswer(t *testing.T) {
	other := softak.NewAK(tpmlab.P256b(), softak.ECDSA)
	for name, c := range map[string]struct {
		want   refusal.Check
		change func(*quoteForgery)
	}{
		"good": {"", func(*quoteForgery) {}},
		"by another AK": {refusal.Check("tpm-signature"), func(f *quoteForgery) {
			f.ak = &softak.AK{Private: other.Private, Public: f.ak.Public}
		}},
		"by another AK, which it names": {checkQuoteBoot, func(f *quoteForgery) {
			f.ak = other
			f.attest.QualifiedSigner = statement.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, other.Public.Name())
		}},
		"by the AK under another parent": {checkQuoteBoot, func(f *quoteForgery) {
			f.attest.QualifiedSigner = statement.QualifiedNameOfPrimary(tpm2.TPMRHOwner, f.ak.Public.Name())
		}},
		"over the certify statement's data": {attest.CheckQualifyingData, func(f *quoteForgery) {
			f.attest.ExtraData = dataOf([]byte("secret"), labelCertify, []byte("binding"))
		}},
		"over another binding": {attest.CheckQualifyingData, func(f *quoteForgery) {
			f.attest.ExtraData = dataOf([]byte("secret"), labelQuote, []byte("bindinh"))
		}},
		"over another secret": {attest.CheckQualifyingData, func(f *quoteForgery) {
			f.attest.ExtraData = dataOf([]byte("secreu"), labelQuote, []byte("binding"))
		}},
		"after a reset":   {checkQuoteBoot, func(f *quoteForgery) { f.attest.ResetCount++ }},
		"after a restart": {checkQuoteBoot, func(f *quoteForgery) { f.attest.RestartCount++ }},
		"of SHA-1": {refusal.Check("pcr-bank"), func(f *quoteForgery) {
			f.selectPCRs(statement.PCRSelection{Hash: tpm2.TPMAlgSHA1, Select: []byte{1, 0, 0}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := quotedAnswer(t, c.change)
			err := a.checkQuote(func(label string, data []byte) error {
				if !bytes.Equal(data, dataOf([]byte("secret"), label, []byte("binding"))) {
					return &refusal.Error{Check: attest.CheckQualifyingData, Want: label}
				}
				return nil
			})
			if err == nil {
				err = a.quoted.CheckSignature()
			}
			tpmlab.ExpectCheck(t, err, c.want)
		})
	}
}

// dataOf is the qualifying data of a TPM's statement.
func dataOf(secret []byte, label string, binding []byte) []byte {
	return message.QualifyingData(secret, Provider+"/v1", label, binding)
}
