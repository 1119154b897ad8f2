package tpm

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/tpmsim"
)

func TestShareTPMOnce(t *testing.T) {
	shared := ShareTPM(noTPM{})
	if again := ShareTPM(shared); again != shared {
		t.Error("a SharedTPM was wrapped again: two turns for one TPM")
	}
}

type noTPM struct{}

func (noTPM) Send([]byte) ([]byte, error) { return nil, errors.New("no such device") }

func TestSharedTPMWithoutTPM(t *testing.T) {
	for _, s := range []*SharedTPM{nil, {}, ShareTPM(nil)} {
		if _, err := s.Send(nil); err == nil {
			t.Error("Send without a TPM succeeded")
		}
		if err := s.do(t.Context(), func(*handles) error { t.Error("called"); return nil }); err == nil {
			t.Error("do without a TPM succeeded")
		}
	}
}

func TestSharedTPMSendsOtherCommands(t *testing.T) {
	shared := ShareTPM(newTPM(t))
	if _, err := (tpm2.GetRandom{BytesRequested: 8}).Execute(shared); err != nil {
		t.Error(err)
	}
}

// One user at a time; whoever waits can give up; the next one is served.
func TestSharedTPMTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := ShareTPM(noTPM{})
		inside, leave := make(chan struct{}), make(chan struct{})
		go shared.do(t.Context(), func(*handles) error {
			close(inside)
			<-leave
			return nil
		})
		<-inside
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp, served := make(chan error, 1), make(chan error, 1)
		go func() { gaveUp <- shared.do(ctx, func(*handles) error { return errors.New("ran") }) }()
		go func() { served <- shared.do(t.Context(), func(*handles) error { return nil }) }()
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
	err := ShareTPM(noTPM{}).do(ctx, func(*handles) error { return errors.New("ran") })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

// A panic of the caller's code does not leave the TPM taken, nor objects in it.
func TestSharedTPMAfterAPanic(t *testing.T) {
	tpm := newTPM(t)
	shared := ShareTPM(tpm)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		shared.do(t.Context(), func(h *handles) error {
			if _, err := loadAK(t.Context(), h, &AKSource{Template: AKTemplateECDSAP256()}, nil); err != nil {
				t.Error(err)
			}
			panic("on purpose")
		})
	}()
	checkNothingLoaded(t, shared)
}

// What could not be flushed is flushed at the next use, but not if its handle is
// another object's by then.
func TestHandlesRetry(t *testing.T) {
	tpm := newTPM(t)
	loadOne := func(tpm transport.TPM) error {
		_, err := akOf(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, nil)
		return err
	}
	t.Run("not flushed", func(t *testing.T) {
		faulty := tpmsim.Faulty(tpm, tpmsim.FailEvery(tpm2.TPMCCFlushContext, tpm2.TPMRCRetry))
		shared := ShareTPM(faulty)
		if err := loadOne(shared); !errors.Is(err, tpm2.TPMRCRetry) {
			t.Errorf("got %v, want the error of flushing", err)
		}
		if len(loadedHandles(t, tpm)) != 1 {
			t.Error("the test does not test: nothing is left loaded")
		}
		if err := shared.flushLeft(t.Context()); err == nil {
			t.Error("flushLeft says that nothing is left")
		}
		faulty.SetFaults(nil)
		if err := loadOne(shared); err != nil {
			t.Error(err)
		}
		checkNothingLoaded(t, tpm)
	})
	t.Run("flushed, but the answer was lost, and the handle is another's", func(t *testing.T) {
		faulty := tpmsim.Faulty(tpm, tpmsim.LoseAt(2))
		shared := ShareTPM(faulty)
		if err := loadOne(shared); !errors.Is(err, tpmsim.ErrInjected) {
			t.Errorf("got %v, want the error of flushing", err)
		}
		other, err := (tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(*storageRootKey())}).Execute(tpm)
		if err != nil {
			t.Fatal(err)
		}
		if err := loadOne(shared); err != nil {
			t.Error(err)
		}
		if got := loadedHandles(t, tpm); len(got) != 1 || got[0] != other.ObjectHandle {
			t.Errorf("loaded %x, want %x alone", got, other.ObjectHandle)
		}
		if err := flushContext(tpm, other.ObjectHandle); err != nil {
			t.Error(err)
		}
	})
}
