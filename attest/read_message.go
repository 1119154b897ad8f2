package attest

import (
	"errors"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
)

// Message is the unverified evidence of a hello or an answer, for display and for tools. Any requester
// can write such a message, so never decide by it.
type Message struct {
	// Stage says whether it is a hello or an answer.
	Stage Stage
	// Provider is the kind of evidence according to the provider block: "tpm" for tpm/v1.
	Provider string
	// Head is the hello's; an answer repeats cluster and signer from its challenge.
	Head
	// Machine is the identity that the message claims; "" if only verification finds it.
	// MachineKey is as in [Presented].
	Machine    Identity
	MachineKey []byte

	// An answer repeats the fields of this group from its challenge, in addition to [Head]. They
	// are zero in a hello.

	// KeyID names the key of the ring with which the challenge was made, 8 bytes.
	KeyID []byte
	// IssuedAt and NotAfter are the challenge's times, in whole seconds, UTC.
	IssuedAt, NotAfter time.Time
	// Requester is the user who filed the hello.
	Requester string
	// ExpirationSeconds is the lifetime that the hello asked for; 0 for none.
	ExpirationSeconds int32
	// MachineKeyHash is the SHA-256 of the machine's key, and RequestHash that of the
	// CertificationRequestInfo.
	MachineKeyHash, RequestHash [message.HashSize]byte

	// Differences are the refusals of a [Verifier] that compares the repeated fields with the
	// request: another signer, requester, lifetime, machine or request, or a request that was
	// filed outside of the challenge's window. Cluster and challenge are not compared.
	Differences []*Error
	// Evidence holds version, statements and certificates.
	Evidence *Evidence
}

// ReadMessage reads the evidence of a request with the kind that its provider block names: as
// a hello if it was filed under the kind's challenge signer, as an answer under any other
// signer, and as either if the signer is unknown. It verifies nothing, so the kinds need not trust any
// issuer. The error is the first fault in the message's form, or [csr.CheckAttestationProvider] or
// [csr.CheckProviderVersion] if none of the kinds reads it. The message is never nil: after an error it
// holds the fields read before.
func ReadMessage(request *csr.Parsed, kinds ...Kind) (*Message, error) {
	m := new(Message)
	bundle, err := request.Bundle()
	if err != nil {
		return m, err
	}
	var version int
	if m.Provider, version, err = bundle.ProviderVersion(); err != nil {
		return m, err
	}
	if m.Evidence, err = evidenceOf(bundle, version); err != nil {
		return m, err
	}
	for _, kind := range kinds {
		if k := (&openKind{Kind: kind, Description: kind.Describe()}); k.Provider == m.Provider {
			return m, m.readWith(k, bundle, request)
		}
	}
	return m, &Error{Check: csr.CheckAttestationProvider, Got: "evidence of " + bundle.Provider, Want: "evidence of a kind that is read here"}
}

func (m *Message) readWith(k *openKind, bundle *csr.Bundle, request *csr.Parsed) error {
	if !slices.Contains(k.Versions, m.Evidence.Version) {
		return &Error{Check: csr.CheckProviderVersion, Got: refusal.Quote(bundle.Provider), Want: "a version that is read here"}
	}
	challenge, err := csr.SignerChallenge(k.Provider)
	if err != nil {
		return err
	}
	switch request.Request().Spec.SignerName {
	case challenge:
		return m.readHello(k, bundle)
	case "":
		if err := m.readHello(k, bundle); !errors.Is(err, CheckStatements) {
			return err
		}
	}
	return m.readAnswer(k, bundle, request)
}

func (m *Message) readHello(k *openKind, bundle *csr.Bundle) error {
	hello, _, err := read(k, bundle, k.ReadHello)
	if err != nil {
		return err
	}
	m.Stage, m.Head = StageHello, hello.Head()
	_, err = m.present(k, hello.Present)
	return err
}

func (m *Message) readAnswer(k *openKind, bundle *csr.Bundle, request *csr.Parsed) error {
	answer, _, err := read(k, bundle, k.ReadAnswer)
	if err != nil {
		return err
	}
	b, err := echoOf(answer)
	if err != nil {
		return err
	}
	m.Stage, m.Head = StageAnswer, Head{Road: Road(b.Road), ClusterID: b.ClusterID, TargetSigner: b.SignerName}
	m.KeyID, m.IssuedAt, m.NotAfter, m.Requester = b.KeyID[:], b.Issued(), b.Expires(), b.Requester
	m.ExpirationSeconds, m.MachineKeyHash, m.RequestHash = b.ExpirationSeconds, b.MachineKey, b.RequestHash
	p, err := m.present(k, answer.Present)
	if err != nil {
		return err
	}
	pkcs10, err := request.PKCS10()
	if err != nil {
		return err
	}
	filed := request.Request()
	if filed.Spec.SignerName == "" {
		return nil
	}
	own := &Result{ClusterID: b.ClusterID, SignerName: filed.Spec.SignerName, RequestHash: pkcs10.InfoHash}
	m.Differences = differences(*b, expected(own, p, filed))
	if at := filed.Metadata.CreationTimestamp; !at.IsZero() {
		if e, ok := errors.AsType[*Error](checkTimes(b, filed, at)); ok {
			m.Differences = append(m.Differences, e)
		}
	}
	return nil
}

func (m *Message) present(k *openKind, present func() (*Presented, error)) (*Presented, error) {
	p, err := present()
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, k.fault("no machine", "one")
	}
	m.Machine, m.MachineKey = p.Machine, p.MachineKey
	return p, nil
}
