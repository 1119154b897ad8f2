package tpm

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// ekOrigins are the EKs of the simulator; swtpm has RSA-3072 as well.
func ekOrigins() map[string]EKOrigin {
	byPolicyB := EKHigh(2)
	byPolicyB.Template.ObjectAttributes.UserWithAuth = false
	byPolicyB384 := EKHigh(3)
	byPolicyB384.Template.ObjectAttributes.UserWithAuth = false
	return map[string]EKOrigin{
		"L-1 RSA-2048":      EKRSA2048(),
		"L-2 P-256":         EKP256(),
		"H-1 RSA-2048":      EKHigh(1),
		"H-2 P-256":         EKHigh(2),
		"H-3 P-384":         EKHigh(3),
		"P-256 by policy B": byPolicyB,
		"P-384 by policy B": byPolicyB384,
	}
}

// activateWith makes a credential and has the TPM open it; change may spoil it.
func activateWith(t testing.TB, tpm transport.TPM, origin EKOrigin, template *tpm2.TPMTPublic, password, secret []byte, change func(*attest.Credential)) ([]byte, error) {
	t.Helper()
	return activateFor(t, tpm, origin, AKSource{Template: template}, password, secret, change)
}

func activateFor(t testing.TB, tpm transport.TPM, origin EKOrigin, source AKSource, password, secret []byte, change func(*attest.Credential)) ([]byte, error) {
	t.Helper()
	return do(t, tpm, func(ctx context.Context, h *tpmop.Handles) ([]byte, error) {
		ak, err := loadAK(ctx, h, &source, nil, password)
		if err != nil {
			return nil, err
		}
		ek, err := loadEK(ctx, h, &origin, password)
		if err != nil {
			return nil, err
		}
		key, err := ek.Public.Key()
		if err != nil {
			return nil, err
		}
		c, err := makeCredential(rand.Reader, key, ak.Name, secret)
		if err != nil {
			return nil, err
		}
		if change != nil {
			change(c)
		}
		return activate(ctx, h, ak, ek, password, c)
	})
}

func TestActivateOnTheSimulator(t *testing.T) {
	testActivate(t, tpmlab.NewTPM(t), ekOrigins())
}

func TestActivateOnSwtpm(t *testing.T) {
	origins := ekOrigins()
	origins["H-6 RSA-3072"] = EKHigh(6)
	testActivate(t, tpmsim.Swtpm(t, tpmlab.Bare()), origins)
}

func testActivate(t *testing.T, tpm transport.TPM, origins map[string]EKOrigin) {
	secret := []byte("the secret of a credential: 32 B")
	for name, origin := range origins {
		for akName, template := range map[string]*tpm2.TPMTPublic{"RSA AK": AKTemplateRSA2048SHA256(), "P-256 AK": AKTemplateECDSAP256(), "P-384 AK": AKTemplateECDSAP384()} {
			got, err := activateWith(t, tpm, origin, template, nil, secret, nil)
			if err != nil || !bytes.Equal(got, secret) {
				t.Errorf("%s, %s: %q, %v", name, akName, got, err)
			}
		}
		for what, change := range map[string]func(*attest.Credential){
			"HMAC":     func(c *attest.Credential) { c.IDObject[3] ^= 1 },
			"identity": func(c *attest.Credential) { c.IDObject[len(c.IDObject)-1] ^= 1 },
			"seed":     func(c *attest.Credential) { c.EncryptedSecret[len(c.EncryptedSecret)-1] ^= 1 },
			"cut":      func(c *attest.Credential) { c.IDObject = c.IDObject[:len(c.IDObject)-1] },
			"seed cut": func(c *attest.Credential) { c.EncryptedSecret = c.EncryptedSecret[:len(c.EncryptedSecret)-1] },
		} {
			if _, err := activateWith(t, tpm, origin, AKTemplateECDSAP256(), nil, secret, change); !errors.Is(err, checkCredential) {
				t.Errorf("%s with another %s: %v", name, what, err)
			}
		}
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

// The endorsement password is proven by HMAC, or encrypted: it never goes over the wire in the clear.
func TestActivateWithEndorsementPassword(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	password := []byte("a password of the hierarchy")
	_, err := tpm2.HierarchyChangeAuth{AuthHandle: tpmop.WithPassword(tpm2.TPMRHEndorsement, nil, nil), NewAuth: tpm2.TPM2BAuth{Buffer: password}}.Execute(tpm)
	testkit.NoError(t, err)
	for name, origin := range ekOrigins() {
		wire := &recorded{TPM: tpm}
		got, err := activateWith(t, wire, origin, AKTemplateECDSAP256(), password, []byte("the secret"), nil)
		if err != nil || string(got) != "the secret" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if bytes.Contains(wire.sent.Bytes(), password) || bytes.Contains(wire.sent.Bytes(), []byte("the secret")) {
			t.Errorf("%s: a secret went over the wire in the clear", name)
		}
		if _, err := activateWith(t, tpm, origin, AKTemplateECDSAP256(), []byte("wrong"), nil, nil); !errors.Is(err, ErrHierarchyPassword) {
			t.Errorf("%s, wrong password: %v", name, err)
		}
	}
	// Persistent keys need no password to be made: the EK's policy asks for it.
	_, err = do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (any, error) {
		ak, err := loadAK(ctx, h, &AKSource{Template: AKTemplateECDSAP256()}, nil, password)
		if err != nil {
			return nil, err
		}
		l2 := EKP256()
		ek, err := loadEK(ctx, h, &l2, password)
		if err != nil {
			return nil, err
		}
		return activate(ctx, h, ak, ek, []byte("wrong"), &attest.Credential{IDObject: []byte{0}, EncryptedSecret: []byte{0}})
	})
	if !errors.Is(err, ErrHierarchyPassword) {
		t.Errorf("a wrong password for the policy: %v", err)
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

// TestActivateWithoutThePassword: who does not know the password has an attestation key of another
// hierarchy, or one that he made persistent before. A persistent EK of the low range opens no
// challenge for him, and one of the high range does: it has a password of its own, which is empty.
func TestActivateWithoutThePassword(t *testing.T) {
	const ekHandle, akHandle = 0x81010001, 0x81020000
	for name, row := range map[string]struct {
		origin EKOrigin
		ak     tpm2.TPMHandle // its hierarchy
		opens  bool
	}{
		"low RSA-2048": {EKRSA2048(), tpm2.TPMRHOwner, false}, "low P-256": {EKP256(), tpm2.TPMRHEndorsement, false},
		"high P-256": {EKHigh(2), tpm2.TPMRHOwner, true}, "high P-384": {EKHigh(3), tpm2.TPMRHEndorsement, true},
	} {
		t.Run(name, func(t *testing.T) {
			tpm := tpmsim.Swtpm(t, tpmlab.Bare())
			tpmlab.Persist(t, tpm, tpm2.TPMRHEndorsement, row.origin.Template, ekHandle)
			tpmlab.Persist(t, tpm, row.ak, AKTemplateECDSAP256(), akHandle)
			if _, err := EndorsementPassword(t.Context(), tpm, filepath.Join(mounttest.Disk(t), "password")); err != nil {
				t.Fatal(err)
			}
			got, err := activateFor(t, tpm, EKOrigin{Handle: ekHandle}, AKSource{Handle: akHandle}, nil, []byte("the secret"), nil)
			if row.opens && (err != nil || string(got) != "the secret") || !row.opens && !errors.Is(err, ErrHierarchyPassword) {
				t.Errorf("got %q, %v; it opens: want %t", got, err, row.opens)
			}
		})
	}
}

// recorded keeps everything that goes over the wire, in both directions.
type recorded struct {
	transport.TPM
	sent bytes.Buffer
}

func (r *recorded) Send(command []byte) ([]byte, error) {
	r.sent.Write(command)
	rsp, err := r.TPM.Send(command)
	r.sent.Write(rsp)
	return rsp, err
}

// The response with the secret is encrypted on the wire.
func TestActivateEncryptsTheSecret(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	secret := []byte("not to be seen on a wire, 32 B..")
	for name, origin := range ekOrigins() {
		wire := &recorded{TPM: tpm}
		if _, err := activateWith(t, wire, origin, AKTemplateECDSAP256(), nil, secret, nil); err != nil {
			t.Fatal(name, err)
		}
		if bytes.Contains(wire.sent.Bytes(), secret) {
			t.Errorf("%s: the secret went over the wire in the clear", name)
		}
	}
}

// A credential for another AK, or for another EK of the same TPM, does not open.
func TestActivateForOthers(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	open := func(madeFor, opener EKOrigin, akOfMaker *tpm2.TPMTPublic) error {
		_, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (any, error) {
			maker, err := loadEK(ctx, h, &madeFor, nil)
			if err != nil {
				return nil, err
			}
			named, err := loadAK(ctx, h, &AKSource{Template: akOfMaker}, nil, nil)
			if err != nil {
				return nil, err
			}
			key, err := maker.Public.Key()
			if err != nil {
				return nil, err
			}
			c, err := makeCredential(rand.Reader, key, named.Name, make([]byte, 32))
			if err != nil {
				return nil, err
			}
			if err := errors.Join(h.Flush(maker.Handle), h.Flush(named.Handle)); err != nil {
				return nil, err
			}
			ak, err := loadAK(ctx, h, &AKSource{Template: AKTemplateECDSAP256()}, nil, nil)
			if err != nil {
				return nil, err
			}
			ek, err := loadEK(ctx, h, &opener, nil)
			if err != nil {
				return nil, err
			}
			return activate(ctx, h, ak, ek, nil, c)
		})
		return err
	}
	testkit.NoError(t, open(EKP256(), EKP256(), AKTemplateECDSAP256()))
	if err := open(EKP256(), EKP256(), AKTemplateECDSAP384()); !errors.Is(err, checkCredential) {
		t.Errorf("another AK: %v", err)
	}
	if err := open(EKHigh(2), EKP256(), AKTemplateECDSAP256()); !errors.Is(err, checkCredential) {
		t.Errorf("another EK: %v", err)
	}
	if err := open(EKRSA2048(), EKP256(), AKTemplateECDSAP256()); !errors.Is(err, checkCredential) {
		t.Errorf("an EK of another kind: %v", err)
	}
}

// For every n, the nth command fails in each way there is: the error says so and has
// no secret in it, and nothing stays in the TPM, at the latest after the next use.
func TestActivateFlushesWhateverFails(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	secret := []byte("the secret of a credential: 32 B")
	spellings := []string{string(secret), fmt.Sprintf("%x", secret), fmt.Sprint(secret)}
	ways := map[string]func(n int) tpmsim.Faults{
		"not sent":        func(n int) tpmsim.Faults { return tpmsim.FailAt(n, nil) },
		"response lost":   tpmsim.LoseAt,
		"refused":         func(n int) tpmsim.Faults { return tpmsim.AnswerAt(n, tpm2.TPMRCLocality) },
		"connection lost": tpmsim.DropAt,
	}
	byPolicyB := ekOrigins()["P-256 by policy B"]
	for _, origin := range []EKOrigin{EKP256(), EKHigh(2), byPolicyB} {
		origin.TemplateIndex, origin.NonceIndex = 0, 0
		faulty := tpmsim.Faulty(tpm, nil)
		if _, err := activateWith(t, faulty, origin, AKTemplateECDSAP256(), nil, secret, nil); err != nil {
			t.Fatal(err)
		}
		for n, code := range faulty.Commands() {
			for way, faults := range ways {
				faulty.SetFaults(faults(n + 1))
				shared := tpmop.Share(faulty)
				_, err := activateWith(t, shared, origin, AKTemplateECDSAP256(), nil, secret, nil)
				if err == nil {
					t.Errorf("command %d (0x%x) %s: no error", n+1, code, way)
					continue
				}
				for _, s := range spellings {
					if strings.Contains(err.Error(), s) {
						t.Errorf("command %d %s: the secret is in the error", n+1, way)
					}
				}
				if code == tpm2.TPMCCFlushContext || faulty.Dropped() {
					faulty.SetFaults(nil)
					if err := shared.FlushLeft(t.Context()); err != nil {
						t.Errorf("command %d %s, then flushing again: %v", n+1, way, err)
					}
				}
				if left := tpmlab.LoadedHandles(t, tpm); len(left) != 0 {
					t.Fatalf("command %d (0x%x) %s: still loaded: %x", n+1, code, way, left)
				}
			}
		}
	}
}
