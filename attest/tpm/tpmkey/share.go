package tpmkey

import (
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
)

// Share wraps a transport so that several keys, a Prover and the caller's own code use one
// TPM from many goroutines. A transport sends one command at a time and a TPM has as few as
// three slots for loaded objects, so each operation takes the TPM for all of its commands,
// from the first load to the last flush, and the next one waits. Every function of attest/tpm
// and attest/tpm/tpmkey that takes a transport recognizes what Share returned; given anything
// else, it shares with no other user. So wherever one TPM serves two users:
//
//	tpm := Share(transport)
//
// pass tpm to both. Share of a shared TPM returns it unchanged. The caller remains
// responsible for closing the transport, after everything that uses it.
func Share(tpm transport.TPM) transport.TPM { return tpmop.Share(tpm) }
