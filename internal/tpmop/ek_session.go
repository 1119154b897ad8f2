package tpmop

import (
	"context"
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
)

// EKSession starts an HMAC session for the next command alone, whose key only the TPM
// with this EK can know. Its hash is that of the EK's name algorithm.
func (h *Handles) EKSession(ctx context.Context, ek *LoadedKey, options ...tpm2.AuthOption) (tpm2.Session, error) {
	area, err := tpm2.Unmarshal[tpm2.TPMTPublic](ek.Public.Raw)
	if err != nil {
		return nil, fmt.Errorf("public area of the EK: %w", err)
	}
	options = append(options, tpm2.Salted(ek.Handle, *area))
	return h.startSession(ctx, false, func(...tpm2.AuthOption) tpm2.Session {
		return tpm2.HMAC(ek.Public.NameAlg, sessionNonceSize, options...)
	})
}

// AuthorizeEK satisfies what the EK asks for its use: the empty password, or the policy of
// its range. It looks at what the TPM says of the EK, not at where it came from.
func (h *Handles) AuthorizeEK(ctx context.Context, ek *LoadedKey, endorsementPassword []byte) (tpm2.AuthHandle, error) {
	if ek.Public.Attributes.Has(statement.AttributeUserWithAuth) {
		return WithPassword(ek.Handle, ek.Name, nil), nil
	}
	var or tpm2.TPMLDigest // what TPM2_PolicyOR takes after TPM2_PolicySecret
	switch string(ek.Public.AuthPolicy) {
	case EKPolicyA256, EKPolicyA384:
	case EKPolicyB256:
		or.Digests = []tpm2.TPM2BDigest{{Buffer: []byte(EKPolicyA256)}, {Buffer: []byte(EKPolicyC256)}}
	case EKPolicyB384:
		or.Digests = []tpm2.TPM2BDigest{{Buffer: []byte(EKPolicyA384)}, {Buffer: []byte(EKPolicyC384)}}
	default:
		return tpm2.AuthHandle{}, fmt.Errorf("endorsement key: it wants the policy %x, which is none of the EK Credential Profile", ek.Public.AuthPolicy)
	}
	session, err := h.PolicySession(ctx, ek.Public.NameAlg, nil, func(_ transport.TPM, session tpm2.TPMISHPolicy, nonce tpm2.TPM2BNonce) error {
		auth, err := h.EndorsementAuth(ctx, ek, endorsementPassword)
		if err != nil {
			return err
		}
		_, err = Run(ctx, h.TPM, tpm2.PolicySecret{AuthHandle: auth, PolicySession: session, NonceTPM: nonce},
			"TPM2_PolicySecret of the endorsement hierarchy")
		if err != nil || or.Digests == nil {
			return ExplainPassword(err, tpm2.TPMRHEndorsement, endorsementPassword)
		}
		_, err = Run(ctx, h.TPM, tpm2.PolicyOr{PolicySession: session, PHashList: or}, "TPM2_PolicyOR of the EK's policy")
		return err
	})
	return WithSession(ek.Handle, ek.Name, session), err
}

// EndorsementAuth proves the hierarchy's password in a session that is salted to the
// EK, where there is a password, so that nobody who listens can try passwords.
func (h *Handles) EndorsementAuth(ctx context.Context, ek *LoadedKey, password []byte) (tpm2.AuthHandle, error) {
	if len(password) == 0 {
		return WithPassword(tpm2.TPMRHEndorsement, nil, nil), nil
	}
	auth, err := AuthValue(password)
	if err != nil {
		return tpm2.AuthHandle{}, err
	}
	session, err := h.EKSession(ctx, ek, tpm2.Auth(auth))
	if err != nil {
		return tpm2.AuthHandle{}, err
	}
	return WithSession(tpm2.TPMRHEndorsement, tpm2.HandleName(tpm2.TPMRHEndorsement).Buffer, session), nil
}
