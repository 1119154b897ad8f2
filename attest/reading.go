package attest

import (
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/typednil"
)

// Reading is what a hello or an answer says, read and not verified: for tools that explain
// requests to people. Anybody can write such a message, so nothing may be decided by it.
type Reading struct {
	// Stage says whether it is a hello or an answer.
	Stage Stage
	// Road is the road that the message takes.
	Road Road
	// ClusterID is the cluster that the node means to join.
	ClusterID string
	// TargetSigner is the signer of the certificate.
	TargetSigner string
	// Machine is the identity that the message claims; "" where only the trust in it
	// would tell.
	Machine Identity
	// MachineKey is what the message holds its machine by; see [Presented].
	MachineKey []byte
	// Echo is what an answer repeats of its challenge; nil in a hello.
	Echo *Echo
}

// Echo is what an answer repeats of the challenge that it answers. A [Verifier] compares
// all of it with what it knows itself.
type Echo struct {
	// KeyID names the key of the ring that the challenge was made with, 8 bytes.
	KeyID []byte
	// IssuedAt and NotAfter are the challenge's times, in whole seconds, UTC: the API
	// server must have stored the answer between them.
	IssuedAt, NotAfter time.Time
	// Requester is the user who filed the hello.
	Requester string
	// ExpirationSeconds is the lifetime that the hello asked for; 0 for none.
	ExpirationSeconds int32
	// MachineKeyHash is the SHA-256 of the machine key that was challenged, and
	// RequestHash that of the CertificationRequestInfo.
	MachineKeyHash, RequestHash [32]byte
}

// Read reads a request's evidence with a kind of that evidence, whatever the kind trusts:
// a hello where it is filed under the kind's challenge signer, else an answer. The error is
// that of the first rule of the message's form which is broken.
func Read(kind Kind, request *csr.Parsed) (*Reading, error) {
	if typednil.Is(kind) || request == nil || request.Request() == nil {
		return nil, errNotMade
	}
	bundle, err := request.Bundle()
	if err != nil {
		return nil, err
	}
	open := &openKind{Kind: kind, Description: kind.Describe()}
	signer, err := csr.SignerChallenge(open.Provider)
	if err != nil {
		return nil, err
	}
	if request.Request().Spec.SignerName == signer {
		return readHello(open, bundle)
	}
	return readAnswer(open, bundle, request.Request().Spec.SignerName)
}

func readHello(kind *openKind, bundle *csr.Bundle) (*Reading, error) {
	hello, err := read(kind, bundle, kind.ReadHello)
	if err != nil {
		return nil, err
	}
	head := hello.Head()
	p, err := kind.present(hello.Present())
	if err != nil {
		return nil, err
	}
	return &Reading{Stage: StageHello, Road: head.Road, ClusterID: head.ClusterID, TargetSigner: head.TargetSigner,
		Machine: p.Machine, MachineKey: p.MachineKey}, nil
}

func readAnswer(kind *openKind, bundle *csr.Bundle, signer string) (*Reading, error) {
	answer, err := read(kind, bundle, kind.ReadAnswer)
	if err != nil {
		return nil, err
	}
	p, err := kind.present(answer.Present())
	if err != nil {
		return nil, err
	}
	b, err := message.ParseBinding(answer.Binding())
	if err != nil {
		return nil, err
	}
	return &Reading{Stage: StageAnswer, Road: p.Road, ClusterID: b.ClusterID, TargetSigner: signer,
		Machine: p.Machine, MachineKey: p.MachineKey,
		Echo: &Echo{KeyID: b.KeyID[:], IssuedAt: b.Issued(), NotAfter: b.Expires(), Requester: b.Requester,
			ExpirationSeconds: b.ExpirationSeconds, MachineKeyHash: b.MachineKey, RequestHash: b.RequestHash}}, nil
}

// present is what a kind says of a machine, which is never nothing.
func (k *openKind) present(p *Presented, err error) (*Presented, error) {
	if err == nil && p == nil {
		err = k.fault("no machine", "one")
	}
	return p, err
}
