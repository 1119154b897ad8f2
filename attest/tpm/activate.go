package tpm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/tpmop"
)

// ErrCredential says that the TPM does not open a credential: it was made for another
// EK or another AK, or was changed on its way. The error that wraps it has the TPM's
// response code.
var ErrCredential = errors.New("the TPM does not open the credential")

// activate is TPM2_ActivateCredential (TPM 2.0 Library, Part 3, 12.5): it returns the
// secret that the credential holds for this very ek and ak. The secret comes out of
// the TPM encrypted to a session that is salted to the EK. It is in no error.
func activate(ctx context.Context, h *tpmop.Handles, ak, ek *tpmop.LoadedKey, endorsementPassword []byte, c *attest.Credential) ([]byte, error) {
	return tpmop.Retry(func() ([]byte, error) {
		useEK, err := h.AuthorizeEK(ctx, ek, endorsementPassword)
		if err != nil {
			return nil, err
		}
		// The AK's empty password authorizes here: in the ADMIN role too, as adminWithPolicy
		// is clear.
		session, err := h.EKSession(ctx, ek, tpm2.AESEncryption(tpm2.TPMKeyBits(ek.Public.Symmetric.KeyBits), tpm2.EncryptOut))
		if err != nil {
			return nil, err
		}
		rsp, err := tpmop.Run(ctx, h.TPM, tpm2.ActivateCredential{
			ActivateHandle: tpmop.WithSession(ak.Handle, ak.Name, session),
			KeyHandle:      useEK,
			CredentialBlob: tpm2.TPM2BIDObject{Buffer: c.IDObject},
			Secret:         tpm2.TPM2BEncryptedSecret{Buffer: c.EncryptedSecret},
		}, "TPM2_ActivateCredential of 0x%08x with the EK 0x%08x", uint32(ak.Handle), uint32(ek.Handle))
		if err != nil {
			if isBadCredential(err) {
				err = fmt.Errorf("%w: %w", ErrCredential, err)
			}
			return nil, err
		}
		return rsp.CertInfo.Buffer, nil
	})
}

// isBadCredential: the response codes of a credential that does not fit, by Part 3,
// 12.5: TPM_RC_INTEGRITY where the HMAC does not hold, TPM_RC_ECC_POINT, TPM_RC_SIZE,
// TPM_RC_VALUE and TPM_RC_INSUFFICIENT where one of its parts is malformed. libtpms says
// TPM_RC_FAILURE where an RSA seed does not decrypt.
func isBadCredential(err error) bool {
	codes := []tpm2.TPMRC{tpm2.TPMRCIntegrity, tpm2.TPMRCECCPoint, tpm2.TPMRCSize, tpm2.TPMRCValue, tpm2.TPMRCInsufficient, tpm2.TPMRCFailure}
	return slices.ContainsFunc(codes, func(code tpm2.TPMRC) bool { return errors.Is(err, code) })
}
