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

// Change is how of a copy of b, or b itself where how is nil.
func Change(b []byte, how func([]byte) []byte) []byte {
	if how == nil {
		return b
	}
	return how(bytes.Clone(b))
}

// PartsAttack is one change to a good answer that has been taken apart: nothing is
// signed again.
type PartsAttack = Attack[func(*Parts)]

// proof and evidence change the encoding of the proof, or of all evidence.
func proof(how func([]byte) []byte) func(*Parts) { return func(p *Parts) { p.OnProof = how } }

func evidence(how func([]byte) []byte) func(*Parts) { return func(p *Parts) { p.OnEvidence = how } }

// EchoAttacks change one field of the binding in the proof, and nothing else.
func EchoAttacks() []PartsAttack {
	akName := append([]byte{0, 0x0b}, make([]byte, 32)...)
	field := func(i int, how func([]byte) []byte) func(*Parts) { return proof(Replaced(0, Replaced(i, how))) }
	return []PartsAttack{
		{Name: "version", What: "The echoed binding has version 2.", Expect: "message-version", Change: field(0, With(2, 1, 2))},
		{Name: "road", What: "The echoed binding is for the road of the EK certificate.", Expect: "binding-road",
			Change: func(p *Parts) { p.Binding.Road, p.Binding.AKName = message.RoadEK, akName }},
		{Name: "road-unknown", What: "The echoed binding is for a road 2.", Expect: "message-encoding", Change: field(1, With(0x0a, 1, 2))},
		{Name: "roads-mixed-ak-name", What: "The echoed binding has an AK Name, which only the other road has.", Expect: "message-encoding",
			Change: field(11, With(TLV(4, akName)...))},
		{Name: "roads-mixed-ek-public", What: "The proof has an EK beside the AK, which only the other road has.", Expect: "message-encoding",
			Change: func(p *Parts) {
				p.OnProof = Edited(func(e [][]byte) [][]byte { return [][]byte{e[0], TLV(0x80, p.Proof.AKPublic), e[1]} })
			}},
		{Name: "key-id-unknown", What: "The echoed binding names a challenge key that nobody has.", Expect: "ring-key",
			Change: func(p *Parts) { p.Binding.KeyID[0] ^= 1 }},
		{Name: "nonce", live: "challenge-nonce-changed", What: "The echoed binding has another nonce.", Expect: "qualifying-data", Change: func(p *Parts) { p.Binding.Nonce[0] ^= 1 }},
		{Name: "nonce-short", What: "The echoed binding has a nonce of 15 bytes.", Expect: "message-encoding", Change: field(3, With(TLV(4, make([]byte, 15))...))},
		{Name: "issued-at", What: "The echoed binding was issued a second later.", Expect: "qualifying-data", Change: func(p *Parts) { p.Binding.IssuedAt++ }},
		{Name: "not-after", What: "The echoed window ends a second later.", Expect: "qualifying-data", Change: func(p *Parts) { p.Binding.NotAfter++ }},
		{Name: "not-after-stretched", What: "The echoed window is stretched to an hour and a second.", Expect: "binding-window",
			Change: func(p *Parts) { p.Binding.NotAfter = p.Binding.IssuedAt + 3601 }},
		{Name: "not-after-stretched-within-an-hour", What: "The echoed window is stretched to an hour.", Expect: "qualifying-data",
			Change: func(p *Parts) { p.Binding.NotAfter = p.Binding.IssuedAt + 3600 }},
		{Name: "not-after-before-issued-at", What: "The echoed window ends before it begins.", Expect: "binding-window",
			Change: func(p *Parts) { p.Binding.NotAfter = p.Binding.IssuedAt - 1 }},
		{Name: "cluster", What: "The echoed binding names another cluster.", Expect: "binding-cluster", Change: func(p *Parts) { p.Binding.ClusterID = "other" }},
		{Name: "signer", What: "The echoed binding names another signer.", Expect: "binding-signer", Change: func(p *Parts) { p.Binding.SignerName = csr.SignerServingTPM }},
		{Name: "requester", What: "The echoed binding names another requester.", Expect: "binding-requester", Change: func(p *Parts) { p.Binding.Requester = "system:bootstrap:mallor" }},
		{Name: "requester-empty", What: "The echoed binding names no requester.", Expect: "binding-requester", Change: func(p *Parts) { p.Binding.Requester = "" }},
		{Name: "expiration", What: "The echoed binding is for another lifetime.", Expect: "binding-expiration", Change: func(p *Parts) { p.Binding.ExpirationSeconds = 600 }},
		{Name: "machine-key", What: "The echoed binding is for another machine's key.", Expect: "binding-machine-key", Change: func(p *Parts) { p.Binding.MachineKey[0] ^= 1 }},
		{Name: "request-hash", What: "The echoed binding is for another request.", Expect: "binding-request", Change: func(p *Parts) { p.Binding.RequestHash[31] ^= 1 }},
		{Name: "field-behind", What: "A field stands behind the last one of the binding.", Expect: "message-encoding",
			Change: proof(Replaced(0, Appended(5, 0)))},
	}
}

// FrameAttacks change what stands around the binding.
func FrameAttacks() []PartsAttack {
	return []PartsAttack{
		{Name: "statements-swapped", live: "statements-reversed", What: "Proof and certify statement change places.", Expect: "bundle-statements",
			Change: evidence(Replaced(0, swapped))},
		{Name: "proof-missing", What: "There is a certify statement and no proof.", Expect: "bundle-statements",
			Change: evidence(Replaced(0, Edited(func(e [][]byte) [][]byte { return e[:1] })))},
		{Name: "proof-twice", What: "The proof stands there twice.", Expect: "bundle-statements",
			Change: evidence(Replaced(0, Edited(func(e [][]byte) [][]byte { return append(e, e[1]) })))},
		{Name: "hello-as-answer", What: "A hello is filed as an answer.", Expect: "bundle-statements",
			Change: func(p *Parts) {
				p.Evidence.Statements = []message.Statement{{Type: oid.NodeAttestHello, Stmt: Must((&message.Hello{
					ClusterID: p.Binding.ClusterID, TargetSigner: p.Binding.SignerName, AKPublic: p.Proof.AKPublic}).Marshal())}}
			}},
		{Name: "unknown-statement", live: "statement-unknown", What: "A third statement of a type that nobody knows stands behind the two.", Expect: "bundle-statements",
			Change: evidence(Replaced(0, Appended(TLV(0x30, []byte{6, 3, 0x88, 0x37, 3}, []byte{5, 0})...)))},
		{Name: "evidence-missing", What: "The answer is a request without evidence.", Expect: "attestation-provider", InCSR: true,
			Change: func(p *Parts) { p.Plain = true }},
		{Name: "evidence-of-the-insecure-provider", What: "The evidence is filed as the insecure provider's.", Expect: "attestation-provider", InCSR: true,
			Change: func(p *Parts) { p.Bundle.Provider = "insecure/v1" }},
		{Name: "evidence-of-another-version", What: "The provider block says tpm/v2, which this verifier does not speak.", Expect: "provider",
			Change: func(p *Parts) { p.Bundle.Provider = "tpm/v2" }},
		{Name: "ak-public-of-another-key", What: "The proof holds the public area of the TLS key in place of the AK's.", Expect: "ak-mismatch",
			Change: func(p *Parts) { p.Proof.AKPublic = p.Certify.Public }},
		{Name: "certified-key-is-the-ak-public", What: "The AK's public area stands in place of the certified key's.", Expect: "certified-name",
			Change: func(p *Parts) { p.Certify.Public = p.Proof.AKPublic }},
		{Name: "proof-with-bytes-behind", What: "Bytes stand behind the fields of the proof.", Expect: "message-encoding",
			Change: proof(Appended(4, 0))},
		{Name: "binding-with-long-length", What: "The length of the binding is in BER's long form, which DER does not allow.", Expect: "message-encoding",
			Change: proof(Replaced(0, LongLength))},
		{Name: "evidence-with-bytes-behind", What: "A byte stands behind the evidence.", Expect: "message-encoding",
			Change: evidence(Behind(0))},
		{Name: "evidence-with-indefinite-length", What: "The evidence has the indefinite length of BER.", Expect: "message-encoding",
			Change: evidence(indefinite)},
		{Name: "evidence-with-huge-length", What: "The evidence says that it is 4 GiB long.", Expect: "message-encoding",
			Change: evidence(HugeLength)},
		{Name: "certify-with-huge-length", What: "The certify statement says that it is 4 GiB long.", Expect: "message-encoding",
			Change: evidence(Replaced(0, Replaced(0, Replaced(1, HugeLength))))},
		{Name: "certificates-empty", What: "The list of certificates is there and empty, which DER writes as absent.", Expect: "message-encoding",
			Change: evidence(Replaced(1, With(0x30, 0)))},
	}
}

// BoundAttacks are answers in which every signature, secret and field fits the others,
// to a challenge that was given for something else.
func BoundAttacks() []Forged {
	bound := func(change func(*message.Binding)) func(*Forgery) {
		return func(f *Forgery) { change(f.B); f.derive() }
	}
	under := func(key func(*Bench) attest.RingKey) func(*Forgery) {
		return func(f *Forgery) { f.Ring = key(f.w); f.B.KeyID = f.Ring.ID; f.derive() }
	}
	return []Forged{
		{Name: "answer-for-another-cluster", What: "The node answered a challenge of another cluster that has the same challenge keys.", Expect: "binding-cluster",
			Change: bound(func(b *message.Binding) { b.ClusterID = "other" })},
		{Name: "answer-under-a-retired-key", What: "The challenge was made with a key that is retired.", Expect: "ring-key", live: "challenge-key-retired",
			Change: under(func(w *Bench) attest.RingKey { return w.Retired })},
		{Name: "answer-under-a-later-key", What: "The challenge was made with a key that is not active yet.", Expect: "ring-key", live: "challenge-key-unknown",
			Change: under(func(w *Bench) attest.RingKey { return w.Later })},
		{Name: "answer-with-a-window-of-two-hours", What: "The challenge itself gave a window of two hours.", Expect: "binding-window", live: "challenge-window-stretched",
			Change: bound(func(b *message.Binding) { b.NotAfter = b.IssuedAt + 7200 })},
		{Name: "answer-for-another-signer", What: "The node answered a challenge for the serving signer and files under the client one.", Expect: "binding-signer",
			Change: bound(func(b *message.Binding) { b.SignerName = csr.SignerServingTPM })},
		{Name: "answer-of-another-requester", What: "The node answered a challenge that was given to another requester.", Expect: "binding-requester",
			Change: bound(func(b *message.Binding) { b.Requester = "system:bootstrap:other1" })},
		{Name: "answer-for-another-lifetime", What: "The node answered a challenge for a longer lifetime.", Expect: "binding-expiration",
			Change: bound(func(b *message.Binding) { b.ExpirationSeconds = 86400 })},
	}
}

// StolenAttacks have another machine's AK do what the node's should.
func StolenAttacks() []Forged {
	return []Forged{
		{Name: "answer-by-another-machine", What: "Another machine's AK, with its own certificate, answers the node's challenge.", Expect: "binding-machine-key",
			Change: func(f *Forgery) {
				own := f.B
				*f = *f.w.Forge(f.w.AKOther, f.Join)
				f.B = own
				f.derive()
			}},
		{Name: "answer-signed-by-another-machine", What: "Another machine's AK signs, under the node's AK public area and certificate.", Expect: "signature",
			Change: func(f *Forgery) {
				f.Attest.QualifiedSigner = f.w.AKOther.Primary()
				f.SignedBy(f.w.AKOther)
			}},
	}
}
