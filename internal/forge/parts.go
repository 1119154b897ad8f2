package forge

import (
	"bytes"
	"encoding/json"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
)

// Parts is an answer, or a hello, taken apart to be changed and put together again.
type Parts struct {
	Object   *csr.Request // a copy
	Bundle   *csr.Bundle
	Evidence *message.Bundle
	Certify  *statement.CertifyEvidence // nil in a hello
	Proof    *message.Proof             // nil in a hello
	Binding  *message.Binding           // of the proof
	Hello    *message.Hello

	// What changes the encoded statement, bundle or PEM, where the structures above
	// cannot hold the fault.
	OnProof, onCertify, OnHello, OnEvidence, onPEM func([]byte) []byte
	// Plain leaves the evidence out.
	Plain bool
}

// Clone copies an object deeply.
func Clone(r *csr.Request) *csr.Request {
	out := &csr.Request{}
	Check(json.Unmarshal(Must(json.Marshal(r)), out))
	return out
}

// TakeApart copies an object that package attest can read.
func TakeApart(object *csr.Request) *Parts {
	p := &Parts{Object: Clone(object)}
	p.Bundle = Must(csr.Parse(p.Object.Spec.Request))
	p.Evidence = Must(message.ParseBundle(p.Bundle.Data))
	if len(p.Evidence.Statements) == 1 {
		p.Hello = Must(message.ParseHello(p.Evidence.Statements[0].Stmt))
		return p
	}
	p.Certify = Must(statement.ParseTCGAttestCertify(p.Evidence.Statements[0].Stmt))
	var err error
	if p.Proof, _, err = message.ParseProof(p.Evidence.Statements[1].Stmt); err != nil {
		panic(err)
	}
	p.Binding = Must(message.ParseBinding(p.Proof.Binding))
	return p
}

// Together encodes the parts again, from the innermost outwards.
func (p *Parts) Together() *csr.Request {
	s := p.Evidence.Statements
	switch {
	case p.Hello != nil && len(s) > 0:
		s[0].Stmt = Change(Must(p.Hello.Marshal()), p.OnHello)
	case len(s) >= 2:
		p.Proof.Binding = Must(p.Binding.Marshal())
		s[0].Stmt = Change(Must(statement.MarshalTCGAttestCertify(p.Certify)), p.onCertify)
		s[1].Stmt = Change(Must(p.Proof.Marshal()), p.OnProof)
	}
	if p.Plain {
		p.Bundle.Provider, p.Bundle.Data = "", nil
	} else {
		p.Bundle.Data = Change(Must(p.Evidence.Marshal()), p.OnEvidence)
	}
	p.Object.Spec.Request = Change(Must(p.Bundle.Marshal()), p.onPEM)
	return p.Object
}

// Change is how of a copy of b, or b itself where how is nil.
func Change(b []byte, how func([]byte) []byte) []byte {
	if how == nil {
		return b
	}
	return how(bytes.Clone(b))
}
