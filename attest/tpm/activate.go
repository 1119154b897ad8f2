package tpm

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
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
func activate(ctx context.Context, h *handles, ak, ek *loadedKey, endorsementPassword []byte, c *attest.Credential) (secret []byte, err error) {
	const tries = 3
	for range tries {
		if secret, err = activateOnce(ctx, h, ak, ek, endorsementPassword, c); !errors.Is(err, tpm2.TPMRCRetry) {
			break
		}
	}
	return secret, err
}

func activateOnce(ctx context.Context, h *handles, ak, ek *loadedKey, endorsementPassword []byte, c *attest.Credential) ([]byte, error) {
	how, err := ekAuthorizationOf(ek.public)
	if err != nil {
		return nil, err
	}
	useEK := tpm2.PasswordAuth(nil)
	if how != ekByPassword {
		if useEK, err = h.ekPolicySession(ctx, ek, endorsementPassword, how); err != nil {
			return nil, err
		}
	}
	// The AK's empty password authorizes here: in the ADMIN role too, as adminWithPolicy
	// is clear.
	session, err := h.ekSession(ctx, ek, tpm2.AESEncryption(tpm2.TPMKeyBits(ek.public.Symmetric.KeyBits), tpm2.EncryptOut))
	if err != nil {
		return nil, err
	}
	rsp, err := run(ctx, h.tpm, tpm2.ActivateCredential{
		ActivateHandle: tpm2.AuthHandle{Handle: ak.handle, Name: tpm2.TPM2BName{Buffer: ak.name}, Auth: session},
		KeyHandle:      tpm2.AuthHandle{Handle: ek.handle, Name: tpm2.TPM2BName{Buffer: ek.name}, Auth: useEK},
		CredentialBlob: tpm2.TPM2BIDObject{Buffer: c.IDObject},
		Secret:         tpm2.TPM2BEncryptedSecret{Buffer: c.EncryptedSecret},
	}, "TPM2_ActivateCredential of 0x%08x with the EK 0x%08x", uint32(ak.handle), uint32(ek.handle))
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

// ekSession starts an HMAC session for the next command alone, whose key only the TPM
// with this EK can know. Its hash is that of the EK's name algorithm.
func (h *handles) ekSession(ctx context.Context, ek *loadedKey, options ...tpm2.AuthOption) (tpm2.Session, error) {
	area, err := tpm2.Unmarshal[tpm2.TPMTPublic](ek.public.Raw)
	if err != nil {
		return nil, fmt.Errorf("public area of the EK: %w", err)
	}
	options = append(options, tpm2.Salted(ek.handle, *area))
	return h.startSession(ctx, false, func(...tpm2.AuthOption) tpm2.Session {
		return tpm2.HMAC(ek.public.NameAlg, sessionNonceSize, options...)
	})
}

// ekPolicySession is a policy session that satisfies the EK's policy. Its hash must be
// that of the EK's name algorithm.
func (h *handles) ekPolicySession(ctx context.Context, ek *loadedKey, endorsementPassword []byte, how ekAuthorization) (tpm2.Session, error) {
	return h.policySession(ctx, ek.public.NameAlg, nil, func(_ transport.TPM, session tpm2.TPMISHPolicy, nonce tpm2.TPM2BNonce) error {
		auth, err := h.endorsementAuth(ctx, ek, endorsementPassword)
		if err != nil {
			return err
		}
		_, err = run(ctx, h.tpm, tpm2.PolicySecret{AuthHandle: auth, PolicySession: session, NonceTPM: nonce},
			"TPM2_PolicySecret of the endorsement hierarchy")
		if err != nil {
			return explainPassword(err, tpm2.TPMRHEndorsement, endorsementPassword)
		}
		if how == ekByPolicyA {
			return nil
		}
		a, c := ekPolicyA256, ekPolicyC256
		if ek.public.NameAlg == tpm2.TPMAlgSHA384 {
			a, c = ekPolicyA384, ekPolicyC384
		}
		_, err = run(ctx, h.tpm, tpm2.PolicyOr{
			PolicySession: session,
			PHashList:     tpm2.TPMLDigest{Digests: []tpm2.TPM2BDigest{{Buffer: []byte(a)}, {Buffer: []byte(c)}}},
		}, "TPM2_PolicyOR of the EK's policy")
		return err
	})
}

// endorsementAuth proves the hierarchy's password in a session that is salted to the
// EK, where there is a password, so that nobody who listens can try passwords.
func (h *handles) endorsementAuth(ctx context.Context, ek *loadedKey, password []byte) (tpm2.AuthHandle, error) {
	if len(password) == 0 {
		return withPassword(tpm2.TPMRHEndorsement, nil, nil), nil
	}
	auth, err := authValue(password)
	if err != nil {
		return tpm2.AuthHandle{}, err
	}
	session, err := h.ekSession(ctx, ek, tpm2.Auth(auth))
	if err != nil {
		return tpm2.AuthHandle{}, err
	}
	return tpm2.AuthHandle{Handle: tpm2.TPMRHEndorsement, Name: tpm2.HandleName(tpm2.TPMRHEndorsement), Auth: session}, nil
}
