package tpmop

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/refusal"
)

// Sessions keep secrets off the path between this process and the TPM, which on a board is a
// bus that can be tapped. A session's own secret is encrypted to a key that never leaves the
// TPM: the EK of template L-2 (TCG EK Credential Profile 2.6, B.4.5), or, if the endorsement
// hierarchy has a password or is off, a storage key of the null hierarchy, which is always on
// and has none. The TPM makes it for the occasion. Anyone who can answer in the TPM's place,
// and not only listen, can supply a key of their own.

// sessionNonceSize is in bytes; 16 is what go-tpm and TCG's examples use.
const sessionNonceSize = 16

// ErrNullInPassword refuses a password that contains a zero byte: TPMs strip zero bytes at the
// end of a password (Part 1, 19.6.5), and go-tpm cuts it at the first one anywhere.
var ErrNullInPassword = errors.New("the password has a zero byte inside")

// Authorize is a handle and the proof that its password is known. The empty password is sent
// in the clear. Any other stays in this process: the proof is an HMAC over the command, also
// keyed with a session secret, so that passwords cannot be tried against it.
func (h *Handles) Authorize(ctx context.Context, handle tpm2.TPMHandle, name, password []byte) (tpm2.AuthHandle, error) {
	if len(password) == 0 {
		return WithPassword(handle, name, nil), nil
	}
	session, err := h.Session(ctx, password)
	return WithSession(handle, name, session), err
}

// attributeNoDA exempts a key from the counting of wrong passwords (Part 2, 8.3).
const attributeNoDA statement.Attributes = 1 << 10

// AuthorizeKey is Authorize for a key, after CheckLockout.
func (h *Handles) AuthorizeKey(ctx context.Context, key *LoadedKey) (tpm2.AuthHandle, error) {
	if err := h.CheckLockout(ctx, key); err != nil {
		return tpm2.AuthHandle{}, err
	}
	return h.Authorize(ctx, key.Handle, key.Name, key.Password.Reveal())
}

// CheckLockout is called before a key's password is tried, if it has one. A wrong one for a key
// without noDA counts, and too many lock every such key of the TPM, also other programs' (Part 1,
// 19.8): half of the allowed tries are left to them. The error is [refusal.ErrRetry], as a TPM
// forgets in time. A TPM that does not say how many it has counted is given one try; one that does
// not say how many lock it, none while it has counted any.
func (h *Handles) CheckLockout(ctx context.Context, key *LoadedKey) error {
	if len(key.Password.Reveal()) == 0 || key.Public.Attributes.Has(attributeNoDA) {
		return nil
	}
	wrong, _, err := TPMProperty(ctx, h, tpm2.TPMPTLockoutCounter)
	if err != nil || wrong == 0 {
		return err
	}
	most, _, err := TPMProperty(ctx, h, tpm2.TPMPTMaxAuthFail)
	if err == nil && 2*(uint64(wrong)+1) > uint64(most) {
		err = refusal.Retry(fmt.Errorf("the TPM has counted %d wrong passwords of the %d that lock it: the key 0x%08x is not used until it has forgotten some, or its owner resets the count", wrong, most, uint32(key.Handle)))
	}
	return err
}

// Session starts an HMAC session for the next command only.
func (h *Handles) Session(ctx context.Context, password []byte, opts ...tpm2.AuthOption) (tpm2.Session, error) {
	return h.startSession(ctx, password, true, func(proof ...tpm2.AuthOption) tpm2.Session {
		return tpm2.HMAC(tpm2.TPMAlgSHA256, sessionNonceSize, append(opts, proof...)...)
	})
}

// PolicySession starts a policy session for the next command only and runs the policy in it.
// hash is the name algorithm of the object. The password is for a policy that requires it, and
// is then proved as in Authorize.
func (h *Handles) PolicySession(ctx context.Context, hash tpm2.TPMIAlgHash, password []byte, policy tpm2.PolicyCallback) (tpm2.Session, error) {
	keep := func(tpm transport.TPM, handle tpm2.TPMISHPolicy, nonce tpm2.TPM2BNonce) error {
		h.Keep(handle, nil)
		return policy(tpm, handle, nonce)
	}
	return h.startSession(ctx, password, len(password) != 0, func(proof ...tpm2.AuthOption) tpm2.Session {
		return tpm2.Policy(hash, sessionNonceSize, keep, proof...)
	})
}

// Encrypt returns the command with its first parameter, which is a secret, encrypted.
func Encrypt[R any](ctx context.Context, h *Handles, cmd Command[R]) (Command[R], error) {
	session, err := h.Session(ctx, nil, tpm2.AESEncryption(128, tpm2.EncryptIn))
	if err != nil {
		return nil, err
	}
	return &inSession[R]{cmd, session}, nil
}

// inSession is a command that is sent in one additional session.
type inSession[R any] struct {
	command Command[R]
	session tpm2.Session
}

// Execute sends the command.
func (c *inSession[R]) Execute(tpm transport.TPM, sessions ...tpm2.Session) (*R, error) {
	return c.command.Execute(tpm, append(sessions, c.session)...)
}

// startSession starts the session that build makes, which proves the password, with its secret
// encrypted to the session key if it is salted. It is kept like a loaded object until it is used.
func (h *Handles) startSession(ctx context.Context, password []byte, salted bool, build func(proof ...tpm2.AuthOption) tpm2.Session) (
	tpm2.Session, error) {
	auth, err := AuthValue(password)
	if err != nil {
		return nil, err
	}
	proof := []tpm2.AuthOption{tpm2.Auth(auth)}
	var key tpm2.TPMHandle // 0, which is never kept, if the session is not salted
	if salted {
		loaded, err := h.loadSessionKey(ctx)
		if err != nil {
			return nil, fmt.Errorf("key for a session: %w", err)
		}
		key = loaded.Handle
		area, err := tpm2.Unmarshal[tpm2.TPMTPublic](loaded.Public.Raw)
		if err != nil {
			return nil, fmt.Errorf("key for a session: %w", err)
		}
		proof = append(proof, tpm2.Salted(key, *area))
	}
	before, err := h.LoadedSessions(ctx)
	known := err == nil
	if err != nil && !IsUnfit(err) {
		return nil, err
	}
	session := build(proof...)
	if err := session.Init(during(ctx, h.TPM)); err != nil {
		if known && !IsAnswer(err) {
			h.KeepLostSession(before)
		}
		return nil, explain(ctx, fmt.Errorf("TPM2_StartAuthSession: %w", err))
	}
	h.Drop(session.Handle()) // a policy session is already kept
	h.Keep(session.Handle(), nil)
	return &oneUse{Session: session, h: h, handle: session.Handle()}, h.Flush(key)
}

// oneUse is a session that the TPM ends after the command it is used in.
type oneUse struct {
	tpm2.Session
	h      *Handles
	handle tpm2.TPMHandle
}

// Validate sees the TPM's answer.
func (s *oneUse) Validate(rc tpm2.TPMRC, cc tpm2.TPMCC, parms []byte, names []tpm2.TPM2BName, i int, auth *tpm2.TPMSAuthResponse) error {
	if !auth.Attributes.ContinueSession {
		s.h.Drop(s.handle)
	}
	return s.Session.Validate(rc, cc, parms, names, i, auth)
}

// CleanupFailure is called if the TPM refused the command: the session remains.
func (s *oneUse) CleanupFailure(transport.TPM) error { return s.h.Flush(s.handle) }

// LoadedSessions lists the sessions in the TPM, of every kind and every owner.
func (h *Handles) LoadedSessions(ctx context.Context) ([]tpm2.TPMHandle, error) {
	list, _, err := h.List(ctx, tpm2.TPMHandle(tpm2.TPMHTLoadedSession)<<24, 64)
	return list, err
}

// KeepLostSession keeps the session that is there now and was not before, when the response
// with its handle was lost. If there is more than one, another program started one at the same
// time, and none is touched.
func (h *Handles) KeepLostSession(before []tpm2.TPMHandle) {
	now, err := h.LoadedSessions(context.Background())
	if err != nil {
		return
	}
	lost := slices.DeleteFunc(now, func(handle tpm2.TPMHandle) bool {
		return slices.Contains(before, handle) || h.keeps(handle)
	})
	if len(lost) == 1 {
		h.Keep(lost[0], nil)
	}
}

// sessionKey is the key that sessions are salted with, as a saved context: making it again
// takes a hardware TPM a tenth of a second or more.
type sessionKey struct {
	context tpm2.TPMSContext
	Public  *statement.Public
}

func (h *Handles) loadSessionKey(ctx context.Context) (*LoadedKey, error) {
	if k := h.shared.SessionKey; k != nil {
		key, err := Reload(ctx, h, k.context, k.Public)
		if err == nil || !IsUnfit(err) {
			return key, err
		}
		h.shared.SessionKey = nil // the TPM was reset, or its hierarchy was cleared
	}
	key, err := h.createSessionKey(ctx)
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return nil, err
	}
	// If contexts cannot be saved, the key is made for each session.
	if saved, err := (tpm2.ContextSave{SaveHandle: key.Handle}).Execute(h.TPM); err == nil {
		h.shared.SessionKey = &sessionKey{context: saved.Context, Public: key.Public}
	}
	return key, nil
}

// createSessionKey makes the first key that the TPM can make: its endorsement hierarchy may have
// a password or be switched off, and it may lack P-256.
func (h *Handles) createSessionKey(ctx context.Context) (*LoadedKey, error) {
	var refused []error
	for _, k := range []struct {
		hierarchy tpm2.TPMHandle
		template  *tpm2.TPMTPublic
	}{
		{tpm2.TPMRHEndorsement, EKTemplateECC(tpm2.TPMECCNistP256, EKLow)},
		{tpm2.TPMRHNull, StorageRootKey()},
		{tpm2.TPMRHNull, EKTemplateRSA(2048, EKLow)},
	} {
		key, err := CreatePrimary(ctx, h, k.hierarchy, nil, tpm2.Marshal(k.template))
		if err == nil || !IsUnfit(err) {
			return key, err
		}
		refused = append(refused, err)
	}
	return nil, errors.Join(refused...)
}

// AuthValue is a password as TPMs compare it: without trailing zero bytes.
func AuthValue(password []byte) ([]byte, error) {
	auth := bytes.TrimRight(password, "\x00")
	if bytes.IndexByte(auth, 0) >= 0 {
		return nil, ErrNullInPassword
	}
	return auth, nil
}
