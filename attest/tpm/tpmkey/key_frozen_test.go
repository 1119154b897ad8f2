package tpmkey

import (
	"context"
	"crypto"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/internal/tpmlab"
)

// freezer is a TPM that answers late, or not before it thaws.
type freezer struct {
	transport.TPM
	delay time.Duration
	thaw  chan struct{} // nil for one that is not frozen
}

func (f *freezer) Send(command []byte) ([]byte, error) {
	time.Sleep(f.delay)
	if f.thaw != nil {
		<-f.thaw
	}
	return f.TPM.Send(command)
}

// Nothing that a key does without a context waits for ever for a TPM that has stopped answering,
// and everything works again when it answers. One that is only slow is waited for.
func TestFrozenTPM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tpm := &freezer{TPM: tpmlab.NewTPM(t)}
		k, err := Create(t.Context(), tpm, ECDSAP256, Options{})
		if err != nil {
			t.Fatal(err)
		}
		sum := make([]byte, 32)
		sign := func() error { _, err := k.Sign(nil, sum, crypto.SHA256); return err }
		tpm.delay = limit / 10
		if err := sign(); err != nil {
			t.Errorf("a slow TPM: %v", err)
		}
		tpm.delay, tpm.thaw = 0, make(chan struct{})
		for n, use := range []func() error{sign, sign, k.Close} { // the first has the TPM's turn, the others wait for it
			began := time.Now()
			if err := use(); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != limit {
				t.Errorf("use %d: %v after %s", n, err, time.Since(began))
			}
		}
		close(tpm.thaw)
		synctest.Wait()
		if err := errors.Join(sign(), k.Close()); err != nil {
			t.Error(err)
		}
	})
}
