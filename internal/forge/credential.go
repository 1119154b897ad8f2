package forge

import (
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	_ "crypto/sha512" // SHA-384, of the larger EKs
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"

	"github.com/nodeattest/nodeattest/attest"
)

// CredentialFault is why a TPM does not open a credential. TPM2_ActivateCredential has
// other codes for it, and not the same in every TPM.
type CredentialFault string

// The faults of a credential.
const (
	// FaultSize: a part is cut short, too long, or its own sizes do not add up.
	FaultSize CredentialFault = "credential-size"
	// FaultSeed: the RSA ciphertext does not decrypt to a seed.
	FaultSeed CredentialFault = "credential-seed"
	// FaultPoint: the ephemeral key is not on the EK's curve.
	FaultPoint CredentialFault = "credential-point"
	// FaultIntegrity: the HMAC does not hold over the identity and the AK's Name.
	FaultIntegrity CredentialFault = "credential-integrity"
)

// Error returns the stable name.
func (f CredentialFault) Error() string { return string(f) }

// parametersOf gives hash and AES key size, in bits, of credentials for an EK: the
// templates of the TCG EK Credential Profile 2.6, B.3 and B.4, by the EK's kind alone.
func parametersOf(ek any) (crypto.Hash, int, error) {
	size := 0
	switch k := ek.(type) {
	case *rsa.PrivateKey:
		size = k.N.BitLen()
	case *ecdsa.PrivateKey:
		size = k.Params().BitSize
	}
	switch size {
	case 2048, 256:
		return crypto.SHA256, 128, nil
	case 3072, 384:
		return crypto.SHA384, 256, nil
	}
	return 0, 0, fmt.Errorf("an EK of type %T for which there are no credentials", ek)
}

// OpenCredential is what a TPM does in TPM2_ActivateCredential (TPM 2.0 Library, Part
// 1, 24): the seed, the HMAC, and only then the secret.
func OpenCredential(ek any, akName []byte, c *attest.Credential) ([]byte, error) {
	hash, bits, err := parametersOf(ek)
	if err != nil {
		return nil, err
	}
	s := cryptobyte.String(c.IDObject)
	var mac cryptobyte.String
	if !s.ReadUint16LengthPrefixed(&mac) || len(mac) > hash.Size() {
		return nil, FaultSize
	}
	identity := []byte(s)
	seed, err := openSeed(ek, hash, c.EncryptedSecret)
	if err != nil {
		return nil, err
	}
	check := hmac.New(hash.New, tpm2.KDFa(hash, seed, "INTEGRITY", nil, nil, 8*hash.Size()))
	check.Write(identity)
	check.Write(akName)
	if !hmac.Equal(check.Sum(nil), mac) {
		return nil, FaultIntegrity
	}
	block, err := aes.NewCipher(tpm2.KDFa(hash, seed, "STORAGE", akName, nil, bits))
	if err != nil {
		return nil, err
	}
	plain := make([]byte, len(identity))
	cipher.NewCFBDecrypter(block, make([]byte, aes.BlockSize)).XORKeyStream(plain, identity) //nolint:staticcheck // what TPMs do
	s = plain
	var secret cryptobyte.String
	if !s.ReadUint16LengthPrefixed(&secret) || !s.Empty() || len(secret) != sha256.Size {
		return nil, FaultSize
	}
	return secret, nil
}

// openSeed is Part 1, B.10.4 (RSA-OAEP with the label IDENTITY) and C.6.4 (one-pass
// ECDH and KDFe).
func openSeed(ek any, hash crypto.Hash, encrypted []byte) ([]byte, error) {
	k, isRSA := ek.(*rsa.PrivateKey)
	if isRSA {
		if len(encrypted) != k.Size() {
			return nil, FaultSize
		}
		seed, err := rsa.DecryptOAEP(hash.New(), nil, k, encrypted, []byte("IDENTITY\x00"))
		if err != nil || len(seed) != hash.Size() {
			return nil, FaultSeed
		}
		return seed, nil
	}
	private, err := ek.(*ecdsa.PrivateKey).ECDH()
	if err != nil {
		return nil, err
	}
	own := private.PublicKey().Bytes()[1:]
	width := len(own) / 2
	s := cryptobyte.String(encrypted)
	var x, y cryptobyte.String
	if !s.ReadUint16LengthPrefixed(&x) || !s.ReadUint16LengthPrefixed(&y) || !s.Empty() || len(x) != width || len(y) != width {
		return nil, FaultSize
	}
	ephemeral, err := private.Curve().NewPublicKey(append(append([]byte{4}, x...), y...))
	if err != nil {
		return nil, FaultPoint
	}
	z, err := private.ECDH(ephemeral)
	if err != nil {
		return nil, FaultPoint
	}
	return tpm2.KDFe(hash, z, "IDENTITY", x, own[:width], 8*hash.Size()), nil
}
