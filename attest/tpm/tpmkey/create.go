package tpmkey

import (
	"bytes"
	"cmp"
	"context"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmop"
	"github.com/nodeattest/nodeattest/secret"
)

func (kind Kind) area() (*tpm2.TPMTPublic, error) {
	attributes := tpm2.TPMAObject{
		FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true,
		UserWithAuth: true, NoDA: true, SignEncrypt: true,
	}
	switch k, ok := kinds[kind]; {
	case !ok:
		return nil, fmt.Errorf("%v is not a kind of key", kind)
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
	parent, err := k.file.loadParent(ctx, h, opts.OwnerPassword.Reveal())
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
	if _, err := k.file.check(); err != nil {
		return fmt.Errorf("the TPM's answer to TPM2_Create: %w", err)
	}
	return k.loadUnder(ctx, h, parent, password)
}

// maxKeyPassword is the digest size of the name algorithm of the keys made here (Part 1,
// 19.6.4.2).
const maxKeyPassword = 32

// bindToPCRs gives a public area the policy that requires the present values, and also the
// password if there is one: without userWithAuth nothing else allows the use.
func bindToPCRs(ctx context.Context, h *tpmop.Handles, area *tpm2.TPMTPublic, pcrs []statement.PCRSelection, hasPassword bool) ([]Policy, error) {
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

func (k *Key) loadFile(ctx context.Context, h *tpmop.Handles, opts LoadOptions) error {
	password, err := tpmop.AuthValue(opts.Password.Reveal())
	if err != nil {
		return err
	}
	parent, err := k.file.loadParent(ctx, h, opts.OwnerPassword.Reveal())
	if err != nil {
		return err
	}
	return k.loadUnder(ctx, h, parent, password)
}

// loadUnder loads the key of the file, and saves its context if the system allows it.
func (k *Key) loadUnder(ctx context.Context, h *tpmop.Handles, parent *tpmop.LoadedKey, password []byte) error {
	isOurs := func(p *statement.Public) bool { return bytes.Equal(p.Raw, k.file.Public) }
	rsp, err := tpmop.Load(ctx, h, isOurs, tpm2.Load{
		ParentHandle: tpmop.WithPassword(parent.Handle, parent.Name, nil),
		InPrivate:    tpm2.TPM2BPrivate{Buffer: k.file.Private},
		InPublic:     tpm2.BytesAs2B[tpm2.TPMTPublic](k.file.Public),
	}, "TPM2_Load under 0x%08x", uint32(parent.Handle))
	if err != nil {
		return err
	}
	h.Keep(rsp.ObjectHandle, rsp.Name.Buffer)
	loaded, err := tpmop.NewLoadedKey(rsp.ObjectHandle, rsp.Name.Buffer, k.file.Public)
	if err != nil {
		return err
	}
	if k.key, err = loaded.Public.Key(); err != nil {
		return err
	}
	if k.policy, err = parseKeyPolicy(k.file.Policy); err != nil {
		return err
	}
	k.public, k.name, k.password = loaded.Public, loaded.Name, secret.New(bytes.Clone(password))

	if err := ctx.Err(); err != nil {
		return err
	}
	saved, err := tpm2.ContextSave{SaveHandle: loaded.Handle}.Execute(h.TPM)
	if err != nil {
		// Windows' driver answers with a code of its own, and others may too. The key works
		// all the same.
		h.Drop(loaded.Handle)
		k.held = loaded.Handle
		return nil //nolint:nilerr // it works all the same
	}
	k.saved = &saved.Context
	return nil
}

// loadParent makes, or finds, the restricted decryption key that the private part is encrypted
// to.
func (f *File) loadParent(ctx context.Context, h *tpmop.Handles, ownerPassword []byte) (parent *tpmop.LoadedKey, err error) {
	if f.Parent == tpm2.TPMRHOwner {
		parent, err = tpmop.CreatePrimary(ctx, h, tpm2.TPMRHOwner, ownerPassword, tpm2.Marshal(tpmop.StorageRootKey()))
	} else if err = tpmop.CheckPersistent(f.Parent); err == nil {
		parent, err = tpmop.ReadPublic(ctx, h, f.Parent)
	}
	if err != nil {
		return nil, fmt.Errorf("storage parent: %w", err)
	}
	return parent, nil
}
