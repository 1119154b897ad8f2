package tpm

import (
	"context"
	"errors"
	"fmt"

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
// the TPM encrypted to a session that is salted to the EK. It is in no error. A TPM
// that has to test an algorithm before its first use may ask to try again
// (TPM_RC_RETRY; swtpm does).
func activate(ctx context.Context, h *tpmop.Handles, ak, ek *tpmop.LoadedKey, endorsementPassword []byte, c *attest.Credential) (secret []byte, err error) {
	const tries = 3
	for range tries {
		if secret, err = activateOnce(ctx, h, ak, ek, endorsementPassword, c); !errors.Is(err, tpm2.TPMRCRetry) {
			break
		}
	}
	return secret, err
}

func activateOnce(ctx context.Context, h *tpmop.Handles, ak, ek *tpmop.LoadedKey, endorsementPassword []byte, c *attest.Credential) ([]byte, error) {
	how, err := tpmop.EKAuthorizationOf(ek.Public)
	if err != nil {
		return nil, err
	}
	useEK := tpm2.PasswordAuth(nil)
	if how != tpmop.EKByPassword {
		if useEK, err = h.EKPolicySession(ctx, ek, endorsementPassword, how); err != nil {
			return nil, err
		}
	}
	// The AK's empty password authorizes here: in the ADMIN role too, as adminWithPolicy
	// is clear.
	session, err := h.EKSession(ctx, ek, tpm2.AESEncryption(tpm2.TPMKeyBits(ek.Public.Symmetric.KeyBits), tpm2.EncryptOut))
	if err != nil {
		return nil, err
	}
	rsp, err := tpmop.Run(ctx, h.TPM, tpm2.ActivateCredential{
		ActivateHandle: tpm2.AuthHandle{Handle: ak.Handle, Name: tpm2.TPM2BName{Buffer: ak.Name}, Auth: session},
		KeyHandle:      tpm2.AuthHandle{Handle: ek.Handle, Name: tpm2.TPM2BName{Buffer: ek.Name}, Auth: useEK},
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
}

// isBadCredential: the response codes of a credential that does not fit, by Part 3,
// 12.5: TPM_RC_INTEGRITY where the HMAC does not hold, TPM_RC_ECC_POINT, TPM_RC_SIZE,
// TPM_RC_VALUE and TPM_RC_INSUFFICIENT where one of its parts is malformed. libtpms says
// TPM_RC_FAILURE where an RSA seed does not decrypt.
func isBadCredential(err error) bool {
	for _, code := range []tpm2.TPMRC{tpm2.TPMRCIntegrity, tpm2.TPMRCECCPoint, tpm2.TPMRCSize, tpm2.TPMRCValue,
		tpm2.TPMRCInsufficient, tpm2.TPMRCFailure} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}
