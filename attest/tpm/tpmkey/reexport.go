package tpmkey

import (
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/internal/tpmop"
)

// ErrNVIndexNotFound says that the TPM has no such NV index: a template, nonce or certificate
// that was requested is not provisioned. The error that wraps it names the index.
var ErrNVIndexNotFound = tpmop.ErrNVIndexNotFound

// Share wraps a transport. A Shared is returned unchanged. The caller remains responsible for
// closing the transport, after everything that uses it.
func Share(tpm transport.TPM) *Shared { return tpmop.Share(tpm) }

// Shared lets several keys, a Prover and the caller's own code use one TPM from many
// goroutines. A transport sends one command at a time and a TPM has as few as three slots for
// loaded objects, so each operation takes the TPM for all of its commands, from the first load
// to the last flush, and the next one waits. Every function of attest/tpm and
// attest/tpm/tpmkey that takes a transport recognizes a Shared; one that is given anything
// else makes its own Shared, which shares nothing. So wherever one TPM serves two users:
//
//	tpm := Share(transport)
//
// pass tpm to both.
type Shared = tpmop.Shared
