package tpmkey_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A key that the TPM made signs a certificate request.
func ExampleCreate() {
	tpm, err := tpmsim.Open(tpmsim.Options{}) // on a node: linuxtpm.Open("/dev/tpmrm0")
	if err != nil {
		log.Fatal(err)
	}
	defer tpm.Close()

	key, err := tpmkey.Create(context.Background(), tpm, tpmkey.ECDSAP256, tpmkey.Options{})
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

// The certificate request's key is in memory: only keys that a TPM takes will do.
func ExampleSoftwareKey() {
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P224()} {
		private, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := tpmkey.SoftwareKey(private); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(curve.Params().Name, "can be certified")
	}
	// Output:
	// P-256 can be certified
	// tpmkey: software key: curve: got P-224, want P-256, P-384 or P-521
}
