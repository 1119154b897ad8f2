package document

import (
	"cmp"
	"context"
	"crypto"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Source gets documents from the platform that this machine runs on. It is called from many
// goroutines.
type Source interface {
	// Machine is the machine's identity, as the control plane's [Platform] reads it.
	Machine(ctx context.Context) (attest.Identity, error)
	// Document returns a document over a value of 32 bytes, of which it uses the first
	// KindConfig.ValueSize. It must be made for this value: if the
	// platform caches documents, the source must refuse an older one.
	Document(ctx context.Context, value []byte) ([]byte, error)
}

// Prover is a platform's documents on the node's side, an [attest.Prover].
type Prover struct {
	provider string
	version  int
	source   Source
}

// NewProver makes the node's side of the kind with that name. version is that of the data
// format that the source's documents have, one of KindConfig.Versions. An error matches
// [refusal.CheckConfig].
func NewProver(provider string, version int, source Source) (*Prover, error) {
	if source == nil {
		return nil, refusal.Config("Source", "", "one")
	}
	return &Prover{provider, version, source}, nil
}

// Provider is the kind's name.
func (p *Prover) Provider() string { return p.provider }

// Version is the version of the data format.
func (p *Prover) Version() int { return p.version }

// Close does nothing.
func (p *Prover) Close() error { return nil }

// Use asks for the machine's identity and calls f.
func (p *Prover) Use(ctx context.Context, _ attest.Stage, f func(attest.Session) error) error {
	if p == nil || p.source == nil || f == nil {
		return refusal.Config("Prover", "that NewProver did not make, or nothing to use it for", "one of NewProver")
	}
	machine, err := p.source.Machine(ctx)
	if err != nil {
		return err
	}
	return f(&session{p.source, string(machine)})
}

// session is one message.
type session struct {
	source  Source
	machine string
}

func (s *session) Present() (*attest.Presented, error) {
	if s.machine == "" {
		return nil, &attest.Error{Check: attest.CheckIdentity, Want: "a machine identity"}
	}
	return presented(s.machine), nil
}

func (s *session) Hello(_ context.Context, h attest.Head) (*attest.Evidence, error) {
	statement, err := (&Hello{ClusterID: h.ClusterID, TargetSigner: h.TargetSigner, Machine: s.machine}).Marshal()
	if err != nil {
		return nil, err
	}
	return &attest.Evidence{Statements: []attest.Statement{{Type: oid.NodeAttestDocumentHello, DER: statement}}}, nil
}

// Open refuses: secrets travel in the clear.
func (s *session) Open(context.Context, *attest.Credential) ([]byte, error) {
	return nil, &attest.Error{Check: attest.CheckBindingRoad, Got: "a credential", Want: "a secret in clear, on road document"}
}

func (s *session) Answer(ctx context.Context, _ crypto.Signer, c *attest.Challenged) (*attest.Evidence, error) {
	document, err := s.source.Document(ctx, c.QualifyingData(labelDocument))
	if err != nil {
		return nil, err
	}
	proof, err1 := (&Proof{Binding: c.Binding(), Machine: s.machine}).Marshal()
	statement, err2 := MarshalStatement(document)
	if err := cmp.Or(err1, err2); err != nil {
		return nil, err
	}
	return &attest.Evidence{Statements: []attest.Statement{
		{Type: oid.NodeAttestDocumentProof, DER: proof},
		{Type: oid.NodeAttestDocument, DER: statement},
	}}, nil
}

// Limits of the messages of kinds whose evidence is a document, in bytes.
const (
	MaxMachineSize  = 1024
	MaxDocumentSize = 64 << 10
)

// Hello is the first message of a node whose evidence is a document.
//
//	DocumentHello ::= SEQUENCE { version INTEGER (1), clusterID UTF8String,
//	         targetSigner UTF8String, machine UTF8String }
//
// Its statement type is [oid.NodeAttestDocumentHello].
type Hello struct {
	// ClusterID is 1 to 128 bytes of UTF-8. TargetSigner, the signer name of the answer, is 1
	// to 571.
	ClusterID, TargetSigner string
	// Machine is the identity that the node claims, 1 to [MaxMachineSize] bytes.
	Machine string
}

// Marshal returns the DER of h. It returns a [*refusal.Error] with "message-encoding" if a
// field is out of range.
func (h *Hello) Marshal() ([]byte, error) {
	return der.Marshal("document hello", cmp.Or(h, &Hello{}).fields)
}

func (h *Hello) fields(c *der.Codec) {
	c.Version()
	c.Text("clusterID", &h.ClusterID, 1, der.MaxClusterIDSize)
	c.Text("targetSigner", &h.TargetSigner, 1, der.MaxSignerNameSize)
	c.Text("machine", &h.Machine, 1, MaxMachineSize)
}

// ParseHello reads exactly what [Hello.Marshal] writes.
func ParseHello(data []byte) (*Hello, error) {
	h := &Hello{}
	return der.Parse(h, "document hello", data, der.MaxEvidenceSize, (*Hello).fields)
}

// Proof is the echo of the Binding by a node whose evidence is a document.
//
//	DocumentProof ::= SEQUENCE { binding Binding, machine UTF8String }
//
// Its statement type is [oid.NodeAttestDocumentProof].
type Proof struct {
	// Binding is the DER of the Binding, byte for byte as it came in the challenge.
	Binding []byte
	// Machine is as in [Hello].
	Machine string
}

// Marshal returns the DER of p. It returns a [*refusal.Error] with "message-encoding" if
// Binding is not the DER of a Binding of [attest.RoadDocument] or Machine is out of range.
func (p *Proof) Marshal() ([]byte, error) {
	return der.Marshal("document proof", cmp.Or(p, &Proof{}).fields)
}

func (p *Proof) fields(c *der.Codec) {
	binding := message.BindingField(c, &p.Binding)
	c.Demand(binding.Road == message.RoadDocument, "road", "document")
	c.Text("machine", &p.Machine, 1, MaxMachineSize)
}

// ParseProof reads exactly what [Proof.Marshal] writes.
func ParseProof(data []byte) (*Proof, error) {
	p := &Proof{}
	return der.Parse(p, "document proof", data, der.MaxEvidenceSize, (*Proof).fields)
}

// MarshalStatement returns the statement of type [oid.NodeAttestDocument]: an OCTET STRING
// with the platform's bytes, 1 to [MaxDocumentSize].
func MarshalStatement(document []byte) ([]byte, error) {
	return der.MarshalOctets("document", document, MaxDocumentSize)
}

// ParseStatement reads exactly what [MarshalStatement] writes; the result shares memory with
// data.
func ParseStatement(data []byte) ([]byte, error) {
	return der.ParseOctets("document", data, MaxDocumentSize)
}
