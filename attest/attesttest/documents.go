package attesttest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
)

// Documents are a kind of evidence by documents (package attest/document) and its machines, for [Run] to
// attack. Some attacks know nothing of the format: they change one byte after the other, which finds
// bytes that no signature covers, and replace the value or the identity in a document.
type Documents struct {
	// Kind is the control plane's side, as used in World.Config.
	Kind attest.Kind
	// Source returns the node's side on one of the machines of the world, with the platform's
	// clock stopped at that time. A machine always has the same identity.
	Source func(machine string, at time.Time) document.Source
	// Attacker is like Source, but signs the documents with its own key.
	Attacker func(machine string, at time.Time) document.Source
	// Undated says that documents have no date: the challenge that they cover makes them new.
	// Documents of another day are then not tried.
	Undated bool
}

// identity returns the identity that a machine claims; "" if its Source fails.
func (d *Documents) identity(ctx context.Context, machine string) attest.Identity {
	id, err := d.Source(machine, time.Time{}).Machine(ctx)
	if err != nil {
		return ""
	}
	return id
}

// version returns the newest version of the kind's data format.
func (d *Documents) version() int { return slices.Max(d.Kind.Describe().Versions) }

// join makes the answer of an honest machine to the provider's own challenge.
func (d *Documents) join(ctx context.Context, a *attempt, applicant *Applicant) (*csr.Bundle, error) {
	attester := must(attest.NewAttester(must(document.NewProver(a.options.Provider, d.version(), d.Source(applicant.Machine, a.Now())))))
	subject := attest.Subject{Request: applicant.Request, SignerName: applicant.Object.Spec.SignerName, ClusterID: ClusterID}
	hello := applicant.Object
	hello.Spec.Request = must(attester.Hello(ctx, subject)).Request
	hello.Spec.SignerName = a.challenges
	challenger, ok := a.provider.(interface {
		Challenge(ctx context.Context, hello *csr.Request) ([]byte, error)
	})
	if !ok {
		return nil, errNotApplicable("the provider has no method Challenge")
	}
	challenge, err := challenger.Challenge(ctx, &hello)
	if err != nil {
		return nil, err
	}
	return csr.Parse(must(attester.Answer(ctx, challenge, applicant.Key, subject)).Request)
}

// forgery describes an answer with a document before anything is signed; an attack changes one field.
// The world makes the challenge, so that the answer is tried even if the provider would have refused the
// hello.
type forgery struct {
	w         *World
	applicant *Applicant
	ring      attest.RingKey // the key that the challenge was made with
	challenge message.Binding
	secret    []byte // the challenge's; nil derives it from ring and challenge
	filed     time.Time

	claim, machine string    // in the proof, and in the document
	signed         time.Time // the document's time
	source         func(machine string, at time.Time) document.Source

	// These change nothing if the attack does not set them.
	value      func(right []byte) []byte // that the document covers
	document   func([]byte) []byte
	echo       func(*message.Binding) // in the proof
	statements func([]message.Statement) []message.Statement
}

// forge makes the answer of an honest machine.
func (w *World) forge(ctx context.Context, a *Applicant) *forgery {
	filed := w.answeredAt()
	issued := filed.Add(-30 * time.Second)
	challenge := message.Binding{
		KeyID: w.ring.ID, Road: message.RoadDocument, IssuedAt: issued.Unix(), NotAfter: issued.Add(message.DefaultWindow).Unix(),
		ClusterID: ClusterID, SignerName: a.Object.Spec.SignerName, Requester: a.Object.User.Username,
		MachineKey:  sha256.Sum256([]byte("nodeattest machine\x00" + w.options.Documents.identity(ctx, a.Machine))),
		RequestHash: must(csr.ParsePKCS10(a.Request)).InfoHash}
	return &forgery{w: w, applicant: a, ring: w.ring, challenge: challenge, filed: filed, claim: a.Machine, machine: a.Machine,
		signed: filed, source: w.options.Documents.Source, value: bytes.Clone, document: bytes.Clone,
		echo: func(*message.Binding) {}, statements: slices.Clone[[]message.Statement]}
}

// format returns the provider's name with the newest version of its data format.
func (f *forgery) format() string {
	return f.w.options.Provider + "/v" + strconv.Itoa(f.w.options.Documents.version())
}

// rightValue returns the value that the document must cover.
func (f *forgery) rightValue() []byte {
	format, binding, secret := f.format(), must(f.challenge.Marshal()), f.secret
	if secret == nil {
		key := f.ring.Secret.Reveal()
		secret = message.Secret(key[:], format, binding)
	}
	return message.QualifyingData(secret, format, "document", binding)
}

// sign has the platform sign a document about a machine.
func (f *forgery) sign(ctx context.Context, machine string, value []byte) []byte {
	return must(f.source(machine, f.signed).Document(ctx, value))
}

// bundle returns the request with the evidence.
func (f *forgery) bundle(ctx context.Context) *csr.Bundle {
	document := f.sign(ctx, f.machine, f.value(f.rightValue()))
	return f.enclose(ctx, f.document(bytes.Clone(document)))
}

// enclose makes the evidence with a signed document in it.
func (f *forgery) enclose(ctx context.Context, signed []byte) *csr.Bundle {
	echo := f.challenge
	f.echo(&echo)
	proof := &document.Proof{Binding: must(echo.Marshal()), Machine: string(f.w.options.Documents.identity(ctx, f.claim))}
	evidence := message.Bundle{Statements: f.statements([]message.Statement{
		{Type: oid.NodeAttestDocumentProof, Stmt: must(proof.Marshal())},
		{Type: oid.NodeAttestDocument, Stmt: must(document.MarshalStatement(signed))}})}
	return &csr.Bundle{Request: f.applicant.Request, Provider: f.format(), Data: must(evidence.Marshal())}
}
