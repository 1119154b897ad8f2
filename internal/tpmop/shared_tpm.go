package tpmop

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2/transport"
)

// Shared lets several keys, a Prover and the caller's own code use one TPM from many
// goroutines. A transport sends one command at a time and a TPM has as few as three slots
// for loaded objects, so each operation takes the TPM for all of its commands, from the
// first load to the last flush, and the next one waits. Every function of attest/tpm and
// attest/tpm/tpmkey that takes a transport knows a Shared; one that is given anything else
// makes a Shared of its own, which shares nothing. So wherever one TPM serves two users:
//
//	tpm := Share(transport)
//
// and give tpm to both.
type Shared struct {
	tpm  transport.TPM
	turn chan struct{} // holds one value while the TPM is in use
	Left []OpenHandle  // could not be flushed; guarded by turn

	SessionKey *sessionKey // nil until the first session; guarded by turn
}

// Share wraps a transport. A Shared is returned as it is. The transport
// stays the caller's to close, after everything that uses it.
func Share(tpm transport.TPM) *Shared {
	if s, ok := tpm.(*Shared); ok {
		return s
	}
	return &Shared{tpm: tpm, turn: make(chan struct{}, 1)}
}

// Send sends one command when the TPM is free, and makes Shared a
// transport.TPM. It waits for a running operation, a key generation at worst.
func (s *Shared) Send(command []byte) ([]byte, error) {
	if s == nil || s.tpm == nil {
		return nil, errors.New("no TPM")
	}
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	return s.tpm.Send(command)
}

// Do runs f with the TPM to itself, and then flushes everything that f loaded,
// whatever f returned and whether or not ctx is over: an error of flushing is
// joined to f's. What could not be flushed is tried again at the next Do. f
// talks to h.TPM, never to s, which would wait for itself.
func (s *Shared) Do(ctx context.Context, f func(h *Handles) error) (err error) {
	if s == nil || s.tpm == nil {
		return errors.New("no TPM")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the TPM: %w", ctx.Err())
	}
	defer func() { <-s.turn }()

	h := &Handles{TPM: s.tpm, shared: s}
	s.Left = h.retry(s.Left)
	defer func() {
		err = errors.Join(err, h.FlushAll())
		s.Left = append(s.Left, h.Open...)
	}()
	return f(h)
}

// FlushLeft tries once more to flush what earlier operations had to leave
// loaded, and fails if something is left. For the Close of what uses a TPM.
func (s *Shared) FlushLeft(ctx context.Context) error {
	return s.Do(ctx, func(h *Handles) error {
		if n := len(s.Left); n != 0 {
			return fmt.Errorf("%d handles could not be flushed, the first is 0x%08x", n, uint32(s.Left[0].Handle))
		}
		return nil
	})
}
