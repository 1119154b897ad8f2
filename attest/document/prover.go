package document

import (
	"context"
	"crypto"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/typednil"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Source asks the platform of the machine that it runs on. It is called from many
// goroutines.
type Source interface {
	// Machine is the machine's identity, as the control plane's [Platform] reads it.
	Machine(ctx context.Context) (attest.Identity, error)
	// Document returns a document over a value, 32 bytes of which it takes the first
	// KindConfig.ValueSize. It must be made for this value: a platform that caches
	// documents may give an older one, which the source has to notice.
	Document(ctx context.Context, value []byte) ([]byte, error)
}

// Prover is a platform's documents on the node's side, an [attest.Prover].
type Prover struct {
	provider string
	source   Source
}

// NewProver makes the node's side of the kind with that name. The error matches
// [refusal.CheckConfig].
func NewProver(provider string, source Source) (*Prover, error) {
	if typednil.Is(source) {
		return nil, refusal.Config("Source", "", "one")
	}
	return &Prover{provider, source}, nil
}

// Provider is the kind's name.
func (p *Prover) Provider() string { return p.provider }

// Close does nothing.
func (p *Prover) Close() error { return nil }

// Use asks for the machine's identity and calls f.
func (p *Prover) Use(ctx context.Context, _ attest.Stage, f func(attest.Session) error) error {
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

// Open refuses: secrets travel in clear.
func (s *session) Open(context.Context, *attest.Credential) ([]byte, error) {
	return nil, &attest.Error{Check: attest.CheckBindingRoad, Got: "a credential", Want: "a secret in clear, on road document"}
}

func (s *session) Answer(ctx context.Context, _ crypto.Signer, c *attest.Challenged) (*attest.Evidence, error) {
	document, err := s.source.Document(ctx, c.QualifyingData(labelDocument))
	if err != nil {
		return nil, err
	}
	proof, err := (&Proof{Binding: c.Binding(), Machine: s.machine}).Marshal()
	if err != nil {
		return nil, err
	}
	statement, err := MarshalStatement(document)
	if err != nil {
		return nil, err
	}
	return &attest.Evidence{Statements: []attest.Statement{
		{Type: oid.NodeAttestDocumentProof, DER: proof},
		{Type: oid.NodeAttestDocument, DER: statement},
	}}, nil
}
