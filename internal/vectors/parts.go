package main

import (
	"bytes"
	"encoding/json"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
)

// parts is an answer, or a hello, taken apart to be changed and put together again.
type parts struct {
	object   *csr.Request
	bundle   *csr.Bundle
	evidence *attest.AttestationBundle
	certify  *tpm.CertifyEvidence
	proof    *attest.Proof
	binding  *attest.Binding
	hello    *attest.Hello

	// What changes the encoded statement, bundle or PEM, where the structures above
	// cannot hold the fault.
	onProof, onCertify, onHello, onEvidence, onPEM func([]byte) []byte
	// plain leaves the evidence out.
	plain bool
}

// clone copies an object deeply.
func clone(r *csr.Request) *csr.Request {
	out := &csr.Request{}
	check(json.Unmarshal(must(json.Marshal(r)), out))
	return out
}

func takeApart(object *csr.Request) *parts {
	p := &parts{object: clone(object)}
	p.bundle = must(csr.Parse(p.object.Spec.Request))
	p.evidence = must(attest.ParseAttestationBundle(p.bundle.Data))
	if len(p.evidence.Statements) == 1 {
		p.hello = must(attest.ParseHello(p.evidence.Statements[0].Stmt))
		return p
	}
	p.certify = must(tpm.ParseTCGAttestCertify(p.evidence.Statements[0].Stmt))
	p.proof = must(attest.ParseProof(p.evidence.Statements[1].Stmt))
	p.binding = must(attest.ParseBinding(p.proof.Binding))
	return p
}

// together encodes the parts again, from the innermost outwards.
func (p *parts) together() *csr.Request {
	s := p.evidence.Statements
	switch {
	case p.hello != nil && len(s) > 0:
		s[0].Stmt = change(must(p.hello.Marshal()), p.onHello)
	case len(s) >= 2:
		p.proof.Binding = must(p.binding.Marshal())
		s[0].Stmt = change(must(tpm.MarshalTCGAttestCertify(p.certify)), p.onCertify)
		s[1].Stmt = change(must(p.proof.Marshal()), p.onProof)
	}
	if p.plain {
		p.bundle.Provider, p.bundle.Data = "", nil
	} else {
		p.bundle.Data = change(must(p.evidence.Marshal()), p.onEvidence)
	}
	p.object.Spec.Request = change(must(p.bundle.Marshal()), p.onPEM)
	return p.object
}

func change(b []byte, how func([]byte) []byte) []byte {
	if how == nil {
		return b
	}
	return how(bytes.Clone(b))
}
