package authenticator

import (
	"context"
	"crypto"
	"io"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/evidence"
	"github.com/nodeattest/nodeattest/refusal"
)

// Evidence is this machine's evidence of one kind. [EvidenceOf] makes one that has no device of its
// own, such as a cloud's documents, or that writes several versions of its data format.
type Evidence interface {
	// Provider returns the name of the kind in signer names, which is that of its Prover.
	Provider() string
	// Open opens the evidence for one certificate: a TPM's device, for example. It is called only
	// if a certificate is due. The prover is closed after each use; its Close closes everything
	// that Open opened.
	Open(ctx context.Context) (attest.Prover, error)
}

// EvidenceOf makes evidence from the provider's name and the functions that make its Prover, whose
// Close is called after each use: one for each version of the data format that is still safe to
// write, the newest first. Every attempt begins with the first; see [Config.MinimumVersion]. A type
// that embeds the returned Evidence has the newest version only.
func EvidenceOf(provider string, open ...func(ctx context.Context) (attest.Prover, error)) Evidence {
	return versioned{provider, open}
}

// versioned is evidence in several versions of its data format.
type versioned struct {
	provider string
	open     []evidence.Opener
}

func (v versioned) Provider() string { return v.provider }

func (v versioned) Open(ctx context.Context) (attest.Prover, error) {
	if len(v.open) == 0 {
		return nil, refusal.Config("Evidence", "no version", "one at least")
	}
	return v.open[0](ctx)
}

// A keyKeeper is a prover with private keys that cannot leave the machine: the node can have a
// recovery certificate.
type keyKeeper interface {
	// CreateKey creates a key.
	CreateKey(ctx context.Context) (sealedKey, error)
	// LoadKey loads a key from the file that [sealedKey.File] returned.
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
