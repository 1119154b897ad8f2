package tpmkey

import (
	"bytes"
	"cmp"
	"context"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/secret"
)

func (a Algorithm) area() (*tpm2.TPMTPublic, error) {
	attributes := tpm2.TPMAObject{
		FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true,
		UserWithAuth: true, NoDA: true, SignEncrypt: true,
	}
	switch k, ok := algorithms[a]; {
	case !ok:
		return nil, fmt.Errorf("%v is not an algorithm of keys", a)
	case k.bits != 0:
		return tpmop.RSAKeyArea(tpm2.TPMSRSAParms{KeyBits: k.bits}, attributes, nil), nil
	default:
		return tpmop.ECCKeyArea(tpm2.TPMSECCParms{CurveID: k.curve}, attributes, nil, nil), nil
	}
}

// create makes the key and loads it.
func (k *Key) create(ctx context.Context, h *tpmop.Handles, area *tpm2.TPMTPublic, opts Options) error {
	password, err := tpmop.AuthValue(opts.Password.Reveal())
	if err != nil {
		return err
	}
	if n := len(password); n > maxKeyPassword {
		return fmt.Errorf("password of %d bytes, at most %d", n, maxKeyPassword)
	}
	statements, err := bindToPCRs(ctx, h, area, opts.PCRs, len(password) != 0)
	if err != nil {
		return err
	}
	k.file = &File{EmptyAuth: len(password) == 0, Policy: statements, Parent: cmp.Or(opts.Parent, tpm2.TPMRHOwner)}
	parent, err := tpmop.StorageParent(ctx, h, k.file.Parent, opts.OwnerPassword.Reveal())
	if err != nil {
		return err
	}
	var create tpmop.Command[tpm2.CreateResponse] = tpm2.Create{
		ParentHandle: tpmop.WithPassword(parent.Handle, parent.Name, nil),
		InSensitive: tpm2.TPM2BSensitiveCreate{
			Sensitive: &tpm2.TPMSSensitiveCreate{UserAuth: tpm2.TPM2BAuth{Buffer: password}},
		},
		InPublic: tpm2.New2B(*area),
	}
	if len(password) != 0 {
		if create, err = tpmop.Encrypt(ctx, h, create); err != nil {
			return err
		}
	}
	made, err := tpmop.Run(ctx, h.TPM, create, "TPM2_Create under 0x%08x", uint32(parent.Handle))
	if err != nil {
		return err
	}
	k.file.Public, k.file.Private = made.OutPublic.Bytes(), made.OutPrivate.Buffer
	if err := k.file.check(); err != nil {
		return fmt.Errorf("the TPM's answer to TPM2_Create: %w", err)
	}
	loaded, err := tpmop.LoadUnder(ctx, h, parent, k.file.Public, k.file.Private)
	if err != nil {
		return err
	}
	return k.set(ctx, h, loaded, password)
}

// maxKeyPassword is the digest size of the name algorithm of the keys made here (Part 1,
// 19.6.4.2).
const maxKeyPassword = 32

// bindToPCRs gives a public area the policy that requires the present values, and also the
// password if there is one: without userWithAuth nothing else allows the use.
func bindToPCRs(ctx context.Context, h *tpmop.Handles, area *tpm2.TPMTPublic, pcrs []statement.PCRSelection, hasPassword bool) ([]PolicyCommand, error) {
	if len(pcrs) == 0 {
		return nil, nil
	}
	step, err := presentPCRs(ctx, h, pcrs, area.NameAlg)
	if err != nil {
		return nil, err
	}
	policy := keyPolicy{step}
	if hasPassword {
		policy = append(policy, keyPolicyStep{})
	}
	area.ObjectAttributes.UserWithAuth = false
	area.AuthPolicy.Buffer, err = policy.digest(area.NameAlg)
	return policy.statements(), err
}

// load loads the key of a file for the first time.
func (k *Key) load(ctx context.Context, h *tpmop.Handles, opts LoadOptions) error {
	password, err := tpmop.AuthValue(opts.Password.Reveal())
	if err != nil {
		return err
	}
	loaded, err := k.loadFile(ctx, h, opts.OwnerPassword.Reveal())
	if err != nil {
		return err
	}
	return k.set(ctx, h, loaded, password)
}

// loadFile loads the key of the file.
func (k *Key) loadFile(ctx context.Context, h *tpmop.Handles, ownerPassword []byte) (*tpmop.LoadedKey, error) {
	parent, err := tpmop.StorageParent(ctx, h, k.file.Parent, ownerPassword)
	if err != nil {
		return nil, err
	}
	return tpmop.LoadUnder(ctx, h, parent, k.file.Public, k.file.Private)
}

// set makes k the key that was loaded for the first time.
func (k *Key) set(ctx context.Context, h *tpmop.Handles, loaded *tpmop.LoadedKey, password []byte) (err error) {
	if k.key, err = loaded.Public.Key(); err != nil {
		return err
	}
	if k.policy, err = parseKeyPolicy(k.file.Policy); err != nil {
		return err
	}
	k.public, k.password = loaded.Public, secret.New(bytes.Clone(password))
	return k.keep(ctx, h, loaded)
}

// keep saves the context of the loaded key, or holds the key if the system does not allow it.
func (k *Key) keep(ctx context.Context, h *tpmop.Handles, loaded *tpmop.LoadedKey) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	saved, err := tpm2.ContextSave{SaveHandle: loaded.Handle}.Execute(h.TPM)
	if err != nil {
		// Windows' driver answers with a code of its own, and others may too. The key works
		// all the same.
		h.Drop(loaded.Handle)
		k.saved, k.held = nil, loaded.Handle
		return nil //nolint:nilerr // it works all the same
	}
	k.saved, k.held = &saved.Context, 0
	return nil
}
