package forge

import (
	"bytes"
	"encoding/json"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
)

// Parts is an answer, or a hello, taken apart to be changed and reassembled.
type Parts struct {
	Object   *csr.Request // a copy
	Bundle   *csr.Bundle
	Evidence *message.Bundle
	Certify  *statement.CertifyEvidence // nil in a hello
	Proof    *message.Proof             // nil in a hello
	Binding  *message.Binding           // of the proof
	Hello    *message.Hello

	// Functions that change the encoded statement, bundle or PEM, where the structures above
	// cannot represent the fault.
	OnProof, onCertify, OnHello, OnEvidence, onPEM func([]byte) []byte
	// Plain omits the evidence.
	Plain bool
}

// Clone makes a deep copy of an object.
func Clone(r *csr.Request) *csr.Request {
	return Must(csr.ParseServerObject(Must(json.Marshal(r))))
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
	p.Proof, _, err = message.ParseProof(p.Evidence.Statements[1].Stmt)
	Check(err)
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

// Change returns how applied to a copy of b, or b itself if how is nil.
func Change(b []byte, how func([]byte) []byte) []byte {
	if how == nil {
		return b
	}
	return how(bytes.Clone(b))
}

// PartsAttack is one change to a good answer that has been taken apart: nothing is signed
// again.
type PartsAttack = Attack[func(*Parts)]

// proof and evidence change the encoding of the proof, or of all evidence.
func proof(how func([]byte) []byte) func(*Parts) { return func(p *Parts) { p.OnProof = how } }

func evidence(how func([]byte) []byte) func(*Parts) { return func(p *Parts) { p.OnEvidence = how } }

// EchoAttacks change one field of the binding in the proof, and nothing else.
func EchoAttacks() []PartsAttack {
	akName := append([]byte{0, 0x0b}, make([]byte, 32)...)
	field := func(i int, how func([]byte) []byte) func(*Parts) { return proof(Replaced(0, Replaced(i, how))) }
	return listed("echoed bindings", map[string]func(*Parts){
		"version":             field(0, With(2, 1, 2)),
		"road":                func(p *Parts) { p.Binding.Road, p.Binding.AKName = message.RoadEK, akName },
		"road-unknown":        field(1, With(0x0a, 1, 2)),
		"roads-mixed-ak-name": field(11, With(TLV(4, akName)...)),
		"roads-mixed-ek-public": func(p *Parts) {
			p.OnProof = Edited(func(e [][]byte) [][]byte { return [][]byte{e[0], TLV(0x80, p.Proof.AKPublic), e[1]} })
		},
		"key-id-unknown":                     func(p *Parts) { p.Binding.KeyID[0] ^= 1 },
		"nonce":                              func(p *Parts) { p.Binding.Nonce[0] ^= 1 },
		"nonce-short":                        field(3, With(TLV(4, make([]byte, 15))...)),
		"issued-at":                          func(p *Parts) { p.Binding.IssuedAt++ },
		"not-after":                          func(p *Parts) { p.Binding.NotAfter++ },
		"not-after-stretched":                func(p *Parts) { p.Binding.NotAfter = p.Binding.IssuedAt + 3601 },
		"not-after-stretched-within-an-hour": func(p *Parts) { p.Binding.NotAfter = p.Binding.IssuedAt + 3600 },
		"not-after-before-issued-at":         func(p *Parts) { p.Binding.NotAfter = p.Binding.IssuedAt - 1 },
		"cluster":                            func(p *Parts) { p.Binding.ClusterID = "other" },
		"signer":                             func(p *Parts) { p.Binding.SignerName = csr.SignerServingTPM },
		"requester":                          func(p *Parts) { p.Binding.Requester = "system:bootstrap:mallor" },
		"requester-empty":                    func(p *Parts) { p.Binding.Requester = "" },
		"expiration":                         func(p *Parts) { p.Binding.ExpirationSeconds = 600 },
		"machine-key":                        func(p *Parts) { p.Binding.MachineKey[0] ^= 1 },
		"request-hash":                       func(p *Parts) { p.Binding.RequestHash[31] ^= 1 },
		"trailing-field":                     proof(Replaced(0, Appended(5, 0))),
	})
}

// FrameAttacks change what surrounds the binding.
func FrameAttacks() []PartsAttack {
	return listed("frames of answers", map[string]func(*Parts){
		"statements-swapped": evidence(Replaced(0, swapped)),
		"proof-missing":      evidence(Replaced(0, Edited(func(e [][]byte) [][]byte { return e[:1] }))),
		"proof-twice":        evidence(Replaced(0, Edited(func(e [][]byte) [][]byte { return append(e, e[1]) }))),
		"hello-as-answer": func(p *Parts) {
			p.Evidence.Statements = []message.Statement{{Type: oid.NodeAttestHello, Stmt: Must((&message.Hello{
				ClusterID: p.Binding.ClusterID, TargetSigner: p.Binding.SignerName, AKPublic: p.Proof.AKPublic}).Marshal())}}
		},
		"unknown-statement":                 evidence(Replaced(0, Appended(TLV(0x30, []byte{6, 3, 0x88, 0x37, 3}, []byte{5, 0})...))),
		"evidence-missing":                  func(p *Parts) { p.Plain = true },
		"evidence-of-the-insecure-provider": func(p *Parts) { p.Bundle.Provider = "insecure/v1" },
		"evidence-of-another-version":       func(p *Parts) { p.Bundle.Provider = "tpm/v2" },
		"ak-public-of-another-key":          func(p *Parts) { p.Proof.AKPublic = p.Certify.Public },
		"certified-key-is-the-ak-public":    func(p *Parts) { p.Certify.Public = p.Proof.AKPublic },
		"proof-trailing-bytes":              proof(Appended(4, 0)),
		"binding-with-long-length":          proof(Replaced(0, LongLength)),
		"evidence-trailing-bytes":           evidence(Behind(0)),
		"evidence-with-indefinite-length":   evidence(indefinite),
		"evidence-with-huge-length":         evidence(HugeLength),
		"certify-with-huge-length":          evidence(Replaced(0, Replaced(0, Replaced(1, HugeLength)))),
		"certificates-empty":                evidence(Replaced(1, With(0x30, 0))),
	})
}

// BoundAttacks are answers in which every signature, secret and field fits the others, to a
// challenge that was issued for something else.
func BoundAttacks() []Forged {
	bound := func(change func(*message.Binding)) func(*Forgery) {
		return func(f *Forgery) { change(f.B); f.derive() }
	}
	under := func(key func(*Bench) attest.RingKey) func(*Forgery) {
		return func(f *Forgery) { f.Ring = key(f.w); f.B.KeyID = f.Ring.ID; f.derive() }
	}
	return listed("bindings", map[string]func(*Forgery){
		"answer-for-another-cluster":        bound(func(b *message.Binding) { b.ClusterID = "other" }),
		"answer-under-a-retired-key":        under(func(w *Bench) attest.RingKey { return w.Retired }),
		"answer-under-a-later-key":          under(func(w *Bench) attest.RingKey { return w.Later }),
		"answer-with-a-window-of-two-hours": bound(func(b *message.Binding) { b.NotAfter = b.IssuedAt + 7200 }),
		"answer-for-another-signer":         bound(func(b *message.Binding) { b.SignerName = csr.SignerServingTPM }),
		"answer-of-another-requester":       bound(func(b *message.Binding) { b.Requester = "system:bootstrap:other1" }),
		"answer-for-another-lifetime":       bound(func(b *message.Binding) { b.ExpirationSeconds = 86400 }),
	})
}

// StolenAttacks use another machine's AK in place of the node's.
func StolenAttacks() []Forged {
	return listed("another machine's AK", map[string]func(*Forgery){
		"answer-by-another-machine": func(f *Forgery) {
			own := f.B
			*f = *f.w.Forge(f.w.AKOther, f.Join)
			f.B = own
			f.derive()
		},
		"answer-signed-by-another-machine": func(f *Forgery) {
			f.Attest.QualifiedSigner = f.w.AKOther.Primary()
			f.SignedBy(f.w.AKOther)
		},
	})
}
