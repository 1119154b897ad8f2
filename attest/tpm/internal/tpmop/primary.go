package tpmop

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/secret"
)

// ErrHierarchyPassword says that a hierarchy of the TPM refused the given password, or the
// empty one if none was given. The error that wraps it names the hierarchy; no error contains
// the password.
var ErrHierarchyPassword = errors.New("hierarchy password refused by the TPM")

// LoadedKey is a key in the TPM, for as long as the handles it was loaded with are open.
// public was parsed from the very bytes that the TPM returned.
type LoadedKey struct {
	Handle   tpm2.TPMHandle
	Name     []byte
	Public   *statement.Public
	Password secret.Value[[]byte] // the key's own; zero if it is empty
}

// CheckPersistent refuses anything but a persistent handle.
func CheckPersistent(handle tpm2.TPMHandle) error {
	if handle>>24 != 0x81 {
		return fmt.Errorf("0x%08x is not a persistent handle: want 0x81000000 to 0x81ffffff", uint32(handle))
	}
	return nil
}

// Reload loads a key from a saved context, to be flushed with the rest.
func Reload(ctx context.Context, h *Handles, saved tpm2.TPMSContext, public *statement.Public) (*LoadedKey, error) {
	isOurs := func(p *statement.Public) bool { return bytes.Equal(p.Raw, public.Raw) }
	rsp, err := Load(ctx, h, isOurs, tpm2.ContextLoad{Context: saved}, "TPM2_ContextLoad")
	if err != nil {
		return nil, err
	}
	h.Keep(rsp.LoadedHandle, public.Name())
	return &LoadedKey{Handle: rsp.LoadedHandle, Name: public.Name(), Public: public}, nil
}

// CreatePrimary makes a primary key with an empty password in a hierarchy.
func CreatePrimary(ctx context.Context, h *Handles, hierarchy tpm2.TPMHandle, password, template []byte) (*LoadedKey, error) {
	want, err := statement.ParsePublic(template)
	if err != nil {
		return nil, fmt.Errorf("template: %w", err)
	}
	auth, err := h.Authorize(ctx, hierarchy, nil, password)
	if err != nil {
		return nil, err
	}
	isOurs := func(p *statement.Public) bool { return bytes.Equal(p.BeforeUnique(), want.BeforeUnique()) }
	rsp, err := Load(ctx, h, isOurs, tpm2.CreatePrimary{
		PrimaryHandle: auth,
		InPublic:      tpm2.BytesAs2B[tpm2.TPMTPublic](template),
	}, "TPM2_CreatePrimary in the %s hierarchy", hierarchyWord(hierarchy))
	if err != nil {
		return nil, ExplainPassword(err, hierarchy, password)
	}
	h.Keep(rsp.ObjectHandle, rsp.Name.Buffer)
	return NewLoadedKey(rsp.ObjectHandle, rsp.Name.Buffer, rsp.OutPublic.Bytes())
}

// ReadPublic reads the public area of a key that is already in the TPM.
func ReadPublic(ctx context.Context, h *Handles, handle tpm2.TPMHandle) (*LoadedKey, error) {
	rsp, err := Run(ctx, h.TPM, tpm2.ReadPublic{ObjectHandle: handle}, "TPM2_ReadPublic of 0x%08x", uint32(handle))
	if errors.Is(err, tpm2.TPMRCHandle) && CheckPersistent(handle) == nil {
		err = fmt.Errorf("the TPM has no key there, or its hierarchy is switched off: %w", err)
	}
	if err != nil {
		return nil, err
	}
	return NewLoadedKey(handle, rsp.Name.Buffer, rsp.OutPublic.Bytes())
}

// NewLoadedKey checks that the TPM's Name of a key fits its public area, or every verifier would
// refuse the results.
func NewLoadedKey(handle tpm2.TPMHandle, name, area []byte) (*LoadedKey, error) {
	public, err := statement.ParsePublic(area)
	if err != nil {
		return nil, fmt.Errorf("public area of 0x%08x: %w", uint32(handle), err)
	}
	if want := public.Name(); !bytes.Equal(name, want) {
		return nil, fmt.Errorf("the TPM gives the Name %x for 0x%08x, its public area has %x", name, uint32(handle), want)
	}
	return &LoadedKey{Handle: handle, Name: name, Public: public}, nil
}

// ExplainPassword explains a TPM's refusal of a hierarchy's password, or of its use.
func ExplainPassword(err error, hierarchy tpm2.TPMHandle, password []byte) error {
	if errors.Is(err, tpm2.TPMRCHierarchy) {
		return fmt.Errorf("the %s hierarchy is switched off until the next start: switch it on in the firmware's settings: %w", hierarchyWord(hierarchy), err)
	}
	if !isWrongPassword(err) {
		return err
	}
	what := "another password than the one given"
	if len(password) == 0 {
		what = "a password and none was given"
	}
	return fmt.Errorf("%w: the %s hierarchy has %s: %w", ErrHierarchyPassword, hierarchyWord(hierarchy), what, err)
}

// ErrKeyPassword says that a key has a password other than the one that was given.
var ErrKeyPassword = errors.New("wrong password for the TPM key")

// ExplainKeyPassword explains a TPM's refusal to use a key.
func ExplainKeyPassword(err error) error {
	if isWrongPassword(err) {
		return fmt.Errorf("%w: %w", ErrKeyPassword, err)
	}
	return err
}

// isWrongPassword reports whether the TPM refused a password (Part 2, 6.6.3).
func isWrongPassword(err error) bool {
	return errors.Is(err, tpm2.TPMRCBadAuth) || errors.Is(err, tpm2.TPMRCAuthFail)
}

func hierarchyWord(hierarchy tpm2.TPMHandle) string {
	words := map[tpm2.TPMHandle]string{tpm2.TPMRHEndorsement: "endorsement", tpm2.TPMRHOwner: "owner", tpm2.TPMRHNull: "null"}
	return cmp.Or(words[hierarchy], tpmwire.HexNumber(uint64(hierarchy), 8))
}

// EKSession starts an HMAC session for the next command only, whose key only the TPM with this
// EK can know. Its hash is that of the EK's name algorithm.
func (h *Handles) EKSession(ctx context.Context, ek *LoadedKey, password []byte, options ...tpm2.AuthOption) (tpm2.Session, error) {
	area, err := tpm2.Unmarshal[tpm2.TPMTPublic](ek.Public.Raw)
	if err != nil {
		return nil, fmt.Errorf("public area of the EK: %w", err)
	}
	options = append(options, tpm2.Salted(ek.Handle, *area))
	return h.startSession(ctx, password, false, func(proof ...tpm2.AuthOption) tpm2.Session {
		return tpm2.HMAC(ek.Public.NameAlg, sessionNonceSize, append(options, proof...)...)
	})
}

// AuthorizeEK authorizes the EK's use: by the empty password, or the policy of its range. It reads
// the EK's public area, not where the EK came from.
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
		return tpm2.AuthHandle{}, fmt.Errorf("endorsement key: it requires the policy %x, which is not in the EK Credential Profile", ek.Public.AuthPolicy)
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

// EndorsementAuth proves the hierarchy's password, if there is one, in a session that is
// salted to the EK, so that no eavesdropper can try passwords.
func (h *Handles) EndorsementAuth(ctx context.Context, ek *LoadedKey, password []byte) (tpm2.AuthHandle, error) {
	if len(password) == 0 {
		return WithPassword(tpm2.TPMRHEndorsement, nil, nil), nil
	}
	session, err := h.EKSession(ctx, ek, password)
	return WithSession(tpm2.TPMRHEndorsement, tpm2.HandleName(tpm2.TPMRHEndorsement).Buffer, session), err
}
