package tpm

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// wholeAnswer runs the commands of an answer: it opens a credential, certifies a key and quotes.
func wholeAnswer(t testing.TB, tpm transport.TPM, key tpmkey.Certifiable, endorsement []byte) error {
	t.Helper()
	_, err := do(t, tpm, func(ctx context.Context, h *tpmop.Handles) (struct{}, error) {
		origin := EKP256()
		origin.TemplateIndex, origin.NonceIndex = 0, 0
		ak, err := loadAK(ctx, h, &AKSource{Template: AKTemplateECDSAP256()}, nil, endorsement)
		if err != nil {
			return struct{}{}, err
		}
		ek, err := loadEK(ctx, h, &origin, endorsement)
		if err != nil {
			return struct{}{}, err
		}
		public, err := ek.Public.Key()
		if err != nil {
			return struct{}{}, err
		}
		c, err := makeCredential(rand.Reader, public, ak.Name, make([]byte, 32))
		if err != nil {
			return struct{}{}, err
		}
		s := &session{handles: h, ak: ak, ek: ek, prover: &Prover{}}
		s.prover.options.EK, s.prover.options.EndorsementPassword = &origin, hidden(endorsement)
		if _, err := s.Open(ctx, &attest.Credential{IDObject: c.IDObject, EncryptedSecret: c.EncryptedSecret}); err != nil {
			return struct{}{}, err
		}
		if _, err = certify(ctx, h, ak, key, []byte("qd")); err != nil {
			return struct{}{}, err
		}
		_, err = quote(ctx, h, ak, DefaultPCRs(), []byte("qd"))
		return struct{}{}, err
	})
	return err
}

// A TPM that is busy at any of the commands of an answer is waited for.
func TestAnswerOfABusyTPM(t *testing.T) {
	key := mustSoftwareKey(t, tpmlab.NewECDSA(t, p256))
	for name, tpm := range map[string]*tpmsim.TPM{"simulator": tpmlab.NewTPM(t), "swtpm": tpmsim.Swtpm(t, tpmlab.Bare())} {
		t.Run(name, func(t *testing.T) {
			endorsement := []byte("theirs")
			tpmlab.SetHierarchyPassword(t, tpm, tpm2.TPMRHEndorsement, nil, endorsement)
			tpmlab.WarnEach(t, tpm, func(t *testing.T, tpm transport.TPM) error { return wholeAnswer(t, tpm, key, endorsement) })
		})
	}
}

// A reset between two commands of an answer passes: the error says so, and the next answer is
// made, with the same key.
func TestAnswerDuringAReset(t *testing.T) {
	device := tpmlab.NewTPM(t)
	tpm := tpmsim.Faulty(device, nil)
	shared := tpmop.Share(tpm)
	key := mustTPMKey(t, shared, tpmkey.ECDSAP256)
	tpm.SetFaults(nil)
	testkit.NoError(t, wholeAnswer(t, shared, key, nil))
	whole := tpm.Commands()
	for n, code := range whole {
		tpm.SetFaults(tpmsim.At(n+1, tpmsim.Fault{Before: func() {
			if err := device.Reset(); err != nil {
				t.Error(err)
			}
		}}))
		if err := wholeAnswer(t, shared, key, nil); err != nil && !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("before command %d (0x%x) of %d: %v", n+1, code, len(whole), err)
		}
		tpm.SetFaults(nil)
		if err := wholeAnswer(t, shared, key, nil); err != nil {
			t.Errorf("after command %d: %v", n+1, err)
		}
		tpmlab.CheckNothingLoaded(t, device)
	}
}
