package tpm

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func TestTPMKeyClosed(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	k, err := tpmkey.Create(t.Context(), tpm, tpmkey.ECDSAP256, tpmkey.Options{})
	testkit.NoError(t, err)
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
				tpmlab.CheckSignature(t, k, crypto.SHA256)
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
		tpmlab.CheckSignature(t, k, crypto.SHA256)
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

// Every kind of key, with each parent, password and policy: saved, the TPM reset, and
// loaded, on both emulators.
func TestTPMKeySurvivesAReset(t *testing.T) {
	for name, tpm := range map[string]*tpmsim.TPM{"simulator": tpmlab.NewTPM(t), "swtpm": tpmsim.Swtpm(t, tpmlab.Bare())} {
		tpmlab.Persist(t, tpm, tpm2.TPMRHOwner, tpmop.StorageRootKey(), 0x81000001)
		for _, kind := range []tpmkey.Algorithm{tpmkey.ECDSAP256, tpmkey.ECDSAP384, tpmkey.RSA2048} {
			for i, opts := range []tpmkey.Options{
				{}, {Parent: 0x81000001}, {Password: hidden([]byte("secret"))}, {PCRs: pcr23},
				{Password: hidden([]byte("secret")), PCRs: pcr23, Parent: 0x81000001},
			} {
				t.Run(fmt.Sprintf("%s, %v, %d", name, kind, i), func(t *testing.T) {
					surviveReset(t, tpm, kind, opts)
				})
			}
		}
	}
}

func surviveReset(t *testing.T, tpm *tpmsim.TPM, kind tpmkey.Algorithm, opts tpmkey.Options) {
	k, err := tpmkey.Create(t.Context(), tpm, kind, opts)
	testkit.NoError(t, err)
	tpmlab.CheckSignature(t, k, crypto.SHA256)
	testkit.NoError(t, tpm.Reset())
	again, err := tpmkey.Load(t.Context(), tpm, throughFile(t, k), tpmkey.LoadOptions{Password: opts.Password})
	testkit.NoError(t, err)
	if !sameTestKey(k.Public(), again.Public()) {
		t.Error("another key was loaded")
	}
	tpmlab.CheckSignature(t, again, crypto.SHA256)
	if kind == tpmkey.RSA2048 {
		tpmlab.CheckSignature(t, again, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256})
	}
	c, err := certifyWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, again, []byte{1})
	testkit.NoError(t, err)
	checkStatement(t, c, k.Public(), []byte{1}, true)
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

func TestTPMKeyPCRs(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	both := []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0x81, 0, 0x80}}, {Hash: tpm2.TPMAlgSHA384, Select: []byte{1, 0, 0}}}
	for _, opts := range []tpmkey.Options{{PCRs: pcr23}, {PCRs: both}, {PCRs: both, Password: hidden([]byte("secret"))}} {
		k, err := tpmkey.Create(t.Context(), tpm, tpmkey.ECDSAP256, opts)
		testkit.NoError(t, err)
		tpmlab.ExtendPCR(t, tpm, 16) // not one of them
		tpmlab.CheckSignature(t, k, crypto.SHA256)
		tpmlab.ExtendPCR(t, tpm, 23)
		sum := sha256.Sum256(nil)
		if sig, err := k.Sign(nil, sum[:], crypto.SHA256); !errors.Is(err, tpmkey.ErrPCRPolicy) || sig != nil {
			t.Errorf("after the PCR changed: got %v, want ErrPCRPolicy", err)
		}
		tpmlab.CheckNothingLoaded(t, tpm)
		if c, err := certifyWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, k, []byte{1}); err != nil {
			t.Error(err)
		} else {
			checkStatement(t, c, k.Public(), []byte{1}, true)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
	for name, pcrs := range map[string][]statement.PCRSelection{
		"no PCR": {{Hash: tpm2.TPMAlgSHA256, Select: []byte{0, 0, 0}}}, "no bank": {{Hash: tpm2.TPMAlgSM3256, Select: []byte{1, 0, 0}}},
		"too far": {{Hash: tpm2.TPMAlgSHA256, Select: []byte{1, 0, 0, 0, 1}}}, "no such PCR": {{Hash: tpm2.TPMAlgSHA256, Select: []byte{0, 0, 0, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			if k, err := tpmkey.Create(t.Context(), tpm, tpmkey.ECDSAP256, tpmkey.Options{PCRs: pcrs}); err == nil || k != nil {
				t.Errorf("%s: got %v, %v", name, k, err)
			}
		})
	}
}

// One value makes the request and is certified, whichever kind of key it is.
func TestKeySignsItsRequest(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	for _, key := range []tpmkey.Certifiable{
		mustSoftwareKey(t, tpmlab.NewECDSA(t, p256)), mustSoftwareKey(t, tpmlab.RSA2048()),
		mustTPMKey(t, tpm, tpmkey.ECDSAP256), mustTPMKey(t, tpm, tpmkey.RSA2048),
	} {
		der, err := csr.Create(csr.PurposeClient, key, "worker-1", csr.CreateOptions{})
		if err != nil {
			t.Fatalf("%v: %v", key, err)
		}
		request, err := x509.ParseCertificateRequest(der)
		if err != nil || !sameTestKey(request.PublicKey, key.Public()) {
			t.Fatalf("%v: the request is for another key, %v", key, err)
		}
		if _, err := certifyWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, key, []byte{1}); err != nil {
			t.Errorf("%v: %v", key, err)
		}
	}
}
