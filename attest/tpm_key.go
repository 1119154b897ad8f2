package attest

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

// KeyKind is a kind of key that CreateTPMKey makes. The zero value is none.
type KeyKind int

// The kinds of key. Many TPMs have neither P-384 nor RSA-3072.
const (
	KeyECDSAP256 KeyKind = iota + 1 // ECDSA on P-256
	KeyECDSAP384                    // ECDSA on P-384
	KeyRSA2048                      // RSA, 2048 bits, exponent 65537
	KeyRSA3072                      // RSA, 3072 bits, exponent 65537
)

// String gives the kind's name, as in "ECDSA P-256".
func (k KeyKind) String() string {
	switch k {
	case KeyECDSAP256:
		return "ECDSA P-256"
	case KeyECDSAP384:
		return "ECDSA P-384"
	case KeyRSA2048:
		return "RSA-2048"
	case KeyRSA3072:
		return "RSA-3072"
	}
	return fmt.Sprintf("KeyKind(%d)", int(k))
}

// TPMKeyOptions say where a key is made. Nil and the zero value are the owner
// hierarchy with an empty password.
type TPMKeyOptions struct {
	// OwnerPassword is the owner hierarchy's; nil is the empty one. Without
	// meaning where Parent is set.
	OwnerPassword []byte
	// Parent is a persistent storage key with an empty password to make the key
	// under, such as the 0x81000001 that most systems have: for where nobody
	// knows the owner's password. 0: the ECC P-256 storage root key of the TCG
	// TPM v2.0 Provisioning Guidance 1.0, 7.5.1, made for the moment.
	Parent tpm2.TPMHandle
}

// TPMKey is a signing key that a TPM made and that never leaves it: a
// crypto.Signer for certificate requests and TLS, and a Key whose statement says
// that it is resident. It lasts as long as the process and the TPM's power.
//
// Between signatures the key is kept outside the TPM as a context that only this
// TPM can load, until its next reset, so that keys take none of the few slots;
// under Windows, which does not let programs save contexts, it stays loaded until
// Close. It is safe for concurrent use; see SharedTPM for more than one user of
// the TPM.
type TPMKey struct {
	tpm    *SharedTPM
	key    crypto.PublicKey
	public *Public
	name   []byte

	// Guarded by the TPM's turn: one of the two is set until Close.
	saved *tpm2.TPMSContext
	held  tpm2.TPMHandle
}

// CreateTPMKey makes a key of the given kind: unrestricted, for signing, with an
// empty password and no scheme of its own, so that RSA signs PKCS #1 v1.5 and
// PSS. Errors wrap the TPM's response code; ErrHierarchyPassword says that the
// owner's password is missing or wrong.
func CreateTPMKey(ctx context.Context, tpm transport.TPM, kind KeyKind, opts *TPMKeyOptions) (*TPMKey, error) {
	if opts == nil {
		opts = &TPMKeyOptions{}
	}
	area, err := tpmKeyArea(kind)
	if err != nil {
		return nil, fmt.Errorf("attest: TPM key: %w", err)
	}
	k := &TPMKey{tpm: ShareTPM(tpm)}
	err = k.tpm.do(ctx, func(h *handles) error { return k.create(ctx, h, area, opts) })
	if err != nil {
		err = fmt.Errorf("attest: TPM key, %v: %w", kind, err)
		if k.held != 0 {
			err = errors.Join(err, k.Close())
		}
		return nil, err
	}
	return k, nil
}

func tpmKeyArea(kind KeyKind) (*tpm2.TPMTPublic, error) {
	attributes := tpm2.TPMAObject{
		FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true,
		UserWithAuth: true, NoDA: true, SignEncrypt: true,
	}
	rsaScheme := tpm2.TPMTRSAScheme{Scheme: tpm2.TPMAlgNull}
	eccScheme := tpm2.TPMTECCScheme{Scheme: tpm2.TPMAlgNull}
	switch kind {
	case KeyECDSAP256:
		return eccKeyArea(tpm2.TPMECCNistP256, attributes, eccScheme, nil, nil), nil
	case KeyECDSAP384:
		return eccKeyArea(tpm2.TPMECCNistP384, attributes, eccScheme, nil, nil), nil
	case KeyRSA2048:
		return rsaKeyArea(2048, attributes, rsaScheme, nil), nil
	case KeyRSA3072:
		return rsaKeyArea(3072, attributes, rsaScheme, nil), nil
	}
	return nil, fmt.Errorf("%v is not a kind of key", kind)
}

// create makes the key, loads it once, and saves it if the system allows that.
func (k *TPMKey) create(ctx context.Context, h *handles, area *tpm2.TPMTPublic, opts *TPMKeyOptions) error {
	parent, err := storageParent(ctx, h, opts)
	if err != nil {
		return fmt.Errorf("storage parent: %w", err)
	}
	auth := withPassword(parent.handle, parent.name, nil)
	made, err := run(ctx, h.tpm, tpm2.Create{ParentHandle: auth, InPublic: tpm2.New2B(*area)},
		"TPM2_Create under 0x%08x", uint32(parent.handle))
	if err != nil {
		return err
	}
	isOurs := func(p *Public) bool { return bytes.Equal(p.Raw, made.OutPublic.Bytes()) }
	rsp, err := load(ctx, h, isOurs, tpm2.Load{ParentHandle: auth, InPrivate: made.OutPrivate, InPublic: made.OutPublic},
		"TPM2_Load under 0x%08x", uint32(parent.handle))
	if err != nil {
		return err
	}
	h.keep(rsp.ObjectHandle, rsp.Name.Buffer)
	loaded, err := newLoadedKey(rsp.ObjectHandle, rsp.Name.Buffer, made.OutPublic.Bytes())
	if err != nil {
		return err
	}
	if k.key, err = loaded.public.Key(); err != nil {
		return err
	}
	k.public, k.name = loaded.public, loaded.name

	if err := ctx.Err(); err != nil {
		return err
	}
	saved, err := tpm2.ContextSave{SaveHandle: loaded.handle}.Execute(h.tpm)
	if err != nil {
		// Windows' driver answers with a code of its own, others may too. The key
		// works all the same.
		h.drop(loaded.handle)
		k.held = loaded.handle
		return nil
	}
	k.saved = &saved.Context
	return nil
}

// storageParent is a restricted decryption key: a child is encrypted to it.
func storageParent(ctx context.Context, h *handles, opts *TPMKeyOptions) (*loadedKey, error) {
	if opts.Parent != 0 {
		if opts.Parent>>24 != 0x81 {
			return nil, fmt.Errorf("0x%08x is not a persistent handle: want 0x81000000 to 0x81ffffff", uint32(opts.Parent))
		}
		return readPublic(ctx, h, opts.Parent)
	}
	return createPrimary(ctx, h, tpm2.TPMRHOwner, opts.OwnerPassword, tpm2.Marshal(storageRootKey()))
}

func storageRootKey() *tpm2.TPMTPublic {
	const width = 32
	area := eccKeyArea(tpm2.TPMECCNistP256, tpm2.TPMAObject{
		FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true,
		UserWithAuth: true, NoDA: true, Restricted: true, Decrypt: true,
	}, tpm2.TPMTECCScheme{Scheme: tpm2.TPMAlgNull}, make([]byte, width), make([]byte, width))
	area.Parameters = tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{
		Symmetric: tpm2.TPMTSymDefObject{
			Algorithm: tpm2.TPMAlgAES,
			KeyBits:   tpm2.NewTPMUSymKeyBits(tpm2.TPMAlgAES, tpm2.TPMKeyBits(128)),
			Mode:      tpm2.NewTPMUSymMode(tpm2.TPMAlgAES, tpm2.TPMAlgCFB),
		},
		Scheme:  tpm2.TPMTECCScheme{Scheme: tpm2.TPMAlgNull},
		CurveID: tpm2.TPMECCNistP256,
		KDF:     tpm2.TPMTKDFScheme{Scheme: tpm2.TPMAlgNull},
	})
	return area
}

// Public is the key's public part, an *ecdsa.PublicKey or an *rsa.PublicKey.
func (k *TPMKey) Public() crypto.PublicKey { return k.key }

// Format keeps the saved context out of logs, whatever the verb.
func (k *TPMKey) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "attest.TPMKey(%T)", k.key) }

// load makes a saved key a loaded one for the caller to flush, or lends the one
// that is held. h may be another user's of the same TPM; of another TPM it fails.
func (k *TPMKey) load(ctx context.Context, h *handles) (*loadedKey, func() error, error) {
	switch {
	case k.held != 0:
		loaded, err := readPublic(ctx, h, k.held)
		if err == nil && !bytes.Equal(loaded.name, k.name) {
			err = fmt.Errorf("0x%08x is another key now, with the Name %x instead of %x", uint32(k.held), loaded.name, k.name)
		}
		if err != nil {
			return nil, nil, err
		}
		return loaded, func() error { return nil }, nil
	case k.saved == nil:
		return nil, nil, os.ErrClosed
	}
	isOurs := func(p *Public) bool { return bytes.Equal(p.Raw, k.public.Raw) }
	rsp, err := load(ctx, h, isOurs, tpm2.ContextLoad{Context: *k.saved}, "TPM2_ContextLoad")
	if err != nil {
		return nil, nil, err
	}
	h.keep(rsp.LoadedHandle, k.name)
	loaded := &loadedKey{handle: rsp.LoadedHandle, name: k.name, public: k.public}
	return loaded, func() error { return h.flush(rsp.LoadedHandle) }, nil
}

// Sign signs a digest: ECDSA in ASN.1 (RFC 3279, 2.2.3), RSA in PKCS #1 v1.5, or
// in PSS where opts is an *rsa.PSSOptions with a salt of the hash's length
// (rsa.PSSSaltLengthEqualsHash or that number), the only one that TPMs make.
// digest must be one of opts.HashFunc(): SHA-256, SHA-384 or SHA-512 as the TPM
// has them. The randomness is the TPM's; the first argument is not used. The
// signature is verified before it is returned. Sign waits while the TPM is in use
// and cannot be interrupted.
func (k *TPMKey) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	scheme, err := k.signScheme(digest, opts)
	if err != nil {
		return nil, fmt.Errorf("attest: TPM key: %w", err)
	}
	var signature []byte
	ctx := context.Background()
	err = k.tpm.do(ctx, func(h *handles) error {
		loaded, _, err := k.load(ctx, h) // do flushes
		if err != nil {
			return err
		}
		rsp, err := run(ctx, h.tpm, tpm2.Sign{
			KeyHandle:  withPassword(loaded.handle, loaded.name, nil),
			Digest:     tpm2.TPM2BDigest{Buffer: digest},
			InScheme:   scheme,
			Validation: tpm2.TPMTTKHashCheck{Tag: tpm2.TPMSTHashCheck, Hierarchy: tpm2.TPMRHNull},
		}, "TPM2_Sign with 0x%08x", uint32(loaded.handle))
		if err != nil {
			return err
		}
		signature, err = signatureBytes(&rsp.Signature)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attest: TPM key: %w", err)
	}
	if err := verifyOwn(k.key, digest, signature, opts); err != nil {
		return nil, fmt.Errorf("attest: TPM key: the TPM made a bad signature: %w", err)
	}
	return signature, nil
}

// Close takes the key out of the TPM: it is gone for good. A second Close does
// nothing, except try again what the first could not flush.
func (k *TPMKey) Close() error {
	ctx := context.Background()
	err := k.tpm.do(ctx, func(*handles) error {
		if k.held != 0 { // flushed as what was left is: only if it still is this key
			k.tpm.left = append(k.tpm.left, openHandle{k.held, k.name})
		}
		k.saved, k.held = nil, 0
		return nil
	})
	if err == nil {
		err = k.tpm.flushLeft(ctx)
	}
	if err != nil {
		return fmt.Errorf("attest: closing a TPM key: %w", err)
	}
	return nil
}

var _ crypto.Signer = (*TPMKey)(nil)
var _ Key = (*TPMKey)(nil)

// verifyOwn checks a signature that the TPM made.
func verifyOwn(key crypto.PublicKey, digest, signature []byte, opts crypto.SignerOpts) error {
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		if !ecdsa.VerifyASN1(key, digest, signature) {
			return errors.New("ECDSA verification failed")
		}
		return nil
	case *rsa.PublicKey:
		if _, ok := opts.(*rsa.PSSOptions); ok {
			return rsa.VerifyPSS(key, opts.HashFunc(), digest, signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
		}
		return rsa.VerifyPKCS1v15(key, opts.HashFunc(), digest, signature)
	}
	return fmt.Errorf("key is a %T", key)
}
