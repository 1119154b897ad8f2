package tpm

import (
	"bytes"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"math/big"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmwire"
)

// openCredential opens a credential as a TPM does (TPM 2.0 Library, Part 1, 24.4),
// for an EK whose private key is known, on the standard library alone.
func openCredential(ek crypto.Signer, hash crypto.Hash, keySize int, name []byte, c *attest.Credential) ([]byte, error) {
	seed, err := openSeed(ek, hash, c.EncryptedSecret)
	if err != nil {
		return nil, err
	}
	s := cryptobyte.String(c.IDObject)
	var mac, identity []byte
	if !tpmwire.ReadTPM2B(&s, &mac, 64) {
		return nil, errors.New("no HMAC")
	}
	identity = s
	check := hmac.New(hash.New, kdfa(hash, seed, "INTEGRITY", nil, hash.Size()))
	check.Write(identity)
	check.Write(name)
	if !hmac.Equal(check.Sum(nil), mac) {
		return nil, errors.New("the HMAC does not hold")
	}
	block, err := aes.NewCipher(kdfa(hash, seed, "STORAGE", name, keySize))
	if err != nil {
		return nil, err
	}
	plain := make([]byte, len(identity))
	cipher.NewCFBDecrypter(block, make([]byte, aes.BlockSize)).XORKeyStream(plain, identity) //nolint:staticcheck // what TPMs do
	s = plain
	var secret []byte
	if !tpmwire.ReadTPM2B(&s, &secret, 64) || !s.Empty() {
		return nil, errors.New("no secret in it")
	}
	return secret, nil
}

// openSeed is Part 1, B.10.4 (RSA-OAEP with the label IDENTITY) and C.6.4 (one-pass
// ECDH and KDFe).
func openSeed(ek crypto.Signer, hash crypto.Hash, encrypted []byte) ([]byte, error) {
	if k, ok := ek.(*rsa.PrivateKey); ok {
		return rsa.DecryptOAEP(hash.New(), nil, k, encrypted, []byte("IDENTITY\x00"))
	}
	k, err := ek.(*ecdsa.PrivateKey).ECDH()
	if err != nil {
		return nil, err
	}
	s := cryptobyte.String(encrypted)
	var x, y []byte
	if !tpmwire.ReadTPM2B(&s, &x, 66) || !tpmwire.ReadTPM2B(&s, &y, 66) || !s.Empty() {
		return nil, errors.New("no point")
	}
	width := (len(k.PublicKey().Bytes()) - 1) / 2
	point := append([]byte{4}, new(big.Int).SetBytes(x).FillBytes(make([]byte, width))...)
	other, err := k.Curve().NewPublicKey(append(point, new(big.Int).SetBytes(y).FillBytes(make([]byte, width))...))
	if err != nil {
		return nil, err
	}
	z, err := k.ECDH(other)
	if err != nil {
		return nil, err
	}
	h := hash.New() // KDFe, Part 1, 11.4.10.3: one round is enough for a digest
	h.Write([]byte{0, 0, 0, 1})
	h.Write(z)
	h.Write([]byte("IDENTITY\x00"))
	h.Write(point[1 : 1+width])
	h.Write(k.PublicKey().Bytes()[1 : 1+width])
	return h.Sum(nil), nil
}

// kdfa is Part 1, 11.4.10.2, without a second context.
func kdfa(hash crypto.Hash, key []byte, label string, context []byte, size int) []byte {
	h := hmac.New(hash.New, key)
	h.Write([]byte{0, 0, 0, 1})
	h.Write(append([]byte(label), 0))
	h.Write(context)
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(8*size)))
	return h.Sum(nil)[:size]
}

// toolsCredential reads the file that tpm2_makecredential writes: magic, version, and
// both parts with their sizes.
func toolsCredential(t testing.TB, file []byte) *attest.Credential {
	t.Helper()
	s := cryptobyte.String(file)
	var magic, version uint32
	c := &attest.Credential{}
	if !s.ReadUint32(&magic) || magic != 0xBADCC0DE || !s.ReadUint32(&version) || version != 1 ||
		!tpmwire.ReadTPM2B(&s, &c.IDObject, 256) || !tpmwire.ReadTPM2B(&s, &c.EncryptedSecret, 1024) || !s.Empty() {
		t.Fatalf("not a file of tpm2_makecredential: %x", file)
	}
	return c
}

// toolsFile is the reverse.
func toolsFile(t testing.TB, c *attest.Credential) []byte {
	t.Helper()
	b := cryptobyte.NewBuilder([]byte{0xBA, 0xDC, 0xC0, 0xDE, 0, 0, 0, 1})
	tpmwire.AddTPM2B(b, c.IDObject)
	tpmwire.AddTPM2B(b, c.EncryptedSecret)
	return b.BytesOrPanic()
}

// softwareEKs are EKs of every kind with what credentials for them are made with.
func softwareEKs(t testing.TB) map[string]struct {
	key     crypto.Signer
	hash    crypto.Hash
	keySize int
} {
	type ek = struct {
		key     crypto.Signer
		hash    crypto.Hash
		keySize int
	}
	return map[string]ek{
		"RSA-2048": {tpmlab.RSA2048(), crypto.SHA256, 16},
		"RSA-3072": {tpmlab.RSA3072(), crypto.SHA384, 32},
		"P-256":    {tpmlab.NewECDSA(t, elliptic.P256()), crypto.SHA256, 16},
		"P-384":    {tpmlab.NewECDSA(t, elliptic.P384()), crypto.SHA384, 32},
	}
}

func TestCredentialOpens(t *testing.T) {
	secret := bytes.Repeat([]byte{0x5e}, message.SecretSize)
	name := someAKName(t)
	for kind, ek := range softwareEKs(t) {
		c, err := makeCredential(rand.Reader, ek.key.Public(), name, secret)
		if err != nil {
			t.Fatal(kind, err)
		}
		got, err := openCredential(ek.key, ek.hash, ek.keySize, name, c)
		if err != nil || !bytes.Equal(got, secret) {
			t.Errorf("%s: %x, %v", kind, got, err)
		}
		other := bytes.Clone(name)
		other[5] ^= 1
		if _, err := openCredential(ek.key, ek.hash, ek.keySize, other, c); err == nil {
			t.Errorf("%s: opens for another AK", kind)
		}
		for i := range c.IDObject {
			c.IDObject[i] ^= 1
			if got, err := openCredential(ek.key, ek.hash, ek.keySize, name, c); err == nil {
				t.Errorf("%s: opens to %x with byte %d changed", kind, got, i)
			}
			c.IDObject[i] ^= 1
		}
		if bytes.Contains(append(c.IDObject, c.EncryptedSecret...), secret) {
			t.Errorf("%s: the secret is in the clear", kind)
		}
	}
}

// someAKName is the Name of some AK.
func someAKName(t testing.TB) []byte {
	t.Helper()
	area := ecdsaAK(tpm2.TPMECCNistP256, tpm2.TPMAlgSHA256, 32)
	public, err := statement.ParsePublic(tpm2.Marshal(area))
	testkit.NoError(t, err)
	return public.Name()
}

// Two credentials with one secret differ: the seed is fresh. One from the same random
// bytes is the same but for the ephemeral key or padding.
func TestCredentialsAreFresh(t *testing.T) {
	ek := tpmlab.NewECDSA(t, elliptic.P384())
	a, err := makeCredential(rand.Reader, ek.Public(), someAKName(t), make([]byte, 32))
	testkit.NoError(t, err)
	b, err := makeCredential(rand.Reader, ek.Public(), someAKName(t), make([]byte, 32))
	testkit.NoError(t, err)
	if bytes.Equal(a.EncryptedSecret, b.EncryptedSecret) || bytes.Equal(a.IDObject, b.IDObject) {
		t.Error("two credentials share a seed")
	}
	if len(a.EncryptedSecret) != 2*(2+48) {
		t.Errorf("a point of %d bytes", len(a.EncryptedSecret))
	}
	if _, err := makeCredential(bytes.NewReader(nil), tpmlab.RSA2048().Public(), someAKName(t), make([]byte, 32)); err == nil {
		t.Error("a credential without random bytes")
	}
}

func TestKindsOfEK(t *testing.T) {
	exponent3 := *tpmlab.RSA2048().Public().(*rsa.PublicKey)
	exponent3.E = 3
	for name, key := range map[string]crypto.PublicKey{
		"exponent 3": &exponent3,
		"RSA-1024":   &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 1023), E: 65537},
		"RSA-4096":   &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 4095), E: 65537},
		"RSA-2047":   &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2046), E: 65537},
		"P-224":      tpmlab.NewECDSA(t, elliptic.P224()).Public(),
		"P-521":      tpmlab.NewECDSA(t, elliptic.P521()).Public(),
		"nil RSA":    (*rsa.PublicKey)(nil),
		"empty RSA":  &rsa.PublicKey{},
		"nil ECDSA":  (*ecdsa.PublicKey)(nil),
		"ECDH":       mustGet(ecdh.P256().GenerateKey(rand.Reader)).PublicKey(),
		"nothing":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := makeCredential(rand.Reader, key, someAKName(t), make([]byte, 32)); !errors.Is(err, tpmop.CheckEKType) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	off := *tpmlab.NewECDSA(t, elliptic.P256()).Public().(*ecdsa.PublicKey)
	off.Y = new(big.Int).Add(off.Y, big.NewInt(1)) //nolint:staticcheck // deliberately invalid
	t.Run("off the curve", func(t *testing.T) {
		if c, err := makeCredential(rand.Reader, &off, someAKName(t), make([]byte, 32)); !errors.Is(err, statement.CheckPoint) || c != nil {
			t.Errorf("%v, %v", c, err)
		}
	})
}

func mustGet[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// The corpus has credentials by tpm2_makecredential for EKs whose private keys are
// known, and one for a P-384 EK of swtpm. The opener of this file opens theirs, and so
// ours are held against it for the same keys.
func TestCredentialCorpus(t *testing.T) {
	secret, name := tpmlab.Corpus(t, "credential-kat", "secret.bin"), tpmlab.Corpus(t, "credential-kat", "ak.name")
	for _, kind := range []string{"rsa", "ecc"} {
		block, _ := pem.Decode(tpmlab.Corpus(t, "credential-kat", "ek-"+kind+".key"))
		key := mustGet(x509.ParsePKCS8PrivateKey(block.Bytes)).(crypto.Signer)
		theirs := toolsCredential(t, tpmlab.Corpus(t, "credential-kat", kind+".blob"))
		got, err := openCredential(key, crypto.SHA256, 16, name, theirs)
		if err != nil || !bytes.Equal(got, secret) {
			t.Errorf("%s: %q, %v", kind, got, err)
		}
		block, _ = pem.Decode(tpmlab.Corpus(t, "credential-kat", "ek-"+kind+".pem"))
		ours, err := makeCredential(rand.Reader, mustGet(x509.ParsePKIXPublicKey(block.Bytes)), name, secret)
		if err != nil {
			t.Fatal(kind, err)
		}
		if len(ours.IDObject) != len(theirs.IDObject) || len(ours.EncryptedSecret) != len(theirs.EncryptedSecret) {
			t.Errorf("%s: parts of %d and %d bytes, theirs %d and %d", kind, len(ours.IDObject), len(ours.EncryptedSecret),
				len(theirs.IDObject), len(theirs.EncryptedSecret))
		}
		if got, err := openCredential(key, crypto.SHA256, 16, name, ours); err != nil || !bytes.Equal(got, secret) {
			t.Errorf("%s, ours: %q, %v", kind, got, err)
		}
	}
	// No private key here: sizes and template are what can be compared.
	live := toolsCredential(t, tpmlab.Corpus(t, "credential-kat", "p384-live", "blob"))
	block, _ := pem.Decode(tpmlab.Corpus(t, "credential-kat", "p384-live", "ek384.pem"))
	ours, err := makeCredential(rand.Reader, mustGet(x509.ParsePKIXPublicKey(block.Bytes)), name, tpmlab.Corpus(t, "credential-kat", "p384-live", "secret"))
	testkit.NoError(t, err)
	if len(ours.IDObject) != len(live.IDObject) || len(ours.EncryptedSecret) != len(live.EncryptedSecret) {
		t.Errorf("P-384: parts of %d and %d bytes, theirs %d and %d", len(ours.IDObject), len(ours.EncryptedSecret), len(live.IDObject), len(live.EncryptedSecret))
	}
	public, err := statement.ParsePublic(tpmlab.Corpus(t, "credential-kat", "p384-live", "ek384.pub")[2:])
	testkit.NoError(t, err)
	if err := checkEKPublic(public); err != nil {
		t.Error(err)
	}
	template := mustGet(statement.ParsePublic(tpm2.Marshal(EKHigh(3).Template)))
	if !bytes.Equal(public.BeforeUnique(), template.BeforeUnique()) {
		t.Errorf("swtpm's P-384 EK is not of template H-3:\n%x\n%x", public.BeforeUnique(), template.BeforeUnique())
	}
}
