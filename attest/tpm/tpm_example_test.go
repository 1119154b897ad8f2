package tpm_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A key that the TPM made signs a certificate request.
func ExampleCreateTPMKey() {
	tpm, err := tpmsim.Open(nil) // on a node: linuxtpm.Open("/dev/tpmrm0")
	if err != nil {
		log.Fatal(err)
	}
	defer tpm.Close()

	key, err := tpmkind.CreateTPMKey(context.Background(), tpm, tpmkind.KeyECDSAP256, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer key.Close()

	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:worker-1", Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		log.Fatal(err)
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(request.Subject, request.SignatureAlgorithm, request.CheckSignature())
	// Output: CN=system:node:worker-1,O=system:nodes ECDSA-SHA256 <nil>
}

// The endorsement hierarchy gets a password at the first start, and has it at
// every later one.
func ExampleEndorsementPassword() {
	tpm, err := tpmsim.Open(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tpm.Close()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "endorsement-password")

	first, err := tpmkind.EndorsementPassword(context.Background(), tpm, path)
	if err != nil {
		log.Fatal(err)
	}
	second, err := tpmkind.EndorsementPassword(context.Background(), tpm, path)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first, len(first.Reveal()), bytes.Equal(first.Reveal(), second.Reveal()))
	// Output: [secret] 32 true
}

// The certificate request's key is in memory: only keys that a TPM takes will do.
func ExampleSoftwareKey() {
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P224()} {
		private, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := tpmkind.SoftwareKey(private); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(curve.Params().Name, "can be certified")
	}
	// Output:
	// P-256 can be certified
	// attest: software key: curve: got P-224, want P-256, P-384 or P-521
}

// An Attester, a TLS key and the program's own commands use one TPM.
func ExampleShareTPM() {
	device, err := tpmsim.Open(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	tpm := tpmkind.ShareTPM(device)

	prover, err := tpmkind.NewProver(tpm, tpmkind.GCERSA(), tpmkind.ProverOptions{})
	if err != nil {
		log.Fatal(err)
	}
	attester, err := attest.NewAttester(prover)
	if err != nil {
		log.Fatal(err)
	}
	defer attester.Close()
	key, err := tpmkind.CreateTPMKey(context.Background(), tpm, tpmkind.KeyRSA2048, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer key.Close()
	random, err := tpm2.GetRandom{BytesRequested: 16}.Execute(tpm)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(random.RandomBytes.Buffer))
	// Output: 16
}
