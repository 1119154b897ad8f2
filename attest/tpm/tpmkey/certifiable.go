package tpmkey

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
	"github.com/nodeattest/nodeattest/secret"
)

// Certifiable is a key that the TPM certifies for a request: a SoftwareKey or a *Key.
// There are no others.
type Certifiable interface {
	// Signer signs the request. Its Public is the key that the request is for: an
	// *ecdsa.PublicKey or an *rsa.PublicKey.
	crypto.Signer

	// Load puts the key into the TPM, if it is not there; h.Flush then takes it out again, and
	// leaves a key alone that was there.
	Load(ctx context.Context, h *tpmop.Handles) (*tpmop.LoadedKey, error)
}

// SoftwareKey makes a key in this process's memory certifiable: an *ecdsa.PrivateKey on P-256
// or P-384, or on P-521 if the TPM has it, or an *rsa.PrivateKey of 2048, 3072 or 4096 bits
// with two primes of the same size and the exponent 65537; many TPMs stop at 2048.
// TPM2_LoadExternal puts both parts of it into the TPM's null hierarchy for the moment of
// certification, so the TPM sees the private key; it goes there encrypted to a key of the TPM.
// Sign is the key's own. A statement about it says that this machine holds the key, not that
// the key cannot leave it: that takes a Key.
func SoftwareKey(key crypto.Signer) (Certifiable, error) {
	var k *softwareKey
	var err error
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		k, err = newSoftwareECDSA(key)
	case *rsa.PrivateKey:
		k, err = newSoftwareRSA(key)
	default:
		err = fmt.Errorf("got a %T, want an *ecdsa.PrivateKey or an *rsa.PrivateKey", key)
	}
	if err != nil {
		return nil, fmt.Errorf("tpmkey: software key: %w", err)
	}
	return k, nil
}

// softwareKey is an external key's two parts, ready to be loaded.
type softwareKey struct {
	signer    secret.Value[crypto.Signer]
	key       crypto.PublicKey
	public    *tpm2.TPMTPublic
	sensitive secret.Value[tpm2.TPMTSensitive]
}

// Public is the key's public part.
func (k *softwareKey) Public() crypto.PublicKey { return k.key }

// Sign signs with the key itself, in this process.
func (k *softwareKey) Sign(random io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	return k.signer.Reveal().Sign(random, digest, opts)
}

func (k *softwareKey) Load(ctx context.Context, h *tpmop.Handles) (*tpmop.LoadedKey, error) {
	isOurs := func(p *statement.Public) bool { return p.SameKey(k.key) }
	external, err := tpmop.Encrypt(ctx, h, tpm2.LoadExternal{
		InPrivate: tpm2.New2B(k.sensitive.Reveal()),
		InPublic:  tpm2.New2B(*k.public),
		Hierarchy: tpm2.TPMRHNull,
	})
	if err != nil {
		return nil, err
	}
	rsp, err := tpmop.Load(ctx, h, isOurs, external, "TPM2_LoadExternal")
	if err != nil {
		return nil, err
	}
	h.Keep(rsp.ObjectHandle, rsp.Name.Buffer)
	// A TPM may write a public area differently from the one it was given: the bytes under the
	// Name are its own.
	return tpmop.ReadPublic(ctx, h, rsp.ObjectHandle)
}

// externalAttributes are an external key's: a TPM refuses fixedTPM, fixedParent and
// restricted on it. noDA exempts the key from the counting of wrong passwords, so that neither
// a lockout nor a crash midway matters.
var externalAttributes = tpm2.TPMAObject{UserWithAuth: true, NoDA: true, SignEncrypt: true}

func newSoftwareECDSA(key *ecdsa.PrivateKey) (*softwareKey, error) {
	//nolint:staticcheck // Bytes panics where a part is nil, and nothing else tells
	if key == nil || key.Curve == nil || key.D == nil || key.X == nil || key.Y == nil {
		return nil, errors.New("no key")
	}
	curve, ok := tpmwire.CurveOfKey(&key.PublicKey)
	if !ok {
		return nil, fmt.Errorf("curve: got %s, want P-256, P-384 or P-521", key.Curve.Params().Name)
	}
	scalar, _ := key.Bytes() // full width; nil if a part is out of range, which is not a key
	if again, err := ecdsa.ParseRawPrivateKey(key.Curve, scalar); err != nil || !again.PublicKey.Equal(&key.PublicKey) {
		return nil, errors.New("its private and public parts do not belong together")
	}
	point, _ := key.PublicKey.Bytes() // 04, X and Y in full width: it is on the curve, because again is
	x, y := point[1:1+curve.Width], point[1+curve.Width:]
	return newSoftwareKey(key, tpmop.ECCKeyArea(tpm2.TPMSECCParms{CurveID: curve.ID}, externalAttributes, x, y),
		tpm2.NewTPMUSensitiveComposite(tpm2.TPMAlgECC, &tpm2.TPM2BECCParameter{Buffer: scalar})), nil
}

func newSoftwareRSA(key *rsa.PrivateKey) (*softwareKey, error) {
	if key == nil || key.N == nil {
		return nil, errors.New("no key")
	}
	bits := key.N.BitLen()
	switch {
	case bits != 2048 && bits != 3072 && bits != 4096:
		return nil, fmt.Errorf("RSA of %d bits, want 2048, 3072 or 4096", bits)
	case key.E != 65537:
		return nil, fmt.Errorf("RSA exponent: got %d, want 65537", key.E)
	case len(key.Primes) != 2:
		return nil, fmt.Errorf("RSA with %d primes: a TPM takes two", len(key.Primes))
	}
	if err := key.Validate(); err != nil {
		return nil, err
	}
	if p, q := key.Primes[0].BitLen(), key.Primes[1].BitLen(); p != bits/2 || q != bits/2 {
		return nil, fmt.Errorf("RSA with primes of %d and %d bits: a TPM takes %d each", p, q, bits/2)
	}
	area := tpmop.RSAKeyArea(tpm2.TPMSRSAParms{KeyBits: tpm2.TPMKeyBits(bits)}, externalAttributes, key.N.Bytes())
	prime := &tpm2.TPM2BPrivateKeyRSA{Buffer: key.Primes[0].Bytes()}
	return newSoftwareKey(key, area, tpm2.NewTPMUSensitiveComposite(tpm2.TPMAlgRSA, prime)), nil
}

// newSoftwareKey puts the forms of one key together: public and private are the TPM's.
func newSoftwareKey(key crypto.Signer, public *tpm2.TPMTPublic, private tpm2.TPMUSensitiveComposite) *softwareKey {
	return &softwareKey{signer: secret.New(key), key: key.Public(), public: public,
		sensitive: secret.New(tpm2.TPMTSensitive{SensitiveType: public.Type, Sensitive: private})}
}

// KeyOf returns the key in the form in which the TPM certifies it.
func KeyOf(signer crypto.Signer) (Certifiable, error) {
	if key, ok := signer.(Certifiable); ok {
		return key, nil
	}
	return SoftwareKey(signer)
}
