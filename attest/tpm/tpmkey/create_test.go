package tpmkey

import (
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

var pcr23 = []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0, 0, 0x80}}}

// throughFile is what brings a key back in another process.
func throughFile(t testing.TB, k *Key) *File {
	t.Helper()
	b, err := k.File().Marshal()
	testkit.NoError(t, err)
	file, err := ParseFile(b)
	testkit.NoError(t, err)
	return file
}

func TestTPMKeyPassword(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	k, err := Create(t.Context(), tpm, ECDSAP256, Options{Password: hidden([]byte("secret\x00"))})
	testkit.NoError(t, err)
	sum := sha256.Sum256(nil)
	for password, want := range map[string]error{
		"secret": nil, "secret\x00\x00": nil, "": ErrPassword, "Secret": ErrPassword, "secre": ErrPassword,
	} {
		t.Run(password, func(t *testing.T) {
			k, err := Load(t.Context(), tpm, throughFile(t, k), LoadOptions{Password: hidden([]byte(password))})
			testkit.NoError(t, err)
			sig, err := k.Sign(nil, sum[:], crypto.SHA256)
			if !errors.Is(err, want) || (err == nil) != (sig != nil) {
				t.Errorf("%q: got %v, want %v", password, err, want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("%q: the error has the password: %v", password, err)
			}
			tpmlab.CheckNothingLoaded(t, tpm)
		})
	}
	for name, password := range map[string]string{"too long": strings.Repeat("p", 33), "zero inside": "se\x00cret"} {
		if k, err := Create(t.Context(), tpm, ECDSAP256, Options{Password: hidden([]byte(password))}); err == nil || k != nil {
			t.Errorf("%s: got %v, %v", name, k, err)
		}
	}
	if _, err := Load(t.Context(), tpm, k.File(), LoadOptions{Password: hidden([]byte("se\x00cret"))}); !errors.Is(err, tpmop.ErrNullInPassword) {
		t.Errorf("zero inside: got %v", err)
	}
	longest, err := Create(t.Context(), tpm, ECDSAP256, Options{Password: hidden(bytes.Repeat([]byte{'p'}, 32))})
	testkit.NoError(t, err)
	tpmlab.CheckSignature(t, longest, crypto.SHA256)
}

// The policy's password alone, or the right PCRs with a wrong password, are no use.
func TestTPMKeyPCRsAndPassword(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	k, err := Create(t.Context(), tpm, ECDSAP256, Options{PCRs: pcr23, Password: hidden([]byte("secret"))})
	testkit.NoError(t, err)
	sum := sha256.Sum256(nil)
	wrong, err := Load(t.Context(), tpm, k.File(), LoadOptions{Password: hidden([]byte("guess"))})
	testkit.NoError(t, err)
	if _, err := wrong.Sign(nil, sum[:], crypto.SHA256); !errors.Is(err, ErrPassword) {
		t.Errorf("wrong password: got %v, want ErrKeyPassword", err)
	}
	// Without the policy the TPM itself refuses.
	_, err = do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (any, error) {
		loaded, err := k.Load(ctx, h)
		if err != nil {
			return nil, err
		}
		return tpm2.Sign{
			KeyHandle:  tpmop.WithPassword(loaded.Handle, loaded.Name, []byte("secret")),
			Digest:     tpm2.TPM2BDigest{Buffer: sum[:]},
			InScheme:   tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgECDSA, Details: tpm2.NewTPMUSigScheme(tpm2.TPMAlgECDSA, &tpm2.TPMSSchemeHash{HashAlg: tpm2.TPMAlgSHA256})},
			Validation: tpm2.TPMTTKHashCheck{Tag: tpm2.TPMSTHashCheck, Hierarchy: tpm2.TPMRHNull},
		}.Execute(h.TPM)
	})
	if !errors.Is(err, tpm2.TPMRCAuthUnavailable) {
		t.Errorf("password without policy: got %v, want TPM_RC_AUTH_UNAVAILABLE", err)
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

// A policy that does not ask for the password does without it, also where there is one.
func TestTPMKeyPCRsAndNeedlessPassword(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	k, err := Create(t.Context(), tpm, ECDSAP256, Options{PCRs: pcr23})
	testkit.NoError(t, err)
	for name, password := range map[string]string{"none": "", "a guess": "guess"} {
		t.Run(name, func(t *testing.T) {
			k, err := Load(t.Context(), tpm, k.File(), LoadOptions{Password: hidden([]byte(password))})
			testkit.NoError(t, err)
			tpmlab.CheckSignature(t, k, crypto.SHA256)
		})
	}
}

// A file is of use to its own TPM alone, and each changed bit of it is noticed.
func TestLoadTPMKeyRefuses(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	k := mustTPMKey(t, tpm, ECDSAP256)
	other := mustTPMKey(t, tpm, ECDSAP256)
	tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHOwner, nil, []byte("owner's"))
	for name, tt := range map[string]struct {
		change func(*File)
		owner  string
		want   error
	}{
		"owner's password missing": {func(*File) {}, "", tpmop.ErrHierarchyPassword},
		"owner's password wrong":   {func(*File) {}, "guess", tpmop.ErrHierarchyPassword},
		"another's private part":   {func(f *File) { f.Private = other.File().Private }, "owner's", tpm2.TPMRCIntegrity},
		"another's public part":    {func(f *File) { f.Public = other.File().Public }, "owner's", tpm2.TPMRCIntegrity},
		"a bit changed":            {func(f *File) { f.Private[40] ^= 1 }, "owner's", tpm2.TPMRCIntegrity},
		"parent not there":         {func(f *File) { f.Parent = 0x81000001 }, "owner's", tpm2.TPMRCHandle},
		"strange parent":           {func(f *File) { f.Parent = 0x80000000 }, "owner's", checkFile},
	} {
		t.Run(name, func(t *testing.T) {
			file := k.File()
			tt.change(file)
			got, err := Load(t.Context(), tpm, file, LoadOptions{OwnerPassword: hidden([]byte(tt.owner))})
			if !errors.Is(err, tt.want) || got != nil || !strings.HasPrefix(err.Error(), "tpmkey: ") {
				t.Errorf("%s: got %v, want %v", name, err, tt.want)
			}
		})
	}
	if _, err := Load(t.Context(), tpm, k.File(), LoadOptions{OwnerPassword: hidden([]byte("owner's"))}); err != nil {
		t.Errorf("the file as it was: %v", err)
	}
	tpmlab.CheckNothingLoaded(t, tpm)
	if _, err := Load(t.Context(), tpmsim.Swtpm(t, tpmlab.Bare()), k.File(), LoadOptions{}); !errors.Is(err, tpm2.TPMRCIntegrity) {
		t.Errorf("on another TPM: got %v, want TPM_RC_INTEGRITY", err)
	}
}

// passwordLife makes, loads and uses a key with a password and a policy, on a TPM whose owner has
// a password.
func passwordLife(t *testing.T, tpm transport.TPM) error {
	t.Helper()
	owner, secret, sum := hidden([]byte("owner's")), hidden([]byte("secret")), sha256.Sum256(nil)
	tpm = Share(tpm)
	k, err := Create(t.Context(), tpm, ECDSAP256, Options{OwnerPassword: owner, Password: secret, PCRs: pcr23})
	if err != nil {
		return err
	}
	again, err := Load(t.Context(), tpm, k.File(), LoadOptions{OwnerPassword: owner, Password: secret})
	if err != nil {
		return errors.Join(err, k.Close())
	}
	_, err = again.Sign(nil, sum[:], crypto.SHA256)
	return errors.Join(err, again.Close(), k.Close())
}

// A TPM that is busy at any of the commands of a key's life is waited for.
func TestTPMKeyOfABusyTPM(t *testing.T) {
	for _, tpm := range []*tpmsim.TPM{tpmlab.NewTPM(t), tpmsim.Swtpm(t, tpmlab.Bare())} {
		tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHOwner, nil, []byte("owner's"))
		tpmlab.WarnEach(t, tpm, passwordLife)
	}
}

// For every n, the nth command of making, loading and using a key with a password and
// a policy fails in each way there is, and nothing stays in the TPM.
func TestTPMKeyFileFlushesWhateverFails(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHOwner, nil, []byte("owner's"))
	faulty := tpmsim.Faulty(tpm, nil)
	testkit.NoError(t, passwordLife(t, faulty))
	commands := faulty.Commands()
	for n := 1; n <= len(commands); n++ {
		for name, faults := range map[string]tpmsim.Faults{
			"not sent": tpmsim.FailAt(n, nil), "response lost": tpmsim.LoseAt(n),
			"refused": tpmsim.AnswerAt(n, tpm2.TPMRCFailure), "connection lost": tpmsim.DropAt(n),
		} {
			f := tpmsim.Faulty(tpm, faults)
			shared := Share(f)
			err := passwordLife(t, shared)
			// Contexts only save time: without one the key is held, or made again.
			optional := commands[n-1] == tpm2.TPMCCContextSave || commands[n-1] == tpm2.TPMCCContextLoad
			if err == nil && !optional {
				t.Errorf("command %d %s, %v: no error", n, name, commands[n-1])
			}
			f.SetFaults(nil)
			if err := tpmop.Share(shared).FlushLeft(t.Context()); err != nil {
				t.Errorf("command %d %s, then flushing again: %v", n, name, err)
			}
			if left := tpmlab.LoadedHandles(t, tpm); len(left) != 0 {
				t.Fatalf("command %d %s, %v: still loaded: %x", n, name, commands[n-1], left)
			}
		}
	}
}

// The passwords of owner and key are given where the endorsement hierarchy is switched off, or has
// a password: then in sessions that are salted with another key.
func TestPasswordsWithoutTheEndorsementHierarchy(t *testing.T) {
	for name, open := range map[string]func() *tpmsim.TPM{
		"simulator": func() *tpmsim.TPM { return tpmlab.NewTPM(t) }, "swtpm": func() *tpmsim.TPM { return tpmsim.Swtpm(t, tpmlab.Bare()) },
	} {
		t.Run(name, func(t *testing.T) {
			tpm := open()
			owner := hidden([]byte("owner's"))
			const persistent = 0x81010002
			tpmlab.Persist(t, tpm, tpm2.TPMRHEndorsement, tpmop.EKTemplateECC(tpm2.TPMECCNistP256, tpmop.EKLow), persistent)
			tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHOwner, nil, owner.Reveal())
			tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHEndorsement, nil, []byte("theirs"))
			if err := passwordLife(t, tpm); err != nil {
				t.Errorf("a password: %v", err)
			}
			tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHEndorsement, []byte("theirs"), nil)
			tpmlab.SwitchOff(t, tpm, tpm2.TPMRHEndorsement)
			if err := passwordLife(t, tpm); err != nil {
				t.Errorf("switched off: %v", err)
			}
			_, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (*tpmop.LoadedKey, error) {
				return tpmop.ReadPublic(ctx, h, persistent)
			})
			if !errors.Is(err, tpm2.TPMRCHandle) || !strings.Contains(err.Error(), "its hierarchy is switched off") {
				t.Errorf("a persistent key of it: %v", err)
			}
			if err := tpm.Reset(); err != nil { // it is on again
				t.Fatal(err)
			}
			tpmlab.SwitchOff(t, tpm, tpm2.TPMRHOwner)
			_, err = Create(t.Context(), tpm, ECDSAP256, Options{OwnerPassword: owner})
			if !errors.Is(err, tpm2.TPMRCHierarchy) || !strings.Contains(err.Error(), "the owner hierarchy is switched off") || errors.Is(err, refusal.ErrRetry) {
				t.Errorf("the owner's: %v", err)
			}
			tpmlab.CheckNothingLoaded(t, tpm)
		})
	}
}

// A TPM without P-256 salts its sessions with RSA. A malformed response is final.
func TestPasswordsWithoutP256(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	tpmlab.Persist(t, tpm, tpm2.TPMRHOwner, &tpm2.RSASRKTemplate, 0x81000001)
	for rc, made := range map[tpm2.TPMRC]int{tpm2.TPMRCCurve | 0x2c0: 3, tpm2.TPMRCValue | 0x2c0: 3, tpm2.TPMRCFailure: 1, tpm2.TPMRCObjectMemory: 1} {
		counted := tpmsim.Faulty(&withoutP256{tpm, rc}, nil)
		k, err := Create(t.Context(), counted, RSA2048, Options{Parent: 0x81000001, Password: hidden([]byte("secret"))})
		if (err == nil) != (made == 3) || tpmlab.Count(counted, tpm2.TPMCCCreatePrimary) != made {
			t.Fatalf("%v: %v after %v", rc, err, counted.Commands())
		}
		if err == nil {
			tpmlab.CheckSignature(t, k, crypto.SHA256)
			err = k.Close()
		}
		if made == 3 && err != nil {
			t.Error(err)
		}
	}
	_, err := Create(t.Context(), &withoutP256{tpm, tpm2.TPMRCCurve | 0x2c0}, RSA2048, Options{})
	if !errors.Is(err, tpm2.TPMRCCurve) || !strings.Contains(err.Error(), "persistent Parent") {
		t.Errorf("below no key that it has: %v", err)
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

// withoutP256 is a TPM that makes no primary key on P-256, and answers so.
type withoutP256 struct {
	transport.TPM
	rc tpm2.TPMRC
}

func (w *withoutP256) Send(command []byte) ([]byte, error) {
	p256 := []byte{0, byte(tpm2.TPMECCNistP256), 0, byte(tpm2.TPMAlgNull)}
	if tpm2.TPMCC(binary.BigEndian.Uint32(command[6:])) == tpm2.TPMCCCreatePrimary && bytes.Contains(command, p256) {
		return binary.BigEndian.AppendUint32([]byte{0x80, 0x01, 0, 0, 0, 10}, uint32(w.rc)), nil
	}
	return w.TPM.Send(command)
}

// A password that the key's policy does not ask for is not used.
func TestPasswordThatIsNotAskedFor(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	made, err := Create(t.Context(), tpm, ECDSAP256, Options{PCRs: pcr23})
	testkit.NoError(t, err)
	k, err := Load(t.Context(), tpm, made.File(), LoadOptions{Password: hidden([]byte("of another key"))})
	testkit.NoError(t, err)
	if _, err := k.Sign(nil, make([]byte, 32), crypto.SHA256); err != nil {
		t.Errorf("got %v", err)
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}
