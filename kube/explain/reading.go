package explain

import (
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
)

// Reading is what a hello or an answer says, read but not verified: for display to people.
// Anybody can write such a message, so nothing may be decided by it.
type Reading struct {
	// Stage says whether it is a hello or an answer.
	Stage attest.Stage
	// Provider is the kind of evidence, such as "tpm".
	Provider string
	// Road is the road that the message takes.
	Road attest.Road
	// ClusterID is the cluster that the node intends to join.
	ClusterID string
	// TargetSigner is the signer of the certificate.
	TargetSigner string
	// Machine is the identity that the message claims; "" if only verification would tell.
	Machine attest.Identity
	// MachineKey is what the message identifies its machine by; see [attest.Presented].
	MachineKey []byte
	// Echo is what an answer repeats from its challenge; nil in a hello.
	Echo *Echo
}

// Echo is what an answer repeats from the challenge that it answers. An [attest.Verifier]
// compares all of it with what it knows itself.
type Echo struct {
	// KeyID names the key of the ring with which the challenge was made, 8 bytes.
	KeyID []byte
	// IssuedAt and NotAfter are the challenge's times, in whole seconds, UTC: the API server
	// must have stored the answer between them.
	IssuedAt, NotAfter time.Time
	// Requester is the user who filed the hello.
	Requester string
	// ExpirationSeconds is the lifetime that the hello asked for; 0 for none.
	ExpirationSeconds int32
	// MachineKeyHash is the SHA-256 of the machine key that was challenged, and RequestHash
	// that of the CertificationRequestInfo.
	MachineKeyHash, RequestHash [32]byte
}

// version is the version of the evidence that is read.
const version = "/v1"

// Read reads a request's evidence with a kind of that evidence, whatever the kind trusts: as a
// hello if it is filed under the kind's challenge signer, otherwise as an answer. The error is
// that of the first broken rule about the message's form.
func Read(kind attest.Kind, request *csr.Parsed) (*Reading, error) {
	bundle, err := request.Bundle()
	if err != nil {
		return nil, err
	}
	provider := kind.Describe().Provider
	if want := provider + version; bundle.Provider != want {
		return nil, &refusal.Error{Check: attest.CheckProvider, Got: refusal.OrNothing(bundle.Provider), Want: want}
	}
	m, err := message.ParseBundle(bundle.Data)
	if err != nil {
		return nil, err
	}
	e := &attest.Evidence{Certificates: m.Certificates}
	for _, s := range m.Statements {
		e.Statements = append(e.Statements, attest.Statement{Type: s.Type, DER: s.Stmt})
	}
	challenge, err := csr.SignerChallenge(provider)
	if err != nil {
		return nil, err
	}
	var reading *Reading
	if signer := request.Request().Spec.SignerName; signer == challenge {
		reading, err = readHello(kind, e)
	} else {
		reading, err = readAnswer(kind, e, signer)
	}
	if err != nil {
		return nil, err
	}
	reading.Provider = provider
	return reading, nil
}

func readHello(kind attest.Kind, e *attest.Evidence) (*Reading, error) {
	hello, err := kind.ReadHello(e)
	if err != nil {
		return nil, err
	}
	p, err := hello.Present()
	if err != nil {
		return nil, err
	}
	head := hello.Head()
	return &Reading{Stage: attest.StageHello, Road: head.Road, ClusterID: head.ClusterID, TargetSigner: head.TargetSigner,
		Machine: p.Machine, MachineKey: p.MachineKey}, nil
}

func readAnswer(kind attest.Kind, e *attest.Evidence, signer string) (*Reading, error) {
	answer, err := kind.ReadAnswer(e)
	if err != nil {
		return nil, err
	}
	p, err := answer.Present()
	if err != nil {
		return nil, err
	}
	b, err := message.ParseBinding(answer.Binding())
	if err != nil {
		return nil, err
	}
	return &Reading{Stage: attest.StageAnswer, Road: p.Road, ClusterID: b.ClusterID, TargetSigner: signer,
		Machine: p.Machine, MachineKey: p.MachineKey,
		Echo: &Echo{KeyID: b.KeyID[:], IssuedAt: b.Issued(), NotAfter: b.Expires(), Requester: b.Requester,
			ExpirationSeconds: b.ExpirationSeconds, MachineKeyHash: b.MachineKey, RequestHash: b.RequestHash}}, nil
}
