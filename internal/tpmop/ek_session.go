package tpmop

import (
	"bytes"
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

// EKPolicySession is a policy session that satisfies the EK's policy. Its hash must be
// that of the EK's name algorithm.
func (h *Handles) EKPolicySession(ctx context.Context, ek *LoadedKey, endorsementPassword []byte, how EKAuthorization) (tpm2.Session, error) {
	return h.PolicySession(ctx, ek.Public.NameAlg, nil, func(_ transport.TPM, session tpm2.TPMISHPolicy, nonce tpm2.TPM2BNonce) error {
		auth, err := h.EndorsementAuth(ctx, ek, endorsementPassword)
		if err != nil {
			return err
		}
		_, err = Run(ctx, h.TPM, tpm2.PolicySecret{AuthHandle: auth, PolicySession: session, NonceTPM: nonce},
			"TPM2_PolicySecret of the endorsement hierarchy")
		if err != nil {
			return ExplainPassword(err, tpm2.TPMRHEndorsement, endorsementPassword)
		}
		if how == EKByPolicyA {
			return nil
		}
		a, c := EKPolicyA256, EKPolicyC256
		if ek.Public.NameAlg == tpm2.TPMAlgSHA384 {
			a, c = EKPolicyA384, EKPolicyC384
		}
		_, err = Run(ctx, h.TPM, tpm2.PolicyOr{
			PolicySession: session,
			PHashList:     tpm2.TPMLDigest{Digests: []tpm2.TPM2BDigest{{Buffer: []byte(a)}, {Buffer: []byte(c)}}},
		}, "TPM2_PolicyOR of the EK's policy")
		return err
	})
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
	return tpm2.AuthHandle{Handle: tpm2.TPMRHEndorsement, Name: tpm2.HandleName(tpm2.TPMRHEndorsement), Auth: session}, nil
}

// EKAuthorization is how the use of an EK is authorized.
type EKAuthorization int

// The ways to authorize it.
const (
	EKByPassword EKAuthorization = iota + 1 // the empty one
	EKByPolicyA                             // TPM2_PolicySecret(TPM_RH_ENDORSEMENT)
	ekByPolicyB                             // the same, and then TPM2_PolicyOR
)

// EKAuthorizationOf looks at what the TPM says of the EK, not at where it came from.
func EKAuthorizationOf(ek *statement.Public) (EKAuthorization, error) {
	is := func(digests ...string) bool {
		for _, d := range digests {
			if bytes.Equal(ek.AuthPolicy, []byte(d)) {
				return true
			}
		}
		return false
	}
	switch {
	case ek.Attributes.Has(statement.AttributeUserWithAuth):
		return EKByPassword, nil
	case is(EKPolicyA256, EKPolicyA384):
		return EKByPolicyA, nil
	case is(EKPolicyB256, EKPolicyB384):
		return ekByPolicyB, nil
	}
	return 0, fmt.Errorf("endorsement key: it wants the policy %x, which is none of the EK Credential Profile", ek.AuthPolicy)
}
