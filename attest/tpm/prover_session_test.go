package tpm

import (
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// tapped is a TPM whose bus is recorded.
type tapped struct {
	transport.TPM
	heard bytes.Buffer
}

func (b *tapped) Send(command []byte) ([]byte, error) {
	b.heard.Write(command)
	rsp, err := b.TPM.Send(command)
	b.heard.Write(rsp)
	return rsp, err
}

func (b *tapped) wantUnheard(t *testing.T, what string, secret []byte) {
	t.Helper()
	if b.heard.Len() == 0 || bytes.Contains(b.heard.Bytes(), secret) {
		t.Errorf("%s was heard on the bus (%d bytes)", what, b.heard.Len())
	}
}

// Every secret that this package gives a TPM, and a listener who hears none.
func TestSecretsAreNotHeard(t *testing.T) {
	for name, tpm := range map[string]*tpmsim.TPM{"simulator": tpmlab.NewTPM(t), "swtpm": tpmsim.Swtpm(t, tpmlab.Bare())} {
		t.Run(name, func(t *testing.T) {
			owner, secret := []byte("the owner's password"), []byte("the key's password")
			tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHOwner, nil, owner)
			bus := &tapped{TPM: tpm}
			// Without a password the EK is the session key, with one the null hierarchy's.
			for _, path := range []string{"", filepath.Join(mounttest.Disk(t), "endorsement")} {
				endorsement := []byte(nil)
				if path != "" {
					made, err := EndorsementPassword(t.Context(), bus, path)
					testkit.NoError(t, err)
					endorsement = made.Reveal()
				}
				speakSecrets(t, bus, owner, endorsement, secret)
				bus.wantUnheard(t, "the owner's password", owner)
				bus.wantUnheard(t, "the key's password", secret)
				if endorsement != nil {
					bus.wantUnheard(t, "the endorsement password", endorsement)
				}
			}
			tpmlab.CheckNothingLoaded(t, tpm)
		})
	}
}

// speakSecrets makes and uses keys, a software key among them, whose private part is
// a secret too.
func speakSecrets(t *testing.T, bus *tapped, owner, endorsement, secret []byte) {
	t.Helper()
	for _, pcrs := range [][]statement.PCRSelection{nil, pcr23} {
		k, err := tpmkey.Create(t.Context(), bus, tpmkey.ECDSAP256, tpmkey.Options{OwnerPassword: hidden(owner), Password: hidden(secret), PCRs: pcrs})
		testkit.NoError(t, err)
		k, err = tpmkey.Load(t.Context(), bus, k.File(), tpmkey.LoadOptions{OwnerPassword: hidden(owner), Password: hidden(secret)})
		testkit.NoError(t, err)
		tpmlab.CheckSignature(t, k, crypto.SHA256)
		certifyUnder(t, bus, k, endorsement)
	}
	if err := tpmkey.WriteNVCertificate(t.Context(), bus, ownIndex, tpmlab.CertificateOf(t, 10), tpmkey.NVCertificateOptions{OwnerPassword: hidden(owner)}); err != nil {
		t.Error(err)
	}
	ec, rsaKey := tpmlab.NewECDSA(t, p256), tpmlab.RSA2048()
	certifyUnder(t, bus, mustSoftwareKey(t, ec), endorsement)
	certifyUnder(t, bus, mustSoftwareKey(t, rsaKey), endorsement)
	scalar, err := ec.Bytes()
	testkit.NoError(t, err)
	bus.wantUnheard(t, "an ECDSA private key", scalar)
	bus.wantUnheard(t, "an RSA prime", rsaKey.Primes[0].Bytes())
}

func certifyUnder(t *testing.T, tpm transport.TPM, key tpmkey.Certifiable, endorsement []byte) {
	t.Helper()
	_, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (*statement.CertifyEvidence, error) {
		ak, err := loadAK(ctx, h, &AKSource{Template: AKTemplateECDSAP256()}, nil, endorsement)
		if err != nil {
			return nil, err
		}
		return certify(ctx, h, ak, key, []byte{1})
	})
	if err != nil {
		t.Error(err)
	}
}

// Which key a session is salted with, and that it is made once for all sessions.
func TestSessionKey(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	faulty := tpmsim.Faulty(tpm, nil)
	shared := tpmop.Share(faulty)
	key := mustSoftwareKey(t, tpmlab.NewECDSA(t, p256))
	certifyUnder(t, shared, key, nil)
	ek, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (*tpmop.LoadedKey, error) {
		return tpmop.CreatePrimary(ctx, h, tpm2.TPMRHEndorsement, nil, tpm2.Marshal(tpmop.EKTemplateECC(tpm2.TPMECCNistP256, tpmop.EKLow)))
	})
	testkit.NoError(t, err)
	if !bytes.Equal(shared.SessionKey.Public.Name(), ek.Name) {
		t.Error("the session key is not the EK")
	}

	faulty.SetFaults(nil)
	certifyUnder(t, shared, key, nil)
	if n := tpmlab.Count(faulty, tpm2.TPMCCCreatePrimary); n != 1 {
		t.Errorf("%d primary keys were made, want one, the AK: the session key was there", n)
	}
	if err := tpm.Reset(); err != nil { // no saved context works any more
		t.Fatal(err)
	}
	certifyUnder(t, shared, key, nil)
	tpmlab.CheckNothingLoaded(t, tpm)

	tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHEndorsement, nil, []byte("endorsement"))
	other := tpmop.Share(tpm)
	certifyUnder(t, other, key, []byte("endorsement"))
	if bytes.Equal(other.SessionKey.Public.Name(), ek.Name) || !other.SessionKey.Public.Attributes.Has(statement.AttributeRestricted|statement.AttributeDecrypt|statement.AttributeFixedTPM) {
		t.Errorf("the session key of a closed hierarchy: %v", other.SessionKey.Public.Attributes)
	}
}

// Where contexts cannot be saved the session key is made each time.
func TestSessionKeyWithoutContexts(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	faulty := tpmsim.Faulty(tpm, tpmsim.FailEvery(tpm2.TPMCCContextSave, tpm2.TPMRCCommandCode))
	shared := tpmop.Share(faulty)
	for range 2 {
		certifyUnder(t, shared, mustSoftwareKey(t, tpmlab.NewECDSA(t, p256)), nil)
	}
	if n := tpmlab.Count(faulty, tpm2.TPMCCCreatePrimary); n != 4 || shared.SessionKey != nil {
		t.Errorf("%d primary keys, want the AK and the session key, twice", n)
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

// The answer to TPM2_StartAuthSession is lost: the session is found and flushed, and
// another program's session is not.
func TestLostSessionIsFlushed(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	theirs, closeTheirs, err := tpm2.HMACSession(tpm, tpm2.TPMAlgSHA256, 16)
	testkit.NoError(t, err)
	faulty := tpmsim.Faulty(tpm, tpmsim.Every(tpm2.TPMCCStartAuthSession, tpmsim.Fault{Err: tpmsim.ErrInjected, Late: true}))
	if _, err := certifyWith(t, faulty, AKSource{Template: AKTemplateECDSAP256()}, mustSoftwareKey(t, tpmlab.NewECDSA(t, p256)), []byte{1}); !errors.Is(err, tpmsim.ErrInjected) {
		t.Errorf("got %v, want ErrInjected", err)
	}
	if left := tpmlab.LoadedHandles(t, tpm); !slices.Equal(left, []tpm2.TPMHandle{theirs.Handle()}) {
		t.Errorf("loaded: %x, want the other program's session alone, %x", left, theirs.Handle())
	}
	testkit.NoError(t, closeTheirs())

	// Two new ones: their owners cannot be told.
	_, err = do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (any, error) {
		before, err := h.LoadedSessions(ctx)
		if err != nil {
			return nil, err
		}
		for range 2 {
			_, closeIt, err := tpm2.HMACSession(tpm, tpm2.TPMAlgSHA256, 16)
			if err != nil {
				return nil, err
			}
			defer closeIt()
		}
		h.KeepLostSession(before)
		if len(h.Open) != 0 {
			t.Errorf("kept %v", h.Open)
		}
		return nil, nil
	})
	if err != nil {
		t.Error(err)
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}

// An answer that does not come from who knows the session's secret is refused.
func TestSessionAnswerIsChecked(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	liar := &tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCLoadExternal, Alter: func(rsp []byte) { rsp[len(rsp)-1] ^= 1 }}
	_, err := certifyWith(t, liar, AKSource{Template: AKTemplateECDSAP256()}, mustSoftwareKey(t, tpmlab.NewECDSA(t, p256)), []byte{1})
	if err == nil {
		t.Error("a changed answer to TPM2_LoadExternal was taken")
	}
	tpmlab.CheckNothingLoaded(t, tpm)

	k, err := tpmkey.Create(t.Context(), &tpmlab.Altered{TPM: tpm, Code: tpm2.TPMCCSign, Alter: func(rsp []byte) { rsp[20] ^= 1 }}, tpmkey.ECDSAP256,
		tpmkey.Options{Password: hidden([]byte("secret"))})
	testkit.NoError(t, err)
	sum := sha256.Sum256(nil)
	if sig, err := k.Sign(nil, sum[:], crypto.SHA256); err == nil || sig != nil {
		t.Errorf("a changed answer to TPM2_Sign: got %x, %v", sig, err)
	}
	tpmlab.CheckNothingLoaded(t, tpm)
}
