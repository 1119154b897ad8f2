package tpm

import (
	"errors"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/internal/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmop"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A panic of the caller's code does not leave the TPM taken, nor objects in it.
func TestSharedTPMAfterAPanic(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	shared := tpmop.Share(tpm)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		shared.Do(t.Context(), func(h *tpmop.Handles) error {
			if _, err := loadAK(t.Context(), h, &AKSource{Template: AKTemplateECDSAP256()}, nil); err != nil {
				t.Error(err)
			}
			panic("on purpose")
		})
	}()
	tpmlab.CheckNothingLoaded(t, shared)
}

// What could not be flushed is flushed at the next use, but not if its handle is
// another object's by then.
func TestHandlesRetry(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	loadOne := func(tpm transport.TPM) error {
		_, err := akOf(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, nil)
		return err
	}
	t.Run("not flushed", func(t *testing.T) {
		faulty := tpmsim.Faulty(tpm, tpmsim.FailEvery(tpm2.TPMCCFlushContext, tpm2.TPMRCFailure))
		shared := tpmop.Share(faulty)
		if err := loadOne(shared); !errors.Is(err, tpm2.TPMRCFailure) {
			t.Errorf("got %v, want the error of flushing", err)
		}
		if len(tpmlab.LoadedHandles(t, tpm)) != 1 {
			t.Error("the test does not test: nothing is left loaded")
		}
		if err := shared.FlushLeft(t.Context()); err == nil {
			t.Error("flushLeft says that nothing is left")
		}
		faulty.SetFaults(nil)
		if err := loadOne(shared); err != nil {
			t.Error(err)
		}
		tpmlab.CheckNothingLoaded(t, tpm)
	})
	t.Run("flushed, but the answer was lost, and the handle is another's", func(t *testing.T) {
		faulty := tpmsim.Faulty(tpm, tpmsim.LoseAt(2))
		shared := tpmop.Share(faulty)
		if err := loadOne(shared); !errors.Is(err, tpmsim.ErrInjected) {
			t.Errorf("got %v, want the error of flushing", err)
		}
		other, err := (tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(*tpmop.StorageRootKey())}).Execute(tpm)
		if err != nil {
			t.Fatal(err)
		}
		if err := loadOne(shared); err != nil {
			t.Error(err)
		}
		if got := tpmlab.LoadedHandles(t, tpm); len(got) != 1 || got[0] != other.ObjectHandle {
			t.Errorf("loaded %x, want %x alone", got, other.ObjectHandle)
		}
		if err := tpmop.FlushContext(tpm, other.ObjectHandle); err != nil {
			t.Error(err)
		}
	})
}
