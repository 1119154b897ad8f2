package authenticator

import (
	"context"
	"crypto"
	"io"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/evidence"
)

// Kind is one kind of evidence on this machine. [KindOf] makes one that has no device of its
// own, such as a cloud's documents, or that writes several versions of its data format.
type Kind interface {
	// Provider returns the kind's name in signer names, which is that of its Prover.
	Provider() string
	// Open opens the evidence for one certificate: a TPM's device, for example. It is not
	// called if a stored certificate is good enough. What it returns is closed after each use;
	// its Close closes everything that Open opened.
	Open(ctx context.Context) (attest.Prover, error)
}

// KindOf makes a kind from the provider's name and the functions that make its Prover, whose
// Close is called after each use. There is one for each version of the data format that the
// kind writes and that counts as safe, the newest first. Every attempt begins with the first; see
// [Config.MinimumVersion]. A type that embeds what KindOf returns has the newest version only.
func KindOf(provider string, open ...func(ctx context.Context) (attest.Prover, error)) Kind {
	return proverKind{provider, open}
}

type proverKind struct {
	provider string
	open     []evidence.Opener
}

func (k proverKind) Provider() string { return k.provider }

func (k proverKind) Open(ctx context.Context) (attest.Prover, error) {
	if err := versions(k, 0).Check(); err != nil {
		return nil, err
	}
	return k.open[0](ctx)
}

// A keyKeeper is the prover of a machine that keeps private keys which cannot leave it: the node
// can have a recovery certificate.
type keyKeeper interface {
	// CreateKey creates a key.
	CreateKey(ctx context.Context) (sealedKey, error)
	// LoadKey loads a key from the file that [sealedKey.File] returned. An error that matches
	// io/fs.ErrNotExist says that the file is no longer of use, for example because the TPM
	// was cleared.
	LoadKey(ctx context.Context, file []byte) (sealedKey, error)
}

// sealedKey is a key that cannot leave its machine. Its Close is called before that of the
// prover it came from.
type sealedKey interface {
	crypto.Signer
	io.Closer
	// File returns one PEM block that restores the key, on this machine only. Its type is not
	// "PRIVATE KEY".
	File() ([]byte, error)
}
