package attesttest

import (
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/sha256"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
)

// shut is the outcome of an attack that came to nothing before there was a request:
// a credential does not open.
type shut string

func (s shut) Error() string { return "attesttest: the attack came to nothing: " + string(s) }

// DenyReason says that this is as good as a refusal.
func (shut) DenyReason() string { return "AttackFailed" }

// openCredential is TPM2_ActivateCredential (TPM 2.0 Library, Part 1, 24) of a TPM with
// a P-256 EK, SHA-256 and AES-128, that holds an object with this Name.
func openCredential(ek *ecdsa.PrivateKey, name []byte, c *attest.Credential) ([]byte, error) {
	point, err := tpm2.Unmarshal[tpm2.TPMSECCPoint](c.EncryptedSecret)
	if err != nil {
		return nil, shut("no point in the credential")
	}
	ephemeral, err := ecdsa.ParseUncompressedPublicKey(ek.Curve, append(append([]byte{4}, point.X.Buffer...), point.Y.Buffer...))
	if err != nil {
		return nil, shut("the credential's point is not on the EK's curve")
	}
	private, err := ek.ECDH()
	if err != nil {
		return nil, err
	}
	public, err := ephemeral.ECDH()
	if err != nil {
		return nil, err
	}
	z, err := private.ECDH(public)
	if err != nil {
		return nil, err
	}
	own := private.PublicKey().Bytes()
	seed := tpm2.KDFe(crypto.SHA256, z, "IDENTITY", point.X.Buffer, own[1:1+len(own)/2], 256)
	if len(c.IDObject) < 2+sha256.Size {
		return nil, shut("a credential that is too short")
	}
	tag, sealed := c.IDObject[2:2+sha256.Size], c.IDObject[2+sha256.Size:]
	mac := hmac.New(sha256.New, tpm2.KDFa(crypto.SHA256, seed, "INTEGRITY", nil, nil, 256))
	mac.Write(sealed)
	mac.Write(name)
	if !hmac.Equal(mac.Sum(nil), tag) {
		return nil, shut("the credential is not for this EK and this AK")
	}
	block, err := aes.NewCipher(tpm2.KDFa(crypto.SHA256, seed, "STORAGE", name, nil, 128))
	if err != nil {
		return nil, err
	}
	opened := make([]byte, len(sealed))
	//lint:ignore SA1019 the TPM speaks CFB
	cipher.NewCFBDecrypter(block, make([]byte, block.BlockSize())).XORKeyStream(opened, sealed)
	if len(opened) < 2 {
		return nil, shut("a credential without a secret")
	}
	return opened[2:], nil
}
