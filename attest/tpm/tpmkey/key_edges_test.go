package tpmkey

import (
	"bytes"
	"context"
	"crypto"

	"crypto/rsa"
	"encoding/binary"

	"errors"

	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A TPM key that cannot be made or used is refused before the TPM is asked.
func TestTPMKeysSendNothing(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	k := mustTPMKey(t, tpm, ECDSAP256)
	sum := make([]byte, 32)
	faulty := tpmsim.Faulty(tpm, nil)
	loaded, err := Load(t.Context(), faulty, k.File(), LoadOptions{})
	testkit.NoError(t, err)
	for name, run := range map[string]func() error{
		"no algorithm":      func() error { _, err := Create(t.Context(), faulty, 0, Options{}); return err },
		"an algorithm more": func() error { _, err := Create(t.Context(), faulty, RSA3072+1, Options{}); return err },
		"a longer password": func() error {
			_, err := Create(t.Context(), faulty, ECDSAP256, Options{Password: hidden(bytes.Repeat([]byte{'p'}, maxKeyPassword+1))})
			return err
		},
		"a password that no TPM takes": func() error {
			_, err := Create(t.Context(), faulty, ECDSAP256, Options{Password: hidden(badPassword)})
			return err
		},
		"a parent that is not persistent": func() error {
			_, err := Create(t.Context(), faulty, ECDSAP256, Options{Parent: 0x80000000})
			return err
		},
		"PCRs of no TPM": func() error {
			_, err := Create(t.Context(), faulty, ECDSAP256, Options{PCRs: []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{1, 0, 0, 0, 0}}}})
			return err
		},
		"a cut digest":    func() error { _, err := loaded.Sign(nil, sum[1:], crypto.SHA256); return err },
		"a longer digest": func() error { _, err := loaded.Sign(nil, append(sum, 0), crypto.SHA256); return err },
		"no options":      func() error { _, err := loaded.Sign(nil, sum, nil); return err },
		"no hash":         func() error { _, err := loaded.Sign(nil, sum, crypto.Hash(0)); return err },
		"SHA-1":           func() error { _, err := loaded.Sign(nil, sum[:20], crypto.SHA1); return err },
		"PSS":             func() error { _, err := loaded.Sign(nil, sum, &rsa.PSSOptions{Hash: crypto.SHA256}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			faulty.SetFaults(nil)
			if err := run(); err == nil || faulty.Count() != 0 {
				t.Errorf("%v after %v", err, faulty.Commands())
			}
		})
	}
	if _, err := (&Key{}).signScheme(nil, crypto.Hash(0)); err == nil || !strings.Contains(err.Error(), "digests only") {
		t.Errorf("no hash: %v", err)
	}
	if RSA3072.String() != "RSA-3072" {
		t.Errorf("%v", RSA3072)
	}
}

// A TPM that asks for another try gets some, and one whose answer does not fit is not
// asked for more.
func TestTPMKeysOfBrokenTPMs(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	file := mustTPMKey(t, tpm, ECDSAP256).File()
	sum := make([]byte, 32)
	synctest.Test(t, func(t *testing.T) {
		faulty := tpmsim.Faulty(tpm, nil)
		k, err := Load(t.Context(), faulty, file, LoadOptions{})
		testkit.NoError(t, err)
		faulty.SetFaults(tpmsim.FailEvery(tpm2.TPMCCSign, tpm2.TPMRCRetry))
		if _, err := k.Sign(nil, sum, crypto.SHA256); !errors.Is(err, tpm2.TPMRCRetry) || tpmlab.Count(faulty, tpm2.TPMCCSign) != tpmop.MaxTries {
			t.Errorf("%v after %d tries", err, tpmlab.Count(faulty, tpm2.TPMCCSign))
		}
	})
	// Without sign the key has another use, and the file is refused.
	unsigning := tpmsim.Faulty(&tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCCreate, Alter: func(b []byte) {
		area := 18 + int(binary.BigEndian.Uint16(b[14:]))
		b[area+5] ^= byte(statement.AttributeSign >> 16)
	}}, nil)
	if _, err := Create(t.Context(), unsigning, ECDSAP256, Options{}); err == nil || tpmlab.Count(unsigning, tpm2.TPMCCLoad) != 0 {
		t.Errorf("a key that does not sign: %v after %v", err, unsigning.Commands())
	}
	if _, err := Load(t.Context(), &tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCLoad, Alter: func(b []byte) { b[25] ^= 1 }}, file, LoadOptions{}); err == nil {
		t.Error("another Name is accepted")
	}
	ctx, cancel := context.WithCancel(t.Context())
	late := tpmsim.Faulty(tpm, tpmsim.Every(tpm2.TPMCCLoad, tpmsim.Fault{Before: cancel}))
	if k, err := Load(ctx, late, file, LoadOptions{}); !errors.Is(err, context.Canceled) || k != nil || tpmlab.Count(late, tpm2.TPMCCContextSave) != 0 {
		t.Errorf("cancelled: %v after %v", err, late.Commands())
	}
	tpmlab.CheckNothingLoaded(t, tpm)

	held := tpmsim.Faulty(tpm, tpmsim.FailEvery(tpm2.TPMCCContextSave, tpm2.TPMRCCommandCode))
	k, err := Load(t.Context(), held, file, LoadOptions{})
	testkit.NoError(t, err)
	held.SetFaults(tpmsim.FailEvery(tpm2.TPMCCFlushContext, tpm2.TPMRCFailure))
	if err := k.Close(); err == nil {
		t.Error("closed with the key in the TPM")
	}
	held.SetFaults(nil)
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	tpmlab.CheckNothingLoaded(t, tpm)
	if _, err := do(t, noPCRs{}, func(ctx context.Context, h *tpmop.Handles) (keyPolicyStep, error) {
		return presentPCRs(ctx, h, []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA512, Select: []byte{1, 0, 0}}}, tpm2.TPMAlgSHA256)
	}); err == nil {
		t.Error("a value of a bank that the TPM has not")
	}
}

// noPCRs is a TPM that gives no value, whatever it is asked for.
type noPCRs struct{}

func (noPCRs) Send([]byte) ([]byte, error) {
	return append([]byte{0x80, 1, 0, 0, 0, 22}, make([]byte, 16)...), nil
}

func TestWordsOfKeyRefusals(t *testing.T) {
	for rc, want := range map[tpm2.TPMRC]error{
		tpm2.TPMRCBadAuth: ErrPassword, tpm2.TPMRCAuthFail: ErrPassword, tpm2.TPMRCPCRChanged: nil, tpm2.TPMRCPolicyFail: ErrPCRPolicy, tpm2.TPMRCFailure: nil,
	} {
		err := explainKeyRefusal(rc)
		if !errors.Is(err, rc) || want != nil && !errors.Is(err, want) || want == nil && err != rc { //nolint:errorlint // the very error
			t.Errorf("%v: got %v, want %v", rc, err, want)
		}
	}
	mac := tpm2.NewTPMUSignature(tpm2.TPMAlgHMAC, &tpm2.TPMTHA{HashAlg: tpm2.TPMAlgSHA256, Digest: make([]byte, 32)})
	if b, err := signatureBytes(&tpm2.TPMTSignature{SigAlg: tpm2.TPMAlgHMAC, Signature: mac}); err == nil || b != nil {
		t.Errorf("HMAC: %x, %v", b, err)
	}
}

// Sessions with a password that no TPM takes are not started; a session key that comes
// too late is not kept.
func TestSessionsSendNothing(t *testing.T) {
	for password, want := range map[string]string{"\x00a": "", "a\x00b": "", "a": "a", "a\x00": "a", "\x00": "", "": ""} {
		t.Run(password, func(t *testing.T) {
			got, err := tpmop.AuthValue([]byte(password))
			if bad := len(password) == 2 && password[0] == 0 || len(password) == 3; bad != (err != nil) || string(got) != want {
				t.Errorf("%q: %q, %v", password, got, err)
			}
		})
	}
	tpm := tpmlab.NewTPM(t)
	faulty := tpmsim.Faulty(tpm, nil)
	for name, run := range map[string]func(ctx context.Context, h *tpmop.Handles) (tpm2.Session, error){
		"HMAC": func(ctx context.Context, h *tpmop.Handles) (tpm2.Session, error) { return h.Session(ctx, badPassword) },
		"policy": func(ctx context.Context, h *tpmop.Handles) (tpm2.Session, error) {
			return h.PolicySession(ctx, tpm2.TPMAlgSHA256, badPassword, nil)
		},
	} {
		faulty.SetFaults(nil)
		if _, err := do(t, faulty, run); !errors.Is(err, tpmop.ErrNullInPassword) || faulty.Count() != 0 {
			t.Errorf("%s: %v after %v", name, err, faulty.Commands())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	faulty.SetFaults(tpmsim.At(1, tpmsim.Fault{Before: cancel}))
	err := tpmop.Share(faulty).Do(ctx, func(h *tpmop.Handles) error {
		_, err := h.Session(ctx, []byte("password"))
		return err
	})
	if !errors.Is(err, context.Canceled) || tpmlab.Count(faulty, tpm2.TPMCCContextSave) != 0 {
		t.Errorf("cancelled: %v after %v", err, faulty.Commands())
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}
