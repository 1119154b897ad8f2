package tpm

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/tpmsim"
)

var pcr23 = []PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0, 0, 0x80}}}

// throughFile is what brings a key back in another process.
func throughFile(t testing.TB, k *TPMKey) *TPMKeyFile {
	t.Helper()
	b, err := k.File().Encode()
	if err != nil {
		t.Fatal(err)
	}
	file, err := ParseTPMKeyFile(b)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func extendSHA256PCR(t testing.TB, tpm transport.TPM, pcr tpm2.TPMHandle) {
	t.Helper()
	sum := sha256.Sum256(nil)
	_, err := tpm2.PCRExtend{
		PCRHandle: tpm2.AuthHandle{Handle: pcr, Auth: tpm2.PasswordAuth(nil)},
		Digests:   tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: tpm2.TPMAlgSHA256, Digest: sum[:]}}},
	}.Execute(tpm)
	if err != nil {
		t.Fatal(err)
	}
}

// Every kind of key, with each parent, password and policy: saved, the TPM reset, and
// loaded, on both emulators.
func TestTPMKeySurvivesAReset(t *testing.T) {
	for name, tpm := range map[string]*tpmsim.TPM{"simulator": newTPM(t), "swtpm": tpmsim.Swtpm(t, bare())} {
		persist(t, tpm, tpm2.TPMRHOwner, storageRootKey(), 0x81000001)
		for _, kind := range []KeyKind{KeyECDSAP256, KeyECDSAP384, KeyRSA2048} {
			for i, opts := range []*TPMKeyOptions{
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

func surviveReset(t *testing.T, tpm *tpmsim.TPM, kind KeyKind, opts *TPMKeyOptions) {
	k, err := CreateTPMKey(t.Context(), tpm, kind, opts)
	if err != nil {
		t.Fatal(err)
	}
	checkSignature(t, k, crypto.SHA256)
	if err := tpm.Reset(); err != nil {
		t.Fatal(err)
	}
	again, err := LoadTPMKey(t.Context(), tpm, throughFile(t, k), &TPMKeyLoadOptions{Password: opts.Password})
	if err != nil {
		t.Fatal(err)
	}
	if !sameTestKey(k.Public(), again.Public()) {
		t.Error("another key was loaded")
	}
	checkSignature(t, again, crypto.SHA256)
	if kind == KeyRSA2048 {
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
	checkNothingLoaded(t, tpm)
}

func TestTPMKeyPassword(t *testing.T) {
	tpm := newTPM(t)
	k, err := CreateTPMKey(t.Context(), tpm, KeyECDSAP256, &TPMKeyOptions{Password: hidden([]byte("secret\x00"))})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(nil)
	for password, want := range map[string]error{
		"secret": nil, "secret\x00\x00": nil, "": ErrKeyPassword, "Secret": ErrKeyPassword, "secre": ErrKeyPassword,
	} {
		k, err := LoadTPMKey(t.Context(), tpm, throughFile(t, k), &TPMKeyLoadOptions{Password: hidden([]byte(password))})
		if err != nil {
			t.Fatal(err)
		}
		sig, err := k.Sign(nil, sum[:], crypto.SHA256)
		if !errors.Is(err, want) || (err == nil) != (sig != nil) {
			t.Errorf("%q: got %v, want %v", password, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error has the password: %v", password, err)
		}
		checkNothingLoaded(t, tpm)
	}
	for name, password := range map[string]string{"too long": strings.Repeat("p", 33), "zero inside": "se\x00cret"} {
		if k, err := CreateTPMKey(t.Context(), tpm, KeyECDSAP256, &TPMKeyOptions{Password: hidden([]byte(password))}); err == nil || k != nil {
			t.Errorf("%s: got %v, %v", name, k, err)
		}
	}
	if _, err := LoadTPMKey(t.Context(), tpm, k.File(), &TPMKeyLoadOptions{Password: hidden([]byte("se\x00cret"))}); !errors.Is(err, errNullInPassword) {
		t.Errorf("zero inside: got %v", err)
	}
	longest, err := CreateTPMKey(t.Context(), tpm, KeyECDSAP256, &TPMKeyOptions{Password: hidden(bytes.Repeat([]byte{'p'}, 32))})
	if err != nil {
		t.Fatal(err)
	}
	checkSignature(t, longest, crypto.SHA256)
}

func TestTPMKeyPCRs(t *testing.T) {
	tpm := newTPM(t)
	both := []PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0x81, 0, 0x80}}, {Hash: tpm2.TPMAlgSHA384, Select: []byte{1, 0, 0}}}
	for _, opts := range []*TPMKeyOptions{{PCRs: pcr23}, {PCRs: both}, {PCRs: both, Password: hidden([]byte("secret"))}} {
		k, err := CreateTPMKey(t.Context(), tpm, KeyECDSAP256, opts)
		if err != nil {
			t.Fatal(err)
		}
		extendSHA256PCR(t, tpm, 16) // not one of them
		checkSignature(t, k, crypto.SHA256)
		extendSHA256PCR(t, tpm, 23)
		sum := sha256.Sum256(nil)
		if sig, err := k.Sign(nil, sum[:], crypto.SHA256); !errors.Is(err, ErrPCRPolicy) || sig != nil {
			t.Errorf("after the PCR changed: got %v, want ErrPCRPolicy", err)
		}
		checkNothingLoaded(t, tpm)
		if c, err := certifyWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, k, []byte{1}); err != nil {
			t.Error(err)
		} else {
			checkStatement(t, c, k.Public(), []byte{1}, true)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
	for name, pcrs := range map[string][]PCRSelection{
		"no PCR": {{Hash: tpm2.TPMAlgSHA256, Select: []byte{0, 0, 0}}}, "no bank": {{Hash: tpm2.TPMAlgSM3256, Select: []byte{1, 0, 0}}},
		"too far": {{Hash: tpm2.TPMAlgSHA256, Select: []byte{1, 0, 0, 0, 1}}}, "no such PCR": {{Hash: tpm2.TPMAlgSHA256, Select: []byte{0, 0, 0, 1}}},
	} {
		if k, err := CreateTPMKey(t.Context(), tpm, KeyECDSAP256, &TPMKeyOptions{PCRs: pcrs}); err == nil || k != nil {
			t.Errorf("%s: got %v, %v", name, k, err)
		}
	}
}

// The policy's password alone, or the right PCRs with a wrong password, are no use.
func TestTPMKeyPCRsAndPassword(t *testing.T) {
	tpm := newTPM(t)
	k, err := CreateTPMKey(t.Context(), tpm, KeyECDSAP256, &TPMKeyOptions{PCRs: pcr23, Password: hidden([]byte("secret"))})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(nil)
	wrong, err := LoadTPMKey(t.Context(), tpm, k.File(), &TPMKeyLoadOptions{Password: hidden([]byte("guess"))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wrong.Sign(nil, sum[:], crypto.SHA256); !errors.Is(err, ErrKeyPassword) {
		t.Errorf("wrong password: got %v, want ErrKeyPassword", err)
	}
	// Whoever leaves the policy out is refused by the TPM itself.
	_, err = do(t, tpm, func(ctx context.Context, h *handles) (any, error) {
		loaded, _, err := k.load(ctx, h)
		if err != nil {
			return nil, err
		}
		return tpm2.Sign{
			KeyHandle:  withPassword(loaded.handle, loaded.name, []byte("secret")),
			Digest:     tpm2.TPM2BDigest{Buffer: sum[:]},
			InScheme:   tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgECDSA, Details: tpm2.NewTPMUSigScheme(tpm2.TPMAlgECDSA, &tpm2.TPMSSchemeHash{HashAlg: tpm2.TPMAlgSHA256})},
			Validation: tpm2.TPMTTKHashCheck{Tag: tpm2.TPMSTHashCheck, Hierarchy: tpm2.TPMRHNull},
		}.Execute(h.tpm)
	})
	if !errors.Is(err, tpm2.TPMRCAuthUnavailable) {
		t.Errorf("password without policy: got %v, want TPM_RC_AUTH_UNAVAILABLE", err)
	}
	checkNothingLoaded(t, tpm)
}

// A file is of use to its own TPM alone, and each changed bit of it is noticed.
func TestLoadTPMKeyRefuses(t *testing.T) {
	tpm := newTPM(t)
	k := mustTPMKey(t, tpm, KeyECDSAP256)
	other := mustTPMKey(t, tpm, KeyECDSAP256)
	setHierarchyPassword(t, tpm, tpm2.TPMRHOwner, nil, []byte("owner's"))
	for name, tt := range map[string]struct {
		change func(*TPMKeyFile)
		owner  string
		want   error
	}{
		"owner's password missing": {func(*TPMKeyFile) {}, "", ErrHierarchyPassword},
		"owner's password wrong":   {func(*TPMKeyFile) {}, "guess", ErrHierarchyPassword},
		"another's private part":   {func(f *TPMKeyFile) { f.Private = other.File().Private }, "owner's", tpm2.TPMRCIntegrity},
		"another's public part":    {func(f *TPMKeyFile) { f.Public = other.File().Public }, "owner's", tpm2.TPMRCIntegrity},
		"a bit changed":            {func(f *TPMKeyFile) { f.Private[40] ^= 1 }, "owner's", tpm2.TPMRCIntegrity},
		"parent not there":         {func(f *TPMKeyFile) { f.Parent = 0x81000001 }, "owner's", tpm2.TPMRCHandle},
		"strange parent":           {func(f *TPMKeyFile) { f.Parent = 0x80000000 }, "owner's", ErrTPMKeyFile},
	} {
		file := k.File()
		tt.change(file)
		got, err := LoadTPMKey(t.Context(), tpm, file, &TPMKeyLoadOptions{OwnerPassword: hidden([]byte(tt.owner))})
		if !errors.Is(err, tt.want) || got != nil || !strings.HasPrefix(err.Error(), "attest: TPM key") {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
	if _, err := LoadTPMKey(t.Context(), tpm, k.File(), &TPMKeyLoadOptions{OwnerPassword: hidden([]byte("owner's"))}); err != nil {
		t.Errorf("the file as it was: %v", err)
	}
	checkNothingLoaded(t, tpm)
	if _, err := LoadTPMKey(t.Context(), tpmsim.Swtpm(t, bare()), k.File(), nil); !errors.Is(err, tpm2.TPMRCIntegrity) {
		t.Errorf("on another TPM: got %v, want TPM_RC_INTEGRITY", err)
	}
}

// For every n, the nth command of making, loading and using a key with a password and
// a policy fails in each way there is, and nothing stays in the TPM.
func TestTPMKeyFileFlushesWhateverFails(t *testing.T) {
	tpm := newTPM(t)
	setHierarchyPassword(t, tpm, tpm2.TPMRHOwner, nil, []byte("owner's"))
	sum := sha256.Sum256(nil)
	life := func(tpm transport.TPM) error {
		k, err := CreateTPMKey(t.Context(), tpm, KeyECDSAP256, &TPMKeyOptions{
			OwnerPassword: hidden([]byte("owner's")), Password: hidden([]byte("secret")), PCRs: pcr23,
		})
		if err != nil {
			return err
		}
		again, err := LoadTPMKey(t.Context(), tpm, k.File(), &TPMKeyLoadOptions{OwnerPassword: hidden([]byte("owner's")), Password: hidden([]byte("secret"))})
		if err != nil {
			return errors.Join(err, k.Close())
		}
		_, err = again.Sign(nil, sum[:], crypto.SHA256)
		return errors.Join(err, again.Close(), k.Close())
	}
	faulty := tpmsim.Faulty(tpm, nil)
	if err := life(ShareTPM(faulty)); err != nil {
		t.Fatal(err)
	}
	commands := faulty.Commands()
	for n := 1; n <= len(commands); n++ {
		for name, faults := range map[string]*tpmsim.Faults{
			"not sent": tpmsim.FailAt(n, nil), "response lost": tpmsim.LoseAt(n),
			"refused": tpmsim.AnswerAt(n, tpm2.TPMRCFailure), "connection lost": tpmsim.DropAt(n),
		} {
			f := tpmsim.Faulty(tpm, faults)
			shared := ShareTPM(f)
			err := life(shared)
			// Contexts only save time: without one the key is held, or made again.
			optional := commands[n-1] == tpm2.TPMCCContextSave || commands[n-1] == tpm2.TPMCCContextLoad
			if err == nil && !optional {
				t.Errorf("command %d %s, %v: no error", n, name, commands[n-1])
			}
			f.SetFaults(nil)
			if err := shared.flushLeft(t.Context()); err != nil {
				t.Errorf("command %d %s, then flushing again: %v", n, name, err)
			}
			if left := loadedHandles(t, tpm); len(left) != 0 {
				t.Fatalf("command %d %s, %v: still loaded: %x", n, name, commands[n-1], left)
			}
		}
	}
}
