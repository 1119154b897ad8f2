package attest

import (
	"cmp"
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// Subject holds the node's own values for the Binding of its proof. Hello and Answer take the same
// Subject: the node refuses a challenge for another one.
type Subject struct {
	// Request is the final PKCS#10 request, DER. The same bytes go into both
	// messages.
	Request []byte
	// SignerName is the signer that will issue the certificate.
	SignerName string
	// ClusterID is the name of the cluster, 1 to 128 bytes, configured on both sides and never
	// learnt from the API server. The customary one is what [ClusterID] returns.
	ClusterID string
	// ExpirationSeconds is spec.expirationSeconds of the answer, or 0 if absent.
	ExpirationSeconds int32
}

// ClusterID returns the customary cluster ID: the lower-case hexadecimal SHA-256
// of the SubjectPublicKeyInfo of the cluster's CA, 64 bytes.
func ClusterID(ca *x509.Certificate) (string, error) {
	if ca == nil {
		return "", errors.New("attest: cluster ID: no CA certificate")
	}
	sum, err := csr.SPKIHash(ca.PublicKey)
	if err != nil {
		return "", fmt.Errorf("attest: cluster ID: %w", err)
	}
	return fmt.Sprintf("%x", sum), nil
}

// Attester is the node's side: it says hello and answers challenges, with evidence of
// one kind. It is safe for use from many goroutines.
type Attester struct {
	prover Prover
	format string // such as "tpm/v1"
}

// formatOf returns the text of the provider block, such as "tpm/v1".
func formatOf(provider string, version int) string { return provider + "/v" + strconv.Itoa(version) }

// NewAttester returns an attester with the evidence of prover. An error matches
// [refusal.CheckConfig].
func NewAttester(prover Prover) (*Attester, error) {
	if prover == nil {
		return nil, refusal.Config("Prover", "", "one")
	}
	if _, err := csr.SignerChallenge(prover.Provider()); err != nil {
		return nil, &Error{Check: refusal.CheckConfig, Got: "a Prover of that name", Err: err}
	}
	format := formatOf(prover.Provider(), prover.Version())
	if _, _, err := (&csr.Bundle{Provider: format}).ProviderVersion(); err != nil {
		return nil, &Error{Check: refusal.CheckConfig, Got: "a Prover of that version", Err: err}
	}
	return &Attester{prover: prover, format: format}, nil
}

// Close closes the Prover.
func (a *Attester) Close() error {
	if a == nil || a.prover == nil {
		return nil
	}
	if err := a.prover.Close(); err != nil {
		return fmt.Errorf("attest: close: %w", err)
	}
	return nil
}

// Hello returns the node's first message: the spec of a request that carries the final PKCS#10
// and a hello. It is to be filed under the signer name in the spec, which no signer serves
// ([csr.SignerChallenge]).
func (a *Attester) Hello(ctx context.Context, s Subject) (*csr.Spec, error) {
	if _, err := s.check(); err != nil {
		return nil, fmt.Errorf("attest: hello: %w", err)
	}
	bundle, err := a.prove(ctx, StageHello, s, func(session Session, p *Presented) (*Evidence, error) {
		return session.Hello(ctx, Head{Road: p.Road, ClusterID: s.ClusterID, TargetSigner: s.SignerName})
	})
	if err != nil {
		return nil, err
	}
	return bundle.HelloSpec(s.SignerName, s.ExpirationSeconds)
}

// prove makes the evidence of one message, with the Prover.
func (a *Attester) prove(ctx context.Context, stage Stage, s Subject, of func(Session, *Presented) (*Evidence, error)) (*csr.Bundle, error) {
	var evidence *Evidence
	err := a.prover.Use(ctx, stage, func(session Session) error {
		p, err := session.Present()
		if err == nil {
			evidence, err = of(session, p)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attest: %s: %w", stage, err)
	}
	return bundleOf(s.Request, a.format, evidence)
}

// Answer checks that the challenge is for this very node, request, cluster and signer, has the
// kind make its evidence over it, and returns the node's second message: the spec of a new
// request, under the signer that issues the certificate. The key must be the request's. The
// challenge's secret is used, but neither kept nor shown.
//
// challenge is the result of [Verifier.Challenge]; on Kubernetes [ChallengeOf] extracts it. A
// challenge for another node, request, cluster or signer is refused with the [Check] that the verifier
// would use: by answering it, a node would lend its evidence to another requester.
func (a *Attester) Answer(ctx context.Context, challenge []byte, key crypto.Signer, s Subject) (*csr.Spec, error) {
	request, err := s.check()
	if err != nil {
		return nil, fmt.Errorf("attest: answer: %w", err)
	}
	if k, ok := request.CSR.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || key == nil || !k.Equal(key.Public()) {
		return nil, &Error{Check: message.CheckKeyMismatch, Got: "another key than that of the request", Want: "the request's key"}
	}
	c, err := message.ParseChallenge(challenge)
	if err != nil {
		return nil, err
	}
	binding, err := c.Binding.Marshal()
	if err := cmp.Or(checkWindow(&c.Binding), err); err != nil {
		return nil, err
	}
	bundle, err := a.prove(ctx, StageAnswer, s, func(session Session, p *Presented) (*Evidence, error) {
		// Only the verifier knows the requester.
		if err := compareBindings(c.Binding, s.binding(p, c.Binding.Requester, request.InfoHash)); err != nil {
			return nil, err
		}
		opened, err := open(ctx, session, c)
		if err != nil {
			return nil, err
		}
		return session.Answer(ctx, key, &Challenged{format: a.format, secret: secret.New(opened), binding: binding})
	})
	if err != nil {
		return nil, err
	}
	return bundle.Spec(s.SignerName, s.ExpirationSeconds)
}

// open returns the challenge's secret.
func open(ctx context.Context, session Session, c *message.Challenge) ([]byte, error) {
	if c.Credential == nil {
		return c.Clear, nil
	}
	secret, err := session.Open(ctx, (*Credential)(c.Credential))
	if err != nil {
		return nil, err
	}
	if len(secret) != message.SecretSize {
		return nil, fmt.Errorf("the challenge's credential holds %d bytes, want %d", len(secret), message.SecretSize)
	}
	return secret, nil
}

// binding returns the Binding that node and verifier each expect, without key, nonce and times: the values
// of s, the presented machine, the requester and the request's hash.
func (s *Subject) binding(p *Presented, requester string, requestHash [message.HashSize]byte) message.Binding {
	return message.Binding{
		Road:              message.Road(p.Road),
		ClusterID:         s.ClusterID,
		SignerName:        s.SignerName,
		Requester:         requester,
		ExpirationSeconds: s.ExpirationSeconds,
		MachineKey:        sha256.Sum256(p.MachineKey),
		AKName:            p.AKName,
		RequestHash:       requestHash,
	}
}

func (s *Subject) check() (*csr.PKCS10, error) {
	if err := cmp.Or(der.CheckText("subject", "ClusterID", s.ClusterID, 1, der.MaxClusterIDSize),
		der.CheckText("subject", "SignerName", s.SignerName, 1, der.MaxSignerNameSize)); err != nil {
		return nil, err
	}
	if s.ExpirationSeconds < 0 {
		return nil, errors.New("ExpirationSeconds is negative")
	}
	return csr.ParsePKCS10(s.Request)
}

// Prover is one kind of evidence on the node's side, the counterpart of a [Kind]: package
// attest/tpm has a TPM's. An [Attester] is given one.
type Prover interface {
	// Provider is the kind's name, as in [Description].
	Provider() string
	// Version is the version of the data format that the prover writes, one of those in the
	// Description.
	Version() int
	// Use calls f once with a Session for one message, such as a loaded AK, and releases it
	// whatever f returns. stage is the message's. The error is f's or its own.
	Use(ctx context.Context, stage Stage, f func(Session) error) error
	// Close releases the kind's own resources, not those that the caller opened.
	Close() error
}

// Session makes the evidence of one message. It is valid during [Prover.Use].
type Session interface {
	// Present returns the identity and keys of this machine.
	Present() (*Presented, error)
	// Hello makes the evidence of a hello.
	Hello(ctx context.Context, h Head) (*Evidence, error)
	// Open opens a credential and returns the secret in it. A kind whose secrets travel in the
	// clear returns an error.
	Open(ctx context.Context, c *Credential) ([]byte, error)
	// Answer makes the evidence of an answer: statements that cover the qualifying data
	// of the challenge. key is the request's key.
	Answer(ctx context.Context, key crypto.Signer, c *Challenged) (*Evidence, error)
}

// Challenged is a challenge that the node has checked and opened. Only [Attester.Answer] makes
// one, so that a kind never signs bytes that another party chose.
type Challenged struct {
	format  string
	secret  secret.Value[[]byte]
	binding []byte
}

// Binding is the DER of the challenge's Binding, to be echoed unchanged.
func (c *Challenged) Binding() []byte { return c.binding }

// QualifyingData returns the 32 bytes that the statement with that label has to cover; see [Label].
// It is nil for a Challenged that no Attester made.
func (c *Challenged) QualifyingData(label string) []byte {
	if len(c.secret.Reveal()) == 0 || len(c.binding) == 0 {
		return nil
	}
	return message.QualifyingData(c.secret.Reveal(), c.format, label, c.binding)
}
