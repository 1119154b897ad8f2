package message

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
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

func TestBundleFrame(t *testing.T) {
	id := []byte{6, 1, 0x2a}
	one := seq(id, octets([]byte{1}))
	list := func(n int, e []byte) []byte { return element(asn1.SEQUENCE, bytes.Repeat(e, n)) }
	certificate := seq()
	for name, c := range map[string]struct {
		data []byte
		want refusal.Check
	}{
		"one statement":            {seq(list(1, one)), ""},
		"as many as there may be":  {seq(list(MaxStatements, one), list(der.MaxCertificates, certificate)), ""},
		"the largest certificate":  {seq(list(1, one), list(1, ofSize(der.MaxCertificateSize))), ""},
		"one statement more":       {seq(list(MaxStatements+1, one)), der.CheckEncoding},
		"one certificate more":     {seq(list(1, one), list(der.MaxCertificates+1, certificate)), der.CheckEncoding},
		"a larger certificate":     {seq(list(1, one), list(1, ofSize(der.MaxCertificateSize+1))), der.CheckSize},
		"nothing":                  {seq(), der.CheckEncoding},
		"no statement":             {seq(list(0, one)), der.CheckEncoding},
		"statements of no list":    {seq(octets(one)), der.CheckEncoding},
		"no certificate":           {seq(list(1, one), list(0, certificate)), der.CheckEncoding},
		"certificates of no list":  {seq(list(1, one), octets(certificate)), der.CheckEncoding},
		"another choice of certs":  {seq(list(1, one), list(1, element(0xa0, nil))), der.CheckEncoding},
		"something after certs":    {seq(list(1, one), list(1, certificate), octets(nil)), der.CheckEncoding},
		"a statement of no list":   {seq(list(1, octets(one))), der.CheckEncoding},
		"a statement without type": {seq(list(1, seq(octets([]byte{1})))), der.CheckEncoding},
		"a type alone":             {seq(list(1, seq(id))), der.CheckEncoding},
		"two in one statement":     {seq(list(1, seq(id, octets(nil), octets(nil)))), der.CheckEncoding},
		"a cut statement":          {seq(list(1, seq(id, []byte{4, 2, 0}))), der.CheckEncoding},
	} {
		t.Run("parse, "+name, func(t *testing.T) {
			b, err := ParseBundle(c.data)
			expectCheck(t, err, c.want)
			if (b == nil) != (err != nil) {
				t.Fatalf("got %v, %v", b, err)
			}
			if c.want != "" {
				return
			}
			again, err := b.Marshal()
			if err != nil || !bytes.Equal(again, c.data) {
				t.Errorf("again: %v", err)
			}
		})
	}
	statement := Statement{Type: oid.NodeAttestHello, Stmt: octets([]byte{1})}
	statements := func(n int) []Statement {
		var all []Statement
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
		b    Bundle
		want refusal.Check
	}{
		"as many as there may be": {Bundle{statements(MaxStatements), certificates(der.MaxCertificates, certificate)}, ""},
		"the largest certificate": {Bundle{statements(1), certificates(1, ofSize(der.MaxCertificateSize))}, ""},
		"one statement more":      {Bundle{statements(MaxStatements + 1), nil}, der.CheckEncoding},
		"no statement":            {Bundle{nil, certificates(1, certificate)}, der.CheckEncoding},
		"one certificate more":    {Bundle{statements(1), certificates(der.MaxCertificates+1, certificate)}, der.CheckEncoding},
		"a larger certificate":    {Bundle{statements(1), certificates(1, ofSize(der.MaxCertificateSize+1))}, der.CheckSize},
		"no certificate":          {Bundle{statements(1), [][]byte{{4, 0}}}, der.CheckEncoding},
		"bytes after one":         {Bundle{statements(1), [][]byte{{0x30, 0, 0}}}, der.CheckEncoding},
		"no type":                 {Bundle{[]Statement{{Stmt: octets(nil)}}, nil}, der.CheckEncoding},
		"no DER":                  {Bundle{[]Statement{{Type: oid.NodeAttestHello, Stmt: []byte{4}}}, nil}, der.CheckEncoding},
		"two elements":            {Bundle{[]Statement{{Type: oid.NodeAttestHello, Stmt: []byte{4, 0, 4, 0}}}, nil}, der.CheckEncoding},
		"more than all of it may": {Bundle{[]Statement{{Type: oid.NodeAttestHello, Stmt: ofSize(der.MaxEvidenceSize)}}, nil}, der.CheckSize},
	} {
		t.Run("marshal, "+name, func(t *testing.T) {
			data, err := c.b.Marshal()
			expectCheck(t, err, c.want)
			if (data == nil) != (err != nil) && c.want != der.CheckSize {
				t.Errorf("got %d bytes, %v", len(data), err)
			}
		})
	}
	t.Run("exactly the largest bundle", func(t *testing.T) {
		for size, want := range map[int]refusal.Check{der.MaxEvidenceSize: "", der.MaxEvidenceSize + 1: der.CheckSize} {
			frame := len(seq(list(1, seq(id, ofSize(der.MaxEvidenceSize-100))))) - (der.MaxEvidenceSize - 100)
			data := seq(list(1, seq(id, ofSize(size-frame))))
			if len(data) != size {
				t.Fatalf("made %d bytes, want %d", len(data), size)
			}
			_, err := ParseBundle(data)
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
	for _, data := range [][]byte{good, ek} {
		if _, err := ParseChallenge(data); err != nil {
			t.Fatal(err)
		}
	}
	binding := func(b *Binding) []byte {
		data, err := b.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	ak, onEK := binding(testBinding()), binding(testBindingEK())
	clear := element(der.Context0, make([]byte, SecretSize))
	credential := func(parts ...[]byte) []byte { return element(der.Context1Constructed, bytes.Join(parts, nil)) }
	one := octets([]byte{1})
	for name, data := range map[string][]byte{
		"something after the secret":       seq(ak, clear, one),
		"something after the credential":   seq(onEK, credential(one, one), one),
		"a third part of the credential":   seq(onEK, credential(one, one, one)),
		"a credential of one part":         seq(onEK, credential(one)),
		"a credential of nothing":          seq(onEK, credential()),
		"an empty idObject":                seq(onEK, credential(octets(nil), one)),
		"an empty encrypted secret":        seq(onEK, credential(one, octets(nil))),
		"a larger idObject":                seq(onEK, credential(octets(make([]byte, maxIDObjectSize+1)), one)),
		"a larger encrypted secret":        seq(onEK, credential(one, octets(make([]byte, maxEncryptedSecretSize+1)))),
		"no secret":                        seq(ak),
		"a secret of 31 bytes":             seq(ak, element(der.Context0, make([]byte, SecretSize-1))),
		"a secret of 33 bytes":             seq(ak, element(der.Context0, make([]byte, SecretSize+1))),
		"a binding of no list":             seq(octets(ak), clear),
		"a credential on the road of AKs":  seq(ak, credential(one, one)),
		"a clear secret on the road of EK": seq(onEK, clear),
		"bytes after":                      append(bytes.Clone(good), 0),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseChallenge(data)
			expectCheck(t, err, der.CheckEncoding)
		})
	}
}

// expectCheck expects a refusal with this check, or none for "".
func expectCheck(t *testing.T, err error, want refusal.Check) {
	t.Helper()
	if want == "" && err != nil || want != "" && !errors.Is(err, want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
