package statement

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/refusal"
)

func seq(elements ...[]byte) []byte { return element(asn1.SEQUENCE, bytes.Join(elements, nil)) }

func octets(v []byte) []byte { return element(asn1.OCTET_STRING, v) }

func element(tag asn1.Tag, content []byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(tag, func(b *cryptobyte.Builder) { b.AddBytes(content) })
	return b.BytesOrPanic()
}

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
			expectCheck(t, err, c.want)
			if c.want != "" {
				return
			}
			if _, err := ParseTCGAttestCertify(data); err != nil {
				t.Error(err)
			}
		})
	}
	a := octets(one)
	for name, data := range map[string][]byte{
		"a fourth element":     seq(a, a, a, a),
		"a third of no octets": seq(a, a, element(asn1.INTEGER, one)),
		"one element":          seq(a),
		"none":                 seq(),
		"no SEQUENCE":          a,
		"bytes after":          append(seq(a, a), 0),
		"empty statement":      seq(octets(nil), a, a),
		"empty signature":      seq(a, octets(nil), a),
		"empty public area":    seq(a, a, octets(nil)),
		"larger statement":     seq(octets(over), a, a),
		"larger signature":     seq(a, octets(over), a),
		"larger public area":   seq(a, a, octets(over)),
	} {
		t.Run("parse, "+name, func(t *testing.T) {
			e, err := ParseTCGAttestCertify(data)
			expectCheck(t, err, der.CheckEncoding)
			if e != nil {
				t.Error("a result beside the error")
			}
		})
	}
	_, err := ParseTCGAttestCertify(make([]byte, der.MaxEvidenceSize+1))
	expectCheck(t, err, der.CheckSize)
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
			expectCheck(t, err, c.want)
			if c.want == "" {
				if _, err := ParseQuote(data); err != nil {
					t.Error(err)
				}
			}
		})
	}
	number := func(n byte) []byte { return element(asn1.INTEGER, []byte{n}) }
	pcr := func(index byte) []byte { return seq(number(0x0b), number(index), octets(make([]byte, 32))) }
	a := octets(one)
	for name, c := range map[string]struct {
		data []byte
		want refusal.Check
	}{
		"good":                     {seq(a, a, seq(pcr(0), pcr(1))), ""},
		"the last index":           {seq(a, a, seq(pcr(31))), ""},
		"an index beyond":          {seq(a, a, seq(pcr(32))), der.CheckEncoding},
		"something after":          {seq(a, a, seq(pcr(0)), a), der.CheckEncoding},
		"values of no list":        {seq(a, a, octets(pcr(0))), der.CheckEncoding},
		"no values":                {seq(a, a), der.CheckEncoding},
		"an empty list":            {seq(a, a, seq()), der.CheckEncoding},
		"a value of no list":       {seq(a, a, seq(octets(pcr(0)))), der.CheckEncoding},
		"descending":               {seq(a, a, seq(pcr(1), pcr(0))), der.CheckEncoding},
		"twice":                    {seq(a, a, seq(pcr(1), pcr(1))), checkPCRDuplicate},
		"a fourth in a value":      {seq(a, a, seq(seq(number(0x0b), number(0), octets(make([]byte, 32)), a))), der.CheckEncoding},
		"a value without its bank": {seq(a, a, seq(seq(number(0), octets(make([]byte, 32))))), der.CheckEncoding},
		"a value without octets":   {seq(a, a, seq(seq(number(0x0b), number(0)))), der.CheckEncoding},
		"empty statement":          {seq(octets(nil), a, seq(pcr(0))), der.CheckEncoding},
		"empty signature":          {seq(a, octets(nil), seq(pcr(0))), der.CheckEncoding},
		"larger statement":         {seq(octets(over), a, seq(pcr(0))), der.CheckEncoding},
		"larger signature":         {seq(a, octets(over), seq(pcr(0))), der.CheckEncoding},
	} {
		t.Run("parse, "+name, func(t *testing.T) {
			_, err := ParseQuote(c.data)
			expectCheck(t, err, c.want)
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
			expectCheck(t, err, c.want)
			_, err = ParseEventLog(octets(c.log))
			expectCheck(t, err, c.want)
			if _, err := ParseEventLog(append(octets([]byte{1}), 0)); !errors.Is(err, der.CheckEncoding) {
				t.Errorf("bytes after: %v", err)
			}
		})
	}
}

func FuzzParseTCGAttestCertify(f *testing.F) {
	for _, e := range []*CertifyEvidence{{Attest: []byte{1}, Signature: []byte{2}, Public: []byte{3}}, {Attest: []byte{1}, Signature: []byte{2}}} {
		statement, err := MarshalTCGAttestCertify(e)
		if err != nil {
			f.Fatal(err)
		}
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
