package statement

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// ofSize is a SEQUENCE of so many bytes, header included: 4 and more than 260.

func TestCertifyFrame(t *testing.T) {
	one, largest, over := []byte{1}, make([]byte, der.MaxPublicSize), make([]byte, der.MaxPublicSize+1)
	for name, c := range map[string]struct {
		e    *CertifyEvidence
		want refusal.Check
	}{
		"all of the largest size": {&CertifyEvidence{Attest: largest, Signature: largest, Public: largest}, ""},
		"without a public area":   {&CertifyEvidence{Attest: one, Signature: one}, ""},
		"nothing":                 {nil, der.CheckEncoding},
		"no statement":            {&CertifyEvidence{Signature: one, Public: one}, der.CheckEncoding},
		"no signature":            {&CertifyEvidence{Attest: one, Public: one}, der.CheckEncoding},
		"an empty public area":    {&CertifyEvidence{Attest: one, Signature: one, Public: []byte{}}, der.CheckEncoding},
		"a larger statement":      {&CertifyEvidence{Attest: over, Signature: one, Public: one}, der.CheckEncoding},
		"a larger signature":      {&CertifyEvidence{Attest: one, Signature: over, Public: one}, der.CheckEncoding},
		"a larger public area":    {&CertifyEvidence{Attest: one, Signature: one, Public: over}, der.CheckEncoding},
	} {
		t.Run("marshal, "+name, func(t *testing.T) {
			data, err := MarshalTCGAttestCertify(c.e)
			tpmlab.ExpectCheck(t, err, c.want)
			if c.want != "" {
				return
			}
			if _, err := ParseTCGAttestCertify(data); err != nil {
				t.Error(err)
			}
		})
	}
	a := tpmlab.Octets(one)
	for name, data := range map[string][]byte{
		"a fourth element":     tpmlab.Seq(a, a, a, a),
		"a third of no octets": tpmlab.Seq(a, a, tpmlab.Element(asn1.INTEGER, one)),
		"one element":          tpmlab.Seq(a),
		"none":                 tpmlab.Seq(),
		"no SEQUENCE":          a,
		"bytes after":          append(tpmlab.Seq(a, a), 0),
		"empty statement":      tpmlab.Seq(tpmlab.Octets(nil), a, a),
		"empty signature":      tpmlab.Seq(a, tpmlab.Octets(nil), a),
		"empty public area":    tpmlab.Seq(a, a, tpmlab.Octets(nil)),
		"larger statement":     tpmlab.Seq(tpmlab.Octets(over), a, a),
		"larger signature":     tpmlab.Seq(a, tpmlab.Octets(over), a),
		"larger public area":   tpmlab.Seq(a, a, tpmlab.Octets(over)),
	} {
		t.Run("parse, "+name, func(t *testing.T) {
			e, err := ParseTCGAttestCertify(data)
			tpmlab.ExpectCheck(t, err, der.CheckEncoding)
			if e != nil {
				t.Error("a result with the error")
			}
		})
	}
	_, err := ParseTCGAttestCertify(make([]byte, der.MaxEvidenceSize+1))
	tpmlab.ExpectCheck(t, err, der.CheckSize)
}

func TestQuoteFrame(t *testing.T) {
	one, largest, over := []byte{1}, make([]byte, der.MaxPublicSize), make([]byte, der.MaxPublicSize+1)
	value := PCR{Bank: tpm2.TPMAlgSHA256, Index: 3, Value: make([]byte, 32)}
	for name, c := range map[string]struct {
		e    QuoteEvidence
		want refusal.Check
	}{
		"the largest":        {QuoteEvidence{Attest: largest, Signature: largest, PCRs: []PCR{value}}, ""},
		"no statement":       {QuoteEvidence{Signature: one, PCRs: []PCR{value}}, der.CheckEncoding},
		"no signature":       {QuoteEvidence{Attest: one, PCRs: []PCR{value}}, der.CheckEncoding},
		"no PCR":             {QuoteEvidence{Attest: one, Signature: one}, der.CheckEncoding},
		"larger statement":   {QuoteEvidence{Attest: over, Signature: one, PCRs: []PCR{value}}, der.CheckEncoding},
		"larger signature":   {QuoteEvidence{Attest: one, Signature: over, PCRs: []PCR{value}}, der.CheckEncoding},
		"the same PCR twice": {QuoteEvidence{Attest: one, Signature: one, PCRs: []PCR{value, value}}, checkPCRDuplicate},
	} {
		t.Run("marshal, "+name, func(t *testing.T) {
			data, err := MarshalQuote(&c.e)
			tpmlab.ExpectCheck(t, err, c.want)
			if c.want == "" {
				if _, err := ParseQuote(data); err != nil {
					t.Error(err)
				}
			}
		})
	}
	number := func(n byte) []byte { return tpmlab.Element(asn1.INTEGER, []byte{n}) }
	pcr := func(index byte) []byte {
		return tpmlab.Seq(number(0x0b), number(index), tpmlab.Octets(make([]byte, 32)))
	}
	a := tpmlab.Octets(one)
	for name, c := range map[string]struct {
		data []byte
		want refusal.Check
	}{
		"good":                     {tpmlab.Seq(a, a, tpmlab.Seq(pcr(0), pcr(1))), ""},
		"the last index":           {tpmlab.Seq(a, a, tpmlab.Seq(pcr(31))), ""},
		"an index beyond":          {tpmlab.Seq(a, a, tpmlab.Seq(pcr(32))), der.CheckEncoding},
		"something after":          {tpmlab.Seq(a, a, tpmlab.Seq(pcr(0)), a), der.CheckEncoding},
		"values of no list":        {tpmlab.Seq(a, a, tpmlab.Octets(pcr(0))), der.CheckEncoding},
		"no values":                {tpmlab.Seq(a, a), der.CheckEncoding},
		"an empty list":            {tpmlab.Seq(a, a, tpmlab.Seq()), der.CheckEncoding},
		"a value of no list":       {tpmlab.Seq(a, a, tpmlab.Seq(tpmlab.Octets(pcr(0)))), der.CheckEncoding},
		"descending":               {tpmlab.Seq(a, a, tpmlab.Seq(pcr(1), pcr(0))), der.CheckEncoding},
		"twice":                    {tpmlab.Seq(a, a, tpmlab.Seq(pcr(1), pcr(1))), checkPCRDuplicate},
		"a fourth in a value":      {tpmlab.Seq(a, a, tpmlab.Seq(tpmlab.Seq(number(0x0b), number(0), tpmlab.Octets(make([]byte, 32)), a))), der.CheckEncoding},
		"a value without its bank": {tpmlab.Seq(a, a, tpmlab.Seq(tpmlab.Seq(number(0), tpmlab.Octets(make([]byte, 32))))), der.CheckEncoding},
		"a value without octets":   {tpmlab.Seq(a, a, tpmlab.Seq(tpmlab.Seq(number(0x0b), number(0)))), der.CheckEncoding},
		"empty statement":          {tpmlab.Seq(tpmlab.Octets(nil), a, tpmlab.Seq(pcr(0))), der.CheckEncoding},
		"empty signature":          {tpmlab.Seq(a, tpmlab.Octets(nil), tpmlab.Seq(pcr(0))), der.CheckEncoding},
		"larger statement":         {tpmlab.Seq(tpmlab.Octets(over), a, tpmlab.Seq(pcr(0))), der.CheckEncoding},
		"larger signature":         {tpmlab.Seq(a, tpmlab.Octets(over), tpmlab.Seq(pcr(0))), der.CheckEncoding},
	} {
		t.Run("parse, "+name, func(t *testing.T) {
			_, err := ParseQuote(c.data)
			tpmlab.ExpectCheck(t, err, c.want)
		})
	}
	for name, c := range map[string]struct {
		log  []byte
		want refusal.Check
	}{
		"the largest log": {make([]byte, MaxEventLogSize), ""},
		"one byte more":   {make([]byte, MaxEventLogSize+1), der.CheckEncoding},
		"none":            {nil, der.CheckEncoding},
	} {
		t.Run("event log, "+name, func(t *testing.T) {
			_, err := MarshalEventLog(c.log)
			tpmlab.ExpectCheck(t, err, c.want)
			_, err = ParseEventLog(tpmlab.Octets(c.log))
			tpmlab.ExpectCheck(t, err, c.want)
			if _, err := ParseEventLog(append(tpmlab.Octets([]byte{1}), 0)); !errors.Is(err, der.CheckEncoding) {
				t.Errorf("bytes after: %v", err)
			}
		})
	}
}

func FuzzParseTCGAttestCertify(f *testing.F) {
	for _, e := range []*CertifyEvidence{{Attest: []byte{1}, Signature: []byte{2}, Public: []byte{3}}, {Attest: []byte{1}, Signature: []byte{2}}} {
		statement, err := MarshalTCGAttestCertify(e)
		testkit.NoError(f, err)
		f.Add(statement)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := ParseTCGAttestCertify(data)
		if err != nil {
			if _, ok := errors.AsType[*refusal.Error](err); !ok {
				t.Errorf("%v is no check", err)
			}
			return
		}
		if back, err := MarshalTCGAttestCertify(e); err != nil || !bytes.Equal(back, data) {
			t.Errorf("not canonical: %x reads as %x", data, back)
		}
	})
}
