package tpm

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmop"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// Every kind of key, with each parent, password and policy: saved, the TPM reset, and
// loaded, on both emulators.
func TestTPMKeySurvivesAReset(t *testing.T) {
	for name, tpm := range map[string]*tpmsim.TPM{"simulator": tpmlab.NewTPM(t), "swtpm": tpmsim.Swtpm(t, tpmlab.Bare())} {
		tpmlab.Persist(t, tpm, tpm2.TPMRHOwner, tpmop.StorageRootKey(), 0x81000001)
		for _, kind := range []tpmkey.Kind{tpmkey.ECDSAP256, tpmkey.ECDSAP384, tpmkey.RSA2048} {
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

func surviveReset(t *testing.T, tpm *tpmsim.TPM, kind tpmkey.Kind, opts tpmkey.Options) {
	k, err := tpmkey.Create(t.Context(), tpm, kind, opts)
	if err != nil {
		t.Fatal(err)
	}
	checkSignature(t, k, crypto.SHA256)
	if err := tpm.Reset(); err != nil {
		t.Fatal(err)
	}
	again, err := tpmkey.Load(t.Context(), tpm, throughFile(t, k), tpmkey.LoadOptions{Password: opts.Password})
	if err != nil {
		t.Fatal(err)
	}
	if !sameTestKey(k.Public(), again.Public()) {
		t.Error("another key was loaded")
	}
	checkSignature(t, again, crypto.SHA256)
	if kind == tpmkey.RSA2048 {
		checkSignature(t, again, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256})
	}
	c, err := certifyWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, again, []byte{1})
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		tpmlab.ExtendPCR(t, tpm, 16) // not one of them
		checkSignature(t, k, crypto.SHA256)
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
