package tpmcapability

import (
	"errors"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestHas: a key at the next handle is not the one that was asked for.
func TestHas(t *testing.T) {
	const key = 0x81010001
	tpm := tpmlab.NewTPM(t)
	for _, persisted := range []bool{false, true} {
		if persisted {
			tpmlab.Persist(t, tpm, tpm2.TPMRHOwner, &tpm2.ECCSRKTemplate, key)
		}
		for handle, want := range map[tpm2.TPMHandle]bool{key - 1: false, key: persisted, key + 1: false} {
			if there, err := Has(tpm, handle); err != nil || there != want {
				t.Errorf("0x%x: got %t, %v, want %t", handle, there, err, want)
			}
		}
	}
}

// TestHasOfASilentTPM: one that does not list its handles has no key that is known of.
func TestHasOfASilentTPM(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	for rc, want := range map[tpm2.TPMRC]error{tpm2.TPMRCValue | 0x2c0: nil, tpm2.TPMRCFailure: tpm2.TPMRCFailure} {
		if there, err := Has(tpmsim.Faulty(tpm, tpmsim.AnswerAt(1, rc)), 0x81010001); there || !errors.Is(err, want) {
			t.Errorf("%v: %t, %v", rc, there, err)
		}
	}
}

// TestFlushAllSessions saves as many sessions as there can be: they take no memory, but numbers,
// and are flushed only where there are too many.
func TestFlushAllSessions(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	saved, full := 0, error(nil)
	for ; saved < 1000; saved++ {
		var session tpm2.Session
		if session, _, full = tpm2.HMACSession(tpm, tpm2.TPMAlgSHA256, 16); full != nil {
			break
		}
		if _, err := (tpm2.ContextSave{SaveHandle: session.Handle()}).Execute(tpm); err != nil {
			t.Fatal(err)
		}
	}
	if !noSession(full) {
		t.Fatalf("after %d sessions: %v", saved, full)
	}
	if flushed, err := flushAll(tpm, tpm2.TPMRCObjectMemory); err != nil || flushed != 0 {
		t.Errorf("%d flushed for want of objects: %v", flushed, err)
	}
	if flushed, err := flushAll(tpm, full); err != nil || flushed != saved {
		t.Errorf("%d of %d flushed: %v", flushed, saved, err)
	}
}

// TestFlushAll fills a TPM, and empties it.
func TestFlushAll(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	load := func() error {
		_, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}.Execute(tpm)
		return err
	}
	loaded, err := 0, load()
	for ; err == nil && loaded < 100; err = load() {
		loaded++
	}
	if !NoRoom(err) || NoRoom(nil) || NoRoom(tpm2.TPMRCAuthFail) {
		t.Fatalf("after %d objects: %v", loaded, err)
	}
	if flushed, err := flushAll(tpm, err); err != nil || flushed != loaded {
		t.Errorf("%d of %d flushed: %v", flushed, loaded, err)
	}
	if err := load(); err != nil {
		t.Error(err)
	}
}
