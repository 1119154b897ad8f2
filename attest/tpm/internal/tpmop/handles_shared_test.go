package tpmop

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

func TestShareTPMOnce(t *testing.T) {
	shared := Share(noTPM{})
	if again := Share(shared); again != shared {
		t.Error("a SharedTPM was wrapped again: two turns for one TPM")
	}
}

type noTPM struct{}

func (noTPM) Send([]byte) ([]byte, error) { return nil, errors.New("no such device") }

func TestSharedTPMWithoutTPM(t *testing.T) {
	for _, s := range []*Shared{nil, {}, Share(nil)} {
		if _, err := s.Send(nil); err == nil {
			t.Error("Send without a TPM succeeded")
		}
		if err := s.Do(t.Context(), func(*Handles) error { t.Error("called"); return nil }); err == nil {
			t.Error("do without a TPM succeeded")
		}
	}
}

func TestSharedTPMSendsOtherCommands(t *testing.T) {
	shared := Share(tpmlab.NewTPM(t))
	if _, err := (tpm2.GetRandom{BytesRequested: 8}).Execute(shared); err != nil {
		t.Error(err)
	}
}

// One user at a time; one that waits can give up; the next one is served.
func TestSharedTPMTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := Share(noTPM{})
		inside, leave := make(chan struct{}), make(chan struct{})
		go shared.Do(t.Context(), func(*Handles) error {
			close(inside)
			<-leave
			return nil
		})
		<-inside
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp, served := make(chan error, 1), make(chan error, 1)
		go func() { gaveUp <- shared.Do(ctx, func(*Handles) error { return errors.New("ran") }) }()
		go func() { served <- shared.Do(t.Context(), func(*Handles) error { return nil }) }()
		synctest.Wait()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled while waiting: got %v", err)
		}
		select {
		case err := <-served:
			t.Errorf("served while another was inside: %v", err)
		default:
		}
		close(leave)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func TestSharedTPMWithContextThatIsOver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Share(noTPM{}).Do(ctx, func(*Handles) error { return errors.New("ran") })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
