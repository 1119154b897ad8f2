package tpm

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/oid"
)

// seq is a SEQUENCE of the elements, octets an OCTET STRING.
func seq(elements ...[]byte) []byte { return element(asn1.SEQUENCE, bytes.Join(elements, nil)) }

func octets(v []byte) []byte { return element(asn1.OCTET_STRING, v) }

func element(tag asn1.Tag, content []byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(tag, func(b *cryptobyte.Builder) { b.AddBytes(content) })
	return b.BytesOrPanic()
}

// ofSize is a SEQUENCE of so many bytes, header included: 4 and more than 260.
func ofSize(n int) []byte { return seq(octets(make([]byte, n-8))) }

func TestCertifyFrame(t *testing.T) {
	one, largest, over := []byte{1}, make([]byte, MaxPublicSize), make([]byte, MaxPublicSize+1)
	for name, c := range map[string]struct {
		e    *CertifyEvidence
		want Check
	}{
		"all of the largest size": {&CertifyEvidence{Attest: largest, Signature: largest, Public: largest}, ""},
		"without a public area":   {&CertifyEvidence{Attest: one, Signature: one}, ""},
		"nothing":                 {nil, CheckEncoding},
		"no statement":            {&CertifyEvidence{Signature: one, Public: one}, CheckEncoding},
		"no signature":            {&CertifyEvidence{Attest: one, Public: one}, CheckEncoding},
		"an empty public area":    {&CertifyEvidence{Attest: one, Signature: one, Public: []byte{}}, CheckEncoding},
		"a larger statement":      {&CertifyEvidence{Attest: over, Signature: one, Public: one}, CheckEncoding},
		"a larger signature":      {&CertifyEvidence{Attest: one, Signature: over, Public: one}, CheckEncoding},
		"a larger public area":    {&CertifyEvidence{Attest: one, Signature: one, Public: over}, CheckEncoding},
	} {
		t.Run("marshal, "+name, func(t *testing.T) {
			der, err := MarshalTCGAttestCertify(c.e)
			expectCheck(t, err, c.want)
			if c.want != "" {
				return
			}
			if _, err := ParseTCGAttestCertify(der); err != nil {
				t.Error(err)
			}
		})
	}
	a := octets(one)
	for name, der := range map[string][]byte{
		"a fourth element":     seq(a, a, a, a),
		"a third of no octets": seq(a, a, element(asn1.INTEGER, one)),
		"one element":          seq(a),
		"none":                 seq(),
		"no SEQUENCE":          a,
		"bytes behind":         append(seq(a, a), 0),
		"empty statement":      seq(octets(nil), a, a),
		"empty signature":      seq(a, octets(nil), a),
		"empty public area":    seq(a, a, octets(nil)),
		"larger statement":     seq(octets(over), a, a),
		"larger signature":     seq(a, octets(over), a),
		"larger public area":   seq(a, a, octets(over)),
	} {
		t.Run("parse, "+name, func(t *testing.T) {
			e, err := ParseTCGAttestCertify(der)
			expectCheck(t, err, CheckEncoding)
			if e != nil {
				t.Error("a result beside the error")
			}
		})
	}
}

func TestBundleFrame(t *testing.T) {
	id := []byte{6, 1, 0x2a}
	one := seq(id, octets([]byte{1}))
	list := func(n int, e []byte) []byte { return element(asn1.SEQUENCE, bytes.Repeat(e, n)) }
	certificate := seq()
	for name, c := range map[string]struct {
		der  []byte
		want Check
	}{
		"one statement":            {seq(list(1, one)), ""},
		"as many as there may be":  {seq(list(MaxStatements, one), list(MaxCertificates, certificate)), ""},
		"the largest certificate":  {seq(list(1, one), list(1, ofSize(MaxCertificateSize))), ""},
		"one statement more":       {seq(list(MaxStatements+1, one)), CheckEncoding},
		"one certificate more":     {seq(list(1, one), list(MaxCertificates+1, certificate)), CheckEncoding},
		"a larger certificate":     {seq(list(1, one), list(1, ofSize(MaxCertificateSize+1))), CheckSize},
		"nothing":                  {seq(), CheckEncoding},
		"no statement":             {seq(list(0, one)), CheckEncoding},
		"statements of no list":    {seq(octets(one)), CheckEncoding},
		"no certificate":           {seq(list(1, one), list(0, certificate)), CheckEncoding},
		"certificates of no list":  {seq(list(1, one), octets(certificate)), CheckEncoding},
		"another choice of certs":  {seq(list(1, one), list(1, element(0xa0, nil))), CheckEncoding},
		"something behind certs":   {seq(list(1, one), list(1, certificate), octets(nil)), CheckEncoding},
		"a statement of no list":   {seq(list(1, octets(one))), CheckEncoding},
		"a statement without type": {seq(list(1, seq(octets([]byte{1})))), CheckEncoding},
		"a type alone":             {seq(list(1, seq(id))), CheckEncoding},
		"two in one statement":     {seq(list(1, seq(id, octets(nil), octets(nil)))), CheckEncoding},
		"a cut statement":          {seq(list(1, seq(id, []byte{4, 2, 0}))), CheckEncoding},
	} {
		t.Run("parse, "+name, func(t *testing.T) {
			b, err := ParseAttestationBundle(c.der)
			expectCheck(t, err, c.want)
			if (b == nil) != (err != nil) {
				t.Fatalf("got %v, %v", b, err)
			}
			if c.want != "" {
				return
			}
			again, err := b.Marshal()
			if err != nil || !bytes.Equal(again, c.der) {
				t.Errorf("again: %v", err)
			}
		})
	}
	statement := AttestationStatement{Type: oid.NodeAttestHello, Stmt: octets([]byte{1})}
	statements := func(n int) []AttestationStatement {
		var all []AttestationStatement
		for range n {
			all = append(all, statement)
		}
		return all
	}
	certificates := func(n int, c []byte) [][]byte {
		var all [][]byte
		for range n {
			all = append(all, c)
		}
		return all
	}
	for name, c := range map[string]struct {
		b    AttestationBundle
		want Check
	}{
		"as many as there may be": {AttestationBundle{statements(MaxStatements), certificates(MaxCertificates, certificate)}, ""},
		"the largest certificate": {AttestationBundle{statements(1), certificates(1, ofSize(MaxCertificateSize))}, ""},
		"one statement more":      {AttestationBundle{statements(MaxStatements + 1), nil}, CheckEncoding},
		"no statement":            {AttestationBundle{nil, certificates(1, certificate)}, CheckEncoding},
		"one certificate more":    {AttestationBundle{statements(1), certificates(MaxCertificates+1, certificate)}, CheckEncoding},
		"a larger certificate":    {AttestationBundle{statements(1), certificates(1, ofSize(MaxCertificateSize+1))}, CheckSize},
		"no certificate":          {AttestationBundle{statements(1), [][]byte{{4, 0}}}, CheckEncoding},
		"bytes behind one":        {AttestationBundle{statements(1), [][]byte{{0x30, 0, 0}}}, CheckEncoding},
		"no type":                 {AttestationBundle{[]AttestationStatement{{Stmt: octets(nil)}}, nil}, CheckEncoding},
		"no DER":                  {AttestationBundle{[]AttestationStatement{{Type: oid.NodeAttestHello, Stmt: []byte{4}}}, nil}, CheckEncoding},
		"two elements":            {AttestationBundle{[]AttestationStatement{{Type: oid.NodeAttestHello, Stmt: []byte{4, 0, 4, 0}}}, nil}, CheckEncoding},
		"more than all of it may": {AttestationBundle{[]AttestationStatement{{Type: oid.NodeAttestHello, Stmt: ofSize(MaxEvidenceSize)}}, nil}, CheckSize},
	} {
		t.Run("marshal, "+name, func(t *testing.T) {
			der, err := c.b.Marshal()
			expectCheck(t, err, c.want)
			if (der == nil) != (err != nil) && c.want != CheckSize {
				t.Errorf("got %d bytes, %v", len(der), err)
			}
		})
	}
	t.Run("exactly the largest bundle", func(t *testing.T) {
		for size, want := range map[int]Check{MaxEvidenceSize: "", MaxEvidenceSize + 1: CheckSize} {
			frame := len(seq(list(1, seq(id, ofSize(MaxEvidenceSize-100))))) - (MaxEvidenceSize - 100)
			der := seq(list(1, seq(id, ofSize(size-frame))))
			if len(der) != size {
				t.Fatalf("made %d bytes, want %d", len(der), size)
			}
			_, err := ParseAttestationBundle(der)
			expectCheck(t, err, want)
		}
	})
}

func TestChallengeFrame(t *testing.T) {
	good, err := (&Challenge{Binding: *testBinding(), Clear: make([]byte, SecretSize)}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	ek, err := (&Challenge{Binding: *testBindingEK(), Credential: &Credential{IDObject: make([]byte, maxIDObjectSize), EncryptedSecret: make([]byte, maxEncryptedSecretSize)}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, der := range [][]byte{good, ek} {
		if _, err := ParseChallenge(der); err != nil {
			t.Fatal(err)
		}
	}
	binding := func(b *Binding) []byte {
		der, err := b.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	ak, onEK := binding(testBinding()), binding(testBindingEK())
	clear := element(tagContext0, make([]byte, SecretSize))
	credential := func(parts ...[]byte) []byte { return element(tagContext1Constructed, bytes.Join(parts, nil)) }
	one := octets([]byte{1})
	for name, der := range map[string][]byte{
		"something behind the secret":      seq(ak, clear, one),
		"something behind the credential":  seq(onEK, credential(one, one), one),
		"a third part of the credential":   seq(onEK, credential(one, one, one)),
		"a credential of one part":         seq(onEK, credential(one)),
		"a credential of nothing":          seq(onEK, credential()),
		"an empty idObject":                seq(onEK, credential(octets(nil), one)),
		"an empty encrypted secret":        seq(onEK, credential(one, octets(nil))),
		"a larger idObject":                seq(onEK, credential(octets(make([]byte, maxIDObjectSize+1)), one)),
		"a larger encrypted secret":        seq(onEK, credential(one, octets(make([]byte, maxEncryptedSecretSize+1)))),
		"no secret":                        seq(ak),
		"a secret of 31 bytes":             seq(ak, element(tagContext0, make([]byte, SecretSize-1))),
		"a secret of 33 bytes":             seq(ak, element(tagContext0, make([]byte, SecretSize+1))),
		"a binding of no list":             seq(octets(ak), clear),
		"a credential on the road of AKs":  seq(ak, credential(one, one)),
		"a clear secret on the road of EK": seq(onEK, clear),
		"bytes behind":                     append(bytes.Clone(good), 0),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseChallenge(der)
			expectCheck(t, err, CheckEncoding)
		})
	}
}

func TestQuoteFrame(t *testing.T) {
	one, largest, over := []byte{1}, make([]byte, MaxPublicSize), make([]byte, MaxPublicSize+1)
	value := PCR{Bank: tpm2.TPMAlgSHA256, Index: 3, Value: make([]byte, 32)}
	for name, c := range map[string]struct {
		e    QuoteEvidence
		want Check
	}{
		"the largest":        {QuoteEvidence{Attest: largest, Signature: largest, PCRs: []PCR{value}}, ""},
		"no statement":       {QuoteEvidence{Signature: one, PCRs: []PCR{value}}, CheckEncoding},
		"no signature":       {QuoteEvidence{Attest: one, PCRs: []PCR{value}}, CheckEncoding},
		"no PCR":             {QuoteEvidence{Attest: one, Signature: one}, CheckEncoding},
		"larger statement":   {QuoteEvidence{Attest: over, Signature: one, PCRs: []PCR{value}}, CheckEncoding},
		"larger signature":   {QuoteEvidence{Attest: one, Signature: over, PCRs: []PCR{value}}, CheckEncoding},
		"the same PCR twice": {QuoteEvidence{Attest: one, Signature: one, PCRs: []PCR{value, value}}, CheckPCRDuplicate},
	} {
		t.Run("marshal, "+name, func(t *testing.T) {
			der, err := MarshalQuote(&c.e)
			expectCheck(t, err, c.want)
			if c.want == "" {
				if _, err := ParseQuote(der); err != nil {
					t.Error(err)
				}
			}
		})
	}
	number := func(n byte) []byte { return element(asn1.INTEGER, []byte{n}) }
	pcr := func(index byte) []byte { return seq(number(0x0b), number(index), octets(make([]byte, 32))) }
	a := octets(one)
	for name, c := range map[string]struct {
		der  []byte
		want Check
	}{
		"good":                     {seq(a, a, seq(pcr(0), pcr(1))), ""},
		"the last index":           {seq(a, a, seq(pcr(31))), ""},
		"an index beyond":          {seq(a, a, seq(pcr(32))), CheckEncoding},
		"something behind":         {seq(a, a, seq(pcr(0)), a), CheckEncoding},
		"values of no list":        {seq(a, a, octets(pcr(0))), CheckEncoding},
		"no values":                {seq(a, a), CheckEncoding},
		"an empty list":            {seq(a, a, seq()), CheckEncoding},
		"a value of no list":       {seq(a, a, seq(octets(pcr(0)))), CheckEncoding},
		"descending":               {seq(a, a, seq(pcr(1), pcr(0))), CheckEncoding},
		"twice":                    {seq(a, a, seq(pcr(1), pcr(1))), CheckPCRDuplicate},
		"a fourth in a value":      {seq(a, a, seq(seq(number(0x0b), number(0), octets(make([]byte, 32)), a))), CheckEncoding},
		"a value without its bank": {seq(a, a, seq(seq(number(0), octets(make([]byte, 32))))), CheckEncoding},
		"a value without octets":   {seq(a, a, seq(seq(number(0x0b), number(0)))), CheckEncoding},
		"empty statement":          {seq(octets(nil), a, seq(pcr(0))), CheckEncoding},
		"empty signature":          {seq(a, octets(nil), seq(pcr(0))), CheckEncoding},
		"larger statement":         {seq(octets(over), a, seq(pcr(0))), CheckEncoding},
		"larger signature":         {seq(a, octets(over), seq(pcr(0))), CheckEncoding},
	} {
		t.Run("parse, "+name, func(t *testing.T) {
			_, err := ParseQuote(c.der)
			expectCheck(t, err, c.want)
		})
	}
	for name, c := range map[string]struct {
		log  []byte
		want Check
	}{
		"the largest log": {make([]byte, MaxEventLogSize), ""},
		"one byte more":   {make([]byte, MaxEventLogSize+1), CheckEncoding},
		"none":            {nil, CheckEncoding},
	} {
		t.Run("event log, "+name, func(t *testing.T) {
			_, err := MarshalEventLog(c.log)
			expectCheck(t, err, c.want)
			_, err = ParseEventLog(octets(c.log))
			expectCheck(t, err, c.want)
			if _, err := ParseEventLog(append(octets([]byte{1}), 0)); !errors.Is(err, CheckEncoding) {
				t.Errorf("bytes behind: %v", err)
			}
		})
	}
}
