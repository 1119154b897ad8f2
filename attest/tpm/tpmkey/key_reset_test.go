package tpmkey

import (
	"context"
	"crypto"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A key signs after a reset of its TPM, as after hibernation: it is loaded from its file, and
// that only once for each reset.
func TestSignAfterAReset(t *testing.T) {
	for name, device := range map[string]*tpmsim.TPM{"simulator": tpmlab.NewTPM(t), "swtpm": tpmsim.Swtpm(t, tpmlab.Bare())} {
		tpmlab.Persist(t, device, tpm2.TPMRHOwner, tpmop.StorageRootKey(), 0x81000001)
		for what, c := range map[string]struct {
			options Options
			faults  tpmsim.Faults
		}{
			"saved": {Options{}, nil}, "below a persistent parent": {Options{Parent: 0x81000001}, nil},
			"with a password and PCRs": {Options{Password: hidden([]byte("secret")), PCRs: pcr23}, nil},
			"held":                     {Options{}, tpmsim.FailEvery(tpm2.TPMCCContextSave, tpm2.TPMRCCommandCode)},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				tpm := tpmsim.Faulty(device, c.faults)
				k, err := Create(t.Context(), tpm, ECDSAP256, c.options)
				testkit.NoError(t, err)
				tpmlab.CheckSignature(t, k, crypto.SHA256)
				for range 2 {
					testkit.NoError(t, device.Reset())
					tpm.SetFaults(c.faults)
					tpmlab.CheckSignature(t, k, crypto.SHA256)
					if n := tpmlab.Count(tpm, tpm2.TPMCCLoad); n != 1 {
						t.Errorf("loaded %d times", n)
					}
					tpm.SetFaults(c.faults)
					tpmlab.CheckSignature(t, k, crypto.SHA256)
					if n := tpmlab.Count(tpm, tpm2.TPMCCLoad); n != 0 {
						t.Errorf("loaded %d times more", n)
					}
				}
				if err := k.Close(); err != nil {
					t.Error(err)
				}
				tpmlab.CheckNothingLoaded(t, device)
			})
		}
	}
}

// A reset in the middle, at whatever command, is another matter of the same kind.
func TestSignDuringAReset(t *testing.T) {
	device := tpmlab.NewTPM(t)
	tpm := tpmsim.Faulty(device, nil)
	k, err := Create(t.Context(), tpm, ECDSAP256, Options{Password: hidden([]byte("secret"))})
	testkit.NoError(t, err)
	tpm.SetFaults(nil)
	tpmlab.CheckSignature(t, k, crypto.SHA256)
	whole := tpm.Commands()
	sum := sha256.Sum256(nil)
	for n, code := range whole {
		tpm.SetFaults(tpmsim.At(n+1, tpmsim.Fault{Before: func() {
			if err := device.Reset(); err != nil {
				t.Error(err)
			}
		}}))
		// A session's key can be lost between two commands: that passes.
		if _, err := k.Sign(nil, sum[:], crypto.SHA256); err != nil && !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("before command %d (0x%x) of %d: %v", n+1, code, len(whole), err)
		}
		tpm.SetFaults(nil)
		tpmlab.CheckSignature(t, k, crypto.SHA256)
		tpmlab.CheckNothingLoaded(t, device)
	}
	if i := slices.Index(whole, tpm2.TPMCCSign); i < 0 {
		t.Error("the test does not test: nothing was signed")
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

// A transport that panics, at whatever command, is the error of one call: the next one signs, and
// nothing stays loaded.
func TestSignTransportPanics(t *testing.T) {
	device := tpmlab.NewTPM(t)
	tpm := tpmsim.Faulty(device, nil)
	k, err := Create(t.Context(), tpm, ECDSAP256, Options{})
	testkit.NoError(t, err)
	tpm.SetFaults(nil)
	tpmlab.CheckSignature(t, k, crypto.SHA256)
	sum := sha256.Sum256(nil)
	for n, code := range tpm.Commands() {
		tpm.SetFaults(tpmsim.At(n+1, tpmsim.Fault{Before: func() { panic("a bug of the transport") }}))
		if _, err := k.Sign(nil, sum[:], crypto.SHA256); err == nil {
			t.Errorf("command %d (0x%x) panicked, and no error", n+1, code)
		}
		tpm.SetFaults(nil)
		tpmlab.CheckSignature(t, k, crypto.SHA256)
		tpmlab.CheckNothingLoaded(t, device)
	}
	tpm.SetFaults(tpmsim.At(1, tpmsim.Fault{Before: func() { panic("a bug of the transport") }}))
	if k, err := Create(t.Context(), tpm, ECDSAP256, Options{}); k != nil || err == nil {
		t.Errorf("a call in the caller's goroutine: %v", err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

// The owner's password is not kept for it: the error says what happened and what helps. A TPM
// that was cleared has no such key, and is not asked again and again.
func TestSignAfterAResetRefused(t *testing.T) {
	device := tpmlab.NewTPM(t)
	owner, sum := hidden([]byte("owner's")), sha256.Sum256(nil)
	tpmlab.SetHierarchyPassword(t, device, tpm2.TPMRHOwner, nil, owner.Reveal())
	tpm := tpmsim.Faulty(device, nil)
	var k *Key
	for name, faults := range map[string]tpmsim.Faults{"saved": nil, "held": tpmsim.FailEvery(tpm2.TPMCCContextSave, tpm2.TPMRCCommandCode)} {
		tpm.SetFaults(faults)
		var err error
		if k, err = Create(t.Context(), tpm, ECDSAP256, Options{OwnerPassword: owner}); err != nil {
			t.Fatal(err)
		}
		testkit.NoError(t, device.Reset())
		tpm.SetFaults(nil)
		_, err = k.Sign(nil, sum[:], crypto.SHA256)
		if !errors.Is(err, tpmop.ErrHierarchyPassword) || errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), "reset") || !strings.Contains(err.Error(), "Load") {
			t.Errorf("%s: got %v", name, err)
		}
		if n := tpmlab.Count(tpm, tpm2.TPMCCCreatePrimary); n != 1 {
			t.Errorf("%s: the empty password was tried %d times", name, n)
		}
	}
	again, err := Load(t.Context(), tpm, k.File(), LoadOptions{OwnerPassword: owner})
	testkit.NoError(t, err)
	tpmlab.CheckSignature(t, again, crypto.SHA256)

	if _, err := (tpm2.Clear{AuthHandle: tpmop.WithPassword(tpm2.TPMRHLockout, nil, nil)}).Execute(device); err != nil {
		t.Fatal(err)
	}
	tpm.SetFaults(nil)
	if _, err := again.Sign(nil, sum[:], crypto.SHA256); !errors.Is(err, tpm2.TPMRCIntegrity) || errors.Is(err, refusal.ErrRetry) || tpmlab.Count(tpm, tpm2.TPMCCLoad) != 1 {
		t.Errorf("after TPM2_Clear: %v after %v", err, tpm.Commands())
	}
	tpmlab.CheckNothingLoaded(t, device)
}

// A key is no other TPM's, and what cannot be said now is no reset.
func TestNoReset(t *testing.T) {
	device, other := tpmlab.NewTPM(t), tpmsim.Swtpm(t, tpmlab.Bare())
	tpm := tpmsim.Faulty(device, nil)
	k, err := Create(t.Context(), tpm, ECDSAP256, Options{})
	testkit.NoError(t, err)
	if _, err := do(t, other, k.Load); !errors.Is(err, tpm2.TPMRCIntegrity) {
		t.Errorf("another TPM: %v", err)
	}
	sum := sha256.Sum256(nil)
	for rc, want := range map[tpm2.TPMRC]error{tpm2.TPMRCObjectMemory: refusal.ErrRetry, tpm2.TPMRCFailure: tpm2.TPMRCFailure} {
		tpm.SetFaults(tpmsim.FailEvery(tpm2.TPMCCContextLoad, rc))
		if _, err := k.Sign(nil, sum[:], crypto.SHA256); !errors.Is(err, rc) || !errors.Is(err, want) || tpmlab.Count(tpm, tpm2.TPMCCLoad) != 0 {
			t.Errorf("%v: %v after %v", rc, err, tpm.Commands())
		}
	}
	testkit.NoError(t, device.Reset())
	for range 2 { // another user of the TPM has the key, and leaves it as it is
		if _, err := do(t, device, func(ctx context.Context, h *tpmop.Handles) (*tpmop.LoadedKey, error) {
			loaded, err := k.Load(ctx, h)
			if err != nil {
				return nil, err
			}
			return loaded, h.Flush(loaded.Handle)
		}); err != nil {
			t.Error(err)
		}
		tpmlab.CheckNothingLoaded(t, device)
	}
	tpm.SetFaults(nil)
	tpmlab.CheckSignature(t, k, crypto.SHA256)
	if n := tpmlab.Count(tpm, tpm2.TPMCCLoad); n != 1 {
		t.Errorf("loaded %d times", n)
	}
}

// pcr7 is a PCR whose extension ends the sessions of policies, as that of PCR 23 does not.
var pcr7 = []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{1 << 7, 0, 0}}}

// The extension of a PCR that the key is not bound to, as by Linux's measurements of files, ends
// the session of a policy: the policy is checked again. Only the PCR's own value is final.
func TestSignWhilePCRsMove(t *testing.T) {
	for name, device := range map[string]*tpmsim.TPM{"simulator": tpmlab.NewTPM(t), "swtpm": tpmsim.Swtpm(t, tpmlab.Bare())} {
		tpm := tpmsim.Faulty(device, nil)
		k, err := Create(t.Context(), tpm, ECDSAP256, Options{PCRs: pcr7})
		testkit.NoError(t, err)
		sum := sha256.Sum256(nil)
		for _, c := range []struct {
			pcr   tpm2.TPMHandle
			times int
			want  error
			signs int
		}{
			{10, 1, nil, 2}, {10, tpmop.MaxTries - 1, nil, tpmop.MaxTries}, {10, tpmop.MaxTries, refusal.ErrRetry, tpmop.MaxTries}, {7, 1, ErrPCRPolicy, 1},
		} {
			left := c.times
			tpm.SetFaults(tpmsim.Every(tpm2.TPMCCSign, tpmsim.Fault{Before: func() {
				if left--; left >= 0 {
					tpmlab.ExtendPCR(t, device, c.pcr)
				}
			}}))
			_, err := k.Sign(nil, sum[:], crypto.SHA256)
			if !errors.Is(err, c.want) || errors.Is(err, ErrPCRPolicy) != (c.pcr == 7) || tpmlab.Count(tpm, tpm2.TPMCCSign) != c.signs {
				t.Errorf("%s: PCR %d, %d times: %v after %d tries, want %v", name, c.pcr, c.times, err, tpmlab.Count(tpm, tpm2.TPMCCSign), c.want)
			}
			tpmlab.CheckNothingLoaded(t, device)
		}
	}
}
