package tpmcapability

import (
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/tpmlab"
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
	if flushed, err := FlushAll(tpm); err != nil || flushed != loaded {
		t.Errorf("%d of %d flushed: %v", flushed, loaded, err)
	}
	if err := load(); err != nil {
		t.Error(err)
	}
}
