package tpmkey_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A key with a password is kept in a file that OpenSSL's tpm2 provider reads too, and
// is there again after the machine was off. The file is of no use without the TPM.
func ExampleLoad() {
	ctx := context.Background()
	tpm, err := tpmsim.Open(tpmsim.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer tpm.Close()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "kubelet.tss2.pem")

	made, err := tpmkey.Create(ctx, tpm, tpmkey.ECDSAP256, tpmkey.Options{Password: secret.New([]byte("secret"))})
	if err != nil {
		log.Fatal(err)
	}
	contents, err := made.File().Marshal()
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(path, contents, 0o600); err != nil {
		log.Fatal(err)
	}

	if err := tpm.Reset(); err != nil {
		log.Fatal(err)
	}
	if contents, err = os.ReadFile(path); err != nil {
		log.Fatal(err)
	}
	file, err := tpmkey.ParseFile(contents)
	if err != nil {
		log.Fatal(err)
	}
	digest := sha256.Sum256([]byte("message"))
	for _, password := range []string{"secret", "guess"} {
		key, err := tpmkey.Load(ctx, tpm, file, tpmkey.LoadOptions{Password: secret.New([]byte(password))})
		if err != nil {
			log.Fatal(err)
		}
		_, err = key.Sign(nil, digest[:], crypto.SHA256)
		fmt.Println(password, err == nil, errors.Is(err, tpmkey.ErrPassword))
		if err := key.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// secret true false
	// guess false true
}

// A key is bound to the values that PCR 23 has when the key is made.
func ExampleOptions() {
	ctx := context.Background()
	tpm, err := tpmsim.Open(tpmsim.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer tpm.Close()
	key, err := tpmkey.Create(ctx, tpm, tpmkey.ECDSAP256, tpmkey.Options{
		PCRs: []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0, 0, 1 << (23 - 16)}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer key.Close()

	digest := sha256.Sum256([]byte("message"))
	_, err = key.Sign(nil, digest[:], crypto.SHA256)
	fmt.Println("before:", err)

	extend := tpm2.PCRExtend{
		PCRHandle: tpm2.AuthHandle{Handle: 23, Auth: tpm2.PasswordAuth(nil)},
		Digests:   tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: tpm2.TPMAlgSHA256, Digest: digest[:]}}},
	}
	if _, err := extend.Execute(tpm); err != nil {
		log.Fatal(err)
	}
	_, err = key.Sign(nil, digest[:], crypto.SHA256)
	fmt.Println("after: refused by the PCRs:", errors.Is(err, tpmkey.ErrPCRPolicy))
	// Output:
	// before: <nil>
	// after: refused by the PCRs: true
}

// A certificate is kept in the TPM, with its key.
func ExampleWriteNVCertificate() {
	ctx := context.Background()
	tpm, err := tpmsim.Open(tpmsim.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer tpm.Close()
	key, err := tpmkey.Create(ctx, tpm, tpmkey.ECDSAP256, tpmkey.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer key.Close()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:worker-1"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		log.Fatal(err)
	}

	const index = 0x01800001 // one that the owner may assign
	if err := tpmkey.WriteNVCertificate(ctx, tpm, index, der, tpmkey.NVCertificateOptions{}); err != nil {
		log.Fatal(err)
	}
	if der, err = tpmkey.ReadNVCertificate(ctx, tpm, index); err != nil {
		log.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(certificate.Subject)
	// Output: CN=system:node:worker-1
}
