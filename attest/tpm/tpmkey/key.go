package tpmkey

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/secret"
)

// Algorithm is the algorithm and size of a key. Create refuses the zero value.
type Algorithm int

// The algorithms that Create knows. Many TPMs have neither P-384 nor RSA-3072.
const (
	ECDSAP256 Algorithm = iota + 1 // ECDSA on P-256
	ECDSAP384                      // ECDSA on P-384
	RSA2048                        // RSA, 2048 bits, exponent 65537
	RSA3072                        // RSA, 3072 bits, exponent 65537
)

var algorithms = map[Algorithm]struct {
	name  string
	curve tpm2.TPMECCCurve
	bits  tpm2.TPMKeyBits // of an RSA key
}{
	ECDSAP256: {name: "ECDSA P-256", curve: tpm2.TPMECCNistP256},
	ECDSAP384: {name: "ECDSA P-384", curve: tpm2.TPMECCNistP384},
	RSA2048:   {name: "RSA-2048", bits: 2048},
	RSA3072:   {name: "RSA-3072", bits: 3072},
}

// String returns the algorithm's name, such as "ECDSA P-256".
func (a Algorithm) String() string {
	return cmp.Or(algorithms[a].name, fmt.Sprintf("Algorithm(%d)", int(a)))
}

// Options say where a key is made and what its use requires. The zero value is the owner
// hierarchy with an empty password, and a key with no password and no policy.
type Options struct {
	// OwnerPassword is the owner hierarchy's; zero is the empty one. It has no meaning if
	// Parent is set.
	OwnerPassword secret.Value[[]byte]
	// Parent is a persistent storage key with an empty password to make the key under, such as
	// the 0x81000001 that most systems have: for systems where no administrator knows the owner's
	// password. 0 means the ECC P-256 storage root key of template H-2 with an empty policy
	// (TCG TPM v2.0 Provisioning Guidance 1.0, 7.5.1), made as needed, which other programs
	// make identically.
	Parent tpm2.TPMHandle
	// Password is the new key's own: 1 to 32 bytes without a zero byte, sent to the TPM
	// encrypted and never again; zero for the empty one. Wrong ones do not count towards the
	// TPM's lockout, so it should not be one that can be guessed.
	Password secret.Value[[]byte]
	// PCRs bind the key to the values that these PCRs have now: it signs only while they have them.
	// An update of the measured software makes the key unusable for good. (A statement about the
	// key can be made whatever the PCRs hold.) Nil for none.
	PCRs []statement.PCRSelection
}

// LoadOptions are what loading a File requires. The zero value is empty passwords.
type LoadOptions struct {
	// OwnerPassword is the owner hierarchy's, for a file whose Parent is the owner; zero is
	// the empty one.
	OwnerPassword secret.Value[[]byte]
	// Password is the key's own; zero is the empty one. Whether it is right becomes known when
	// the key is first used.
	Password secret.Value[[]byte]
}

// ErrPassword says that a key has a password other than the one that was given.
var ErrPassword = tpmop.ErrKeyPassword

// Key is a signing key that a TPM made and that never leaves it: a crypto.Signer for
// certificate requests and TLS, and a [Certifiable] whose statement says that it is resident.
// It can be restored from its File after the process has ended or the TPM was reset.
//
// Between signatures the key is kept outside the TPM as a context that only this TPM can load,
// until its next reset, so that keys take none of the few slots. Under Windows, which does not
// let programs save contexts, it stays loaded until Close. After a reset it is loaded from its
// File once more, for which the owner's password, if there is one, is not kept: then the error
// wraps tpm.ErrHierarchyPassword, and [Load] restores the key. It is safe for concurrent use;
// see [Share] for more than one user of the TPM.
type Key struct {
	tpm      *tpmop.Shared
	key      crypto.PublicKey
	public   *statement.Public
	file     *File
	policy   keyPolicy
	password secret.Value[[]byte]

	// Guarded by the TPM's turn: one of the two is set until Close.
	saved *tpm2.TPMSContext
	held  tpm2.TPMHandle
}

// Create makes a key of the given algorithm: unrestricted, for signing, and with no
// scheme of its own, so that RSA signs PKCS #1 v1.5 and PSS. Errors wrap the TPM's
// response code; ErrHierarchyPassword says that the owner's password is missing or
// wrong.
func Create(ctx context.Context, tpm transport.TPM, algorithm Algorithm, opts Options) (*Key, error) {
	area, err := algorithm.area()
	if err != nil {
		return nil, fmt.Errorf("tpmkey: %w", err)
	}
	k := &Key{tpm: tpmop.Share(tpm)}
	return k.made(k.tpm.Do(ctx, func(h *tpmop.Handles) error { return k.create(ctx, h, area, opts) }), algorithm.String())
}

// Load loads a key that the same TPM made, in this process or another. The file's parent must
// still be there: after TPM2_Clear no file is of any use. Errors wrap the TPM's response code,
// the check "tpm-key-file", or tpm.ErrHierarchyPassword.
func Load(ctx context.Context, tpm transport.TPM, file *File, opts LoadOptions) (*Key, error) {
	if file == nil {
		return nil, fmt.Errorf("tpmkey: %w: the file is nil", checkFile)
	}
	if err := file.check(); err != nil {
		return nil, fmt.Errorf("tpmkey: %w: %w", checkFile, err)
	}
	k := &Key{tpm: tpmop.Share(tpm), file: file.clone()}
	return k.made(k.tpm.Do(ctx, func(h *tpmop.Handles) error { return k.load(ctx, h, opts) }), "from a file")
}

// made finishes making a key; after an error it removes the loaded key.
func (k *Key) made(err error, what string) (*Key, error) {
	if err == nil {
		return k, nil
	}
	err = fmt.Errorf("tpmkey: %s: %w", what, err)
	if k.held != 0 {
		err = errors.Join(err, k.Close())
	}
	return nil, err
}

// Public is the key's public part, an *ecdsa.PublicKey or an *rsa.PublicKey.
func (k *Key) Public() crypto.PublicKey { return k.key }

// Load turns a saved key into a loaded one for the caller to flush, or lends the one that is
// held. h may belong to another user of the same TPM; with another TPM it fails.
func (k *Key) Load(ctx context.Context, h *tpmop.Handles) (*tpmop.LoadedKey, error) {
	k = cmp.Or(k, new(Key))
	var loaded *tpmop.LoadedKey
	var err error
	switch {
	case k.held != 0:
		loaded, err = k.findHeld(ctx, h)
	case k.saved != nil:
		loaded, err = tpmop.Reload(ctx, h, *k.saved, k.public)
	default:
		return nil, os.ErrClosed
	}
	if err != nil && (errors.Is(err, errReplaced) || tpmop.IsLost(err) || tpmop.IsUnfit(err)) {
		loaded, err = k.restore(ctx, h, err)
	}
	if err != nil {
		return nil, err
	}
	loaded.Password = k.password
	return loaded, nil
}

// errReplaced says that a held key's handle is another key's.
var errReplaced = errors.New("another key now")

func (k *Key) findHeld(ctx context.Context, h *tpmop.Handles) (*tpmop.LoadedKey, error) {
	loaded, err := tpmop.ReadPublic(ctx, h, k.held)
	if want := k.public.Name(); err == nil && !bytes.Equal(loaded.Name, want) {
		err = fmt.Errorf("0x%08x is %w, with the Name %x instead of %x", uint32(k.held), errReplaced, loaded.Name, want)
	}
	return loaded, err
}

// restore loads the key from its file, since gone says that it is no longer where it was: the
// TPM was reset.
func (k *Key) restore(ctx context.Context, h *tpmop.Handles, gone error) (*tpmop.LoadedKey, error) {
	loaded, err := k.loadFile(ctx, h, nil)
	if err != nil {
		return nil, fmt.Errorf("the TPM was reset, or does not hold the key any more (%s), and cannot load it from its file; Load needs the owner's password if there is one: %w", gone.Error(), err)
	}
	if !h.Of(k.tpm) { // only the user that has the TPM's turn may change the key
		return loaded, nil
	}
	return loaded, k.keep(ctx, h, loaded)
}

// Sign signs a digest: ECDSA in ASN.1 (RFC 3279, 2.2.3), RSA in PKCS #1 v1.5, or in PSS if opts is
// an *rsa.PSSOptions with a salt of the hash's length (rsa.PSSSaltLengthEqualsHash or that number),
// the only one that TPMs make. digest must be one of opts.HashFunc(): SHA-256, SHA-384 or SHA-512
// as the TPM has them. The randomness is the TPM's; the first argument is not used. The signature
// is verified before it is returned. Sign waits while the TPM is in use, for half a minute in all:
// then the error wraps context.DeadlineExceeded, so that a TPM which has stopped answering does not
// hold a TLS handshake for ever. A command that was sent keeps the TPM until it answers.
func (k *Key) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	scheme, err := k.signScheme(digest, opts)
	if err != nil {
		return nil, fmt.Errorf("tpmkey: %w", err)
	}
	var signature []byte
	err = withinLimit(func(ctx context.Context) error {
		return k.tpm.Do(ctx, func(h *tpmop.Handles) (err error) {
			signature, err = k.sign(ctx, h, digest, scheme)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("tpmkey: %w", err)
	}
	if err := verifyOwn(k.key, digest, signature, opts); err != nil {
		return nil, fmt.Errorf("tpmkey: the TPM made a bad signature: %w", err)
	}
	return signature, nil
}

// limit is how long an operation without a context may take. Other users of the TPM may be
// creating RSA keys, which takes some of them ten seconds.
const limit = 30 * time.Second

// withinLimit runs f until it returns or the limit has passed. A command that the TPM does not
// answer cannot be taken back: its goroutine has the TPM's turn and ends with the answer, and
// until then every other caller that waits for that turn is in Do, which ends with its context. What f leaves
// in a variable is read only where there is no error.
func withinLimit(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	select {
	case err := <-recovered.Go(func() error { return f(ctx) }):
		return err
	case <-ctx.Done():
		return fmt.Errorf("no answer of the TPM within %s: %w", limit, ctx.Err())
	}
}

func (k *Key) sign(ctx context.Context, h *tpmop.Handles, digest []byte, scheme tpm2.TPMTSigScheme) ([]byte, error) {
	rsp, err := tpmop.Anew(func() (*tpm2.SignResponse, error) {
		loaded, err := k.Load(ctx, h)
		if err != nil {
			return nil, err
		}
		auth, err := k.authorizeUse(ctx, h, loaded)
		var rsp *tpm2.SignResponse
		if err == nil {
			rsp, err = tpmop.Run(ctx, h.TPM, tpm2.Sign{
				KeyHandle:  auth,
				Digest:     tpm2.TPM2BDigest{Buffer: digest},
				InScheme:   scheme,
				Validation: tpm2.TPMTTKHashCheck{Tag: tpm2.TPMSTHashCheck, Hierarchy: tpm2.TPMRHNull},
			}, "TPM2_Sign with 0x%08x", uint32(loaded.Handle))
		}
		return rsp, errors.Join(explainKeyRefusal(err), h.Flush(loaded.Handle))
	})
	if err != nil {
		return nil, err
	}
	return signatureBytes(&rsp.Signature)
}

// authorizeUse authorizes the USER role: by the password, or by the policy of a key for which
// the password by itself is not enough.
func (k *Key) authorizeUse(ctx context.Context, h *tpmop.Handles, loaded *tpmop.LoadedKey) (tpm2.AuthHandle, error) {
	if k.public.Attributes.Has(statement.AttributeUserWithAuth) {
		return h.AuthorizeKey(ctx, loaded)
	}
	var password []byte
	if k.policy.needsPassword() {
		if err := h.CheckLockout(ctx, loaded); err != nil {
			return tpm2.AuthHandle{}, err
		}
		password = loaded.Password.Reveal()
	}
	session, err := h.PolicySession(ctx, k.public.NameAlg, password, k.policy.run)
	return tpmop.WithSession(loaded.Handle, loaded.Name, session), err
}

// explainKeyRefusal explains a TPM's refusal of a key's use.
func explainKeyRefusal(err error) error {
	if errors.Is(err, tpm2.TPMRCPolicyFail) {
		return fmt.Errorf("%w: %w", ErrPCRPolicy, err)
	}
	return tpmop.ExplainKeyPassword(err)
}

// File is what Load restores this key from, on the same TPM.
func (k *Key) File() *File { return k.file.clone() }

// Close removes the key from the TPM; only its File can restore it. A second Close only retries the
// first's failed flushes. It waits for the TPM as long as Sign does.
func (k *Key) Close() error {
	k = cmp.Or(k, new(Key))
	err := withinLimit(func(ctx context.Context) error {
		err := k.tpm.Do(ctx, func(*tpmop.Handles) error {
			if k.held != 0 { // flushed like anything left over: only if it is still this key
				k.tpm.Left = append(k.tpm.Left, tpmop.OpenHandle{Handle: k.held, Name: k.public.Name()})
			}
			k.saved, k.held = nil, 0
			return nil
		})
		if err == nil {
			err = k.tpm.FlushLeft(ctx)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("tpmkey: close: %w", err)
	}
	return nil
}

var _ Certifiable = (*Key)(nil)
