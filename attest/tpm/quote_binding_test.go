package tpm

import (
	"bytes"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmlab/forger"
	"github.com/nodeattest/nodeattest/refusal"
)

// quotedAnswer is what a verifier has in hand when it comes to the quote: a certify
// statement that holds, and a quote by a key in software over the same challenge.
func quotedAnswer(t *testing.T, change func(*quoteForgery)) *answer {
	t.Helper()
	ak := forger.NewAK(t, tpmlab.P256(), forger.ECDSA)
	good := forger.NewCertify(t, ak, tpmlab.P256b().Public())
	raw, err := good.Attest.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	stated, err := statement.ParseAttestation(raw)
	if err != nil {
		t.Fatal(err)
	}
	secret, binding := []byte("secret"), []byte("binding")
	f := goodQuoteForgery(t, ak)
	f.attest.ExtraData = dataOf(secret, labelQuote, binding)
	change(f)
	return &answer{kind: &Kind{}, quote: f.evidence(t),
		in: statement.CertifyInput{Attest: stated, AK: ak.Public, AKName: ak.Public.Name(), AKKey: ak.Private.Public()}}
}

// A quote counts only by the very AK of the certify statement, over the same
// challenge, of the same boot.
func TestQuoteOfAnswer(t *testing.T) {
	other := forger.NewAK(t, tpmlab.P256b(), forger.ECDSA)
	for name, c := range map[string]struct {
		want   refusal.Check
		change func(*quoteForgery)
	}{
		"good": {"", func(*quoteForgery) {}},
		"by another AK": {refusal.Check("tpm-signature"), func(f *quoteForgery) {
			f.ak = &forger.AK{Private: other.Private, Public: f.ak.Public}
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
