package tpm

import (
	"crypto"
	"crypto/sha256"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmop"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func TestTPMKeyClosed(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	k, err := tpmkey.Create(t.Context(), tpm, tpmkey.ECDSAP256, tpmkey.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
	sum := sha256.Sum256(nil)
	if _, err := k.Sign(nil, sum[:], crypto.SHA256); !errors.Is(err, os.ErrClosed) {
		t.Errorf("signing with a closed key: got %v, want os.ErrClosed", err)
	}
	if _, err := certifyWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, k, []byte{1}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("certifying a closed key: got %v, want os.ErrClosed", err)
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

// More keys than the TPM has slots, an attestation key and a software key, from
// many goroutines over one tpmop.Shared.
func TestTPMKeysShareOneTPM(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	shared := tpmop.Share(tpm)
	keys := []*tpmkey.Key{}
	for range 5 {
		keys = append(keys, mustTPMKey(t, shared, tpmkey.ECDSAP256))
	}
	soft := mustSoftwareKey(t, tpmlab.NewECDSA(t, p256))
	var wg sync.WaitGroup
	for _, k := range keys {
		wg.Go(func() {
			for range 5 {
				checkSignature(t, k, crypto.SHA256)
			}
		})
		wg.Go(func() {
			for _, key := range []tpmkey.Certifiable{k, soft} {
				if _, err := certifyWith(t, shared, AKSource{Template: AKTemplateECDSAP256()}, key, []byte{1}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	tpmlab.CheckNothingLoaded(t, tpm)
}

// Where the system blocks TPM2_ContextSave, the key stays loaded until Close.
func TestTPMKeyWithoutContexts(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	for name, faults := range map[string]tpmsim.Faults{
		"refused by the TPM": tpmsim.FailEvery(tpm2.TPMCCContextSave, tpm2.TPMRCCommandCode),
		"blocked by Windows": tpmsim.FailEvery(tpm2.TPMCCContextSave, 0x80280400),
	} {
		shared := tpmop.Share(tpmsim.Faulty(tpm, faults))
		k, err := tpmkey.Create(t.Context(), shared, tpmkey.ECDSAP256, tpmkey.Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		checkSignature(t, k, crypto.SHA256)
		c, err := certifyWith(t, shared, AKSource{Template: AKTemplateECDSAP256()}, k, []byte{1})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		checkStatement(t, c, k.Public(), []byte{1}, true)
		if got := tpmlab.LoadedHandles(t, tpm); len(got) != 1 {
			t.Errorf("%s: %d handles loaded, want the key's alone", name, len(got))
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		tpmlab.CheckNothingLoaded(t, tpm)
	}
}
