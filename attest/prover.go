package attest

import (
	"context"
	"crypto"
)

// Prover is one kind of evidence on the node's side, the counterpart of a [Kind]: package
// attest/tpm has a TPM's. An [Attester] is given one.
type Prover interface {
	// Provider is the kind's name, as in [Description].
	Provider() string
	// Use calls f once with what one message needs, an AK that is loaded for example, and
	// takes it away again whatever f returns. stage says which message it is for. The
	// error is f's or its own.
	Use(ctx context.Context, stage Stage, f func(Session) error) error
	// Close gives back what the kind holds. What the caller opened stays the caller's.
	Close() error
}

// Session is what [Prover.Use] lends for one message.
type Session interface {
	// Present says what the node presents, with the node's own values.
	Present() (*Presented, error)
	// Hello makes the evidence of a hello.
	Hello(ctx context.Context, h Head) (*Evidence, error)
	// Open opens a credential, and returns the secret in it. A kind whose secrets travel
	// in clear returns an error.
	Open(ctx context.Context, c *Credential) ([]byte, error)
	// Answer makes the evidence of an answer: statements that cover the qualifying data
	// of the challenge. key is the request's key.
	Answer(ctx context.Context, key crypto.Signer, c *Challenged) (*Evidence, error)
}

// Challenged is a challenge that the node has checked and opened. Only [Attester.Answer]
// makes one, so that a kind never signs bytes that somebody chose.
type Challenged struct{ c challenged }

// Binding is the DER of the challenge's Binding, to be echoed as it is.
func (c *Challenged) Binding() []byte { return c.c.binding }

// QualifyingData is what the statement of that label has to cover, 32 bytes; see [Label].
// It is nil for a Challenged that no Attester made.
func (c *Challenged) QualifyingData(label string) []byte {
	if len(c.c.secret.Reveal()) == 0 || len(c.c.binding) == 0 {
		return nil
	}
	return c.c.qualifyingData(label)
}
