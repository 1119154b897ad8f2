package authenticator

import (
	"context"
	"crypto"
	"io"

	"github.com/nodeattest/nodeattest/attest"
)

// Kind is one kind of evidence on this machine. [KindOf] makes one without a device of its
// own, such as a cloud's documents.
type Kind interface {
	// Provider is the kind's name in signer names, that of its Prover.
	Provider() string
	// Open opens the evidence for one certificate: a TPM's device, for example. It is not
	// called where a stored certificate is good enough. What it returns is closed after
	// each use.
	Open(ctx context.Context) (Evidence, error)
}

// KindOf makes a kind of its provider's name and of what makes its Prover, whose Close is
// called after each use.
func KindOf(provider string, open func(ctx context.Context) (attest.Prover, error)) Kind {
	return proverKind{provider, open}
}

type proverKind struct {
	provider string
	open     func(ctx context.Context) (attest.Prover, error)
}

func (k proverKind) Provider() string { return k.provider }

func (k proverKind) Open(ctx context.Context) (Evidence, error) { return k.open(ctx) }

// Evidence is an opened [Kind]: the Prover, whose Close closes all that Open has opened.
// One that is a [KeyKeeper] as well can have a recovery certificate.
type Evidence interface {
	attest.Prover
}

// KeyKeeper is an [Evidence] of a machine that keeps private keys which cannot leave it.
type KeyKeeper interface {
	// CreateKey makes a key.
	CreateKey(ctx context.Context) (SealedKey, error)
	// LoadKey loads a key by the file that [SealedKey.File] returned. An error that
	// matches io/fs.ErrNotExist says that the file is of no use any more, after the TPM
	// was cleared for example.
	LoadKey(ctx context.Context, file []byte) (SealedKey, error)
}

// SealedKey is a key that cannot leave its machine. Close is called before that of the
// [Evidence] which it came from.
type SealedKey interface {
	crypto.Signer
	io.Closer
	// File is one PEM block that brings the key back on this machine alone, of another
	// type than "PRIVATE KEY".
	File() ([]byte, error)
}
