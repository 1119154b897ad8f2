package tpm

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"testing"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// hidden is secret.New where a test has a variable of that name.
func hidden(b []byte) secret.Value[[]byte] { return secret.New(b) }

// Every type of this package that can hold a secret keeps it out of logs, errors and
// encoded objects. A type that gets one belongs here.
func TestSecretsAreNotShown(t *testing.T) {
	password, other := []byte("owner-pass-1234"), []byte("its own, 5678 word")
	t.Run("TPMKeyOptions", func(t *testing.T) {
		testkit.CheckSecrets(t, tpmkey.Options{OwnerPassword: hidden(password), Password: hidden(other)}, password, other)
	})
	t.Run("TPMKeyLoadOptions", func(t *testing.T) {
		testkit.CheckSecrets(t, tpmkey.LoadOptions{OwnerPassword: hidden(password), Password: hidden(other)}, password, other)
	})
	t.Run("NVCertificateOptions", func(t *testing.T) {
		testkit.CheckSecrets(t, tpmkey.NVCertificateOptions{OwnerPassword: hidden(password)}, password)
	})
	t.Run("ProverOptions", func(t *testing.T) {
		testkit.CheckSecrets(t, ProverOptions{EndorsementPassword: hidden(password)}, password)
	})
	t.Run("Prover", func(t *testing.T) {
		a, err := NewProver(tpmsim.New(t, tpmsim.Options{}), AKSource{Template: AKTemplateECDSAP256()}, ProverOptions{
			EndorsementPassword: hidden(password), Certificates: [][]byte{{0x30, 0}}})
		testkit.NoError(t, err)
		testkit.CheckSecrets(t, a, password)
	})
	t.Run("TPMKey", func(t *testing.T) {
		key, err := tpmkey.Create(t.Context(), tpmsim.New(t, tpmsim.Options{}), tpmkey.ECDSAP256, tpmkey.Options{Password: hidden(bytes.Clone(password))})
		testkit.NoError(t, err)
		defer key.Close()
		testkit.CheckSecrets(t, key, password)
	})
	t.Run("loadedKey", func(t *testing.T) { testkit.CheckSecrets(t, tpmop.LoadedKey{Password: hidden(password)}, password) })
	checkSoftwareKeysAreNotShown(t)
}

func checkSoftwareKeysAreNotShown(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.NoError(t, err)
	scalar, err := ec.Bytes()
	testkit.NoError(t, err)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	testkit.NoError(t, err)
	for name, c := range map[string]struct {
		key     crypto.Signer
		secrets [][]byte
	}{
		"SoftwareKey, ECDSA": {ec, [][]byte{scalar}},
		"SoftwareKey, RSA":   {rsaKey, [][]byte{rsaKey.D.Bytes(), rsaKey.Primes[0].Bytes(), rsaKey.Primes[1].Bytes()}},
	} {
		t.Run(name, func(t *testing.T) {
			key, err := tpmkey.SoftwareKey(c.key)
			testkit.NoError(t, err)
			testkit.CheckSecrets(t, key, c.secrets...)
		})
	}
}
