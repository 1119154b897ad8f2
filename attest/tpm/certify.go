package tpm

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/tpmop"
)

// certify has ak certify key over qualifyingData, which is 1 to 64 bytes: always a
// labelled HMAC of this package, never bytes that a caller chose, or the AK would
// sign for other protocols. Whatever it loads is flushed before it returns, on
// every path. What the TPM answers is held against what was asked, so that a TPM
// at fault is noticed here and not by a verifier's refusal.
func certify(ctx context.Context, h *tpmop.Handles, ak *tpmop.LoadedKey, key tpmkey.Certifiable, qualifyingData []byte) (e *statement.CertifyEvidence, err error) {
	if len(qualifyingData) == 0 || len(qualifyingData) > 64 {
		return nil, fmt.Errorf("qualifying data of %d bytes, want 1 to 64", len(qualifyingData))
	}
	loaded, flush, err := key.Load(ctx, h)
	if err != nil {
		return nil, fmt.Errorf("key to certify: %w", err)
	}
	defer func() {
		if err = errors.Join(err, flush()); err != nil {
			e = nil
		}
	}()
	if !loaded.Public.SameKey(key.Public()) {
		return nil, fmt.Errorf("key to certify: the key at 0x%08x in the TPM is another one", uint32(loaded.Handle))
	}
	if bytes.Equal(loaded.Name, ak.Name) {
		return nil, errors.New("key to certify: it is the attestation key itself")
	}
	rsp, err := tpmop.Retry(func() (*tpm2.CertifyResponse, error) {
		// Without adminWithPolicy a key's password is enough for the ADMIN role, which
		// TPM2_Certify asks for, whatever policy its use has (Part 1, 19.2).
		object, err := h.Authorize(ctx, loaded.Handle, loaded.Name, loaded.Password.Reveal())
		if err != nil {
			return nil, err
		}
		return tpmop.Run(ctx, h.TPM, tpm2.Certify{
			ObjectHandle:   object,
			SignHandle:     tpmop.WithPassword(ak.Handle, ak.Name, nil),
			QualifyingData: tpm2.TPM2BData{Buffer: qualifyingData},
			InScheme:       tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgNull}, // the AK's own
		}, "TPM2_Certify of 0x%08x with 0x%08x", uint32(loaded.Handle), uint32(ak.Handle))
	})
	if err != nil {
		return nil, err
	}
	e = &statement.CertifyEvidence{Attest: rsp.CertifyInfo.Bytes(), Signature: tpm2.Marshal(rsp.Signature), Public: loaded.Public.Raw}
	if err := checkCertifyMade(e.Attest, loaded.Name, qualifyingData); err != nil {
		return nil, fmt.Errorf("the TPM's answer to TPM2_Certify: %w", err)
	}
	return e, nil
}

func checkCertifyMade(attest, name, qualifyingData []byte) error {
	a, err := parseMade(attest, qualifyingData)
	switch {
	case err != nil:
		return err
	case a.Certified == nil:
		return errors.New("it certifies no key")
	case !bytes.Equal(a.Certified.Name, name):
		return fmt.Errorf("it certifies the Name %x, not %x", a.Certified.Name, name)
	}
	return nil
}

// parseMade parses a statement that the TPM has just made.
func parseMade(attest, qualifyingData []byte) (*statement.Attestation, error) {
	a, err := statement.ParseAttestation(attest)
	if err == nil && !bytes.Equal(a.ExtraData, qualifyingData) {
		err = errors.New("its qualifying data is not what was given")
	}
	return a, err
}
