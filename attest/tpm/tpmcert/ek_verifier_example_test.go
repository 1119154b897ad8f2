package tpmcert_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// exampleEK is an EK certificate of a simulated TPM, with its CA.
func exampleEK() (*tpmsim.CA, []byte) {
	ca, err := tpmsim.NewCA(tpmsim.CAOptions{})
	if err != nil {
		log.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	cert, err := ca.IssueEK(key.Public(), tpmsim.CertificateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	return ca, cert.Raw
}

// An EK certificate as it stands in an NV index: with padding after it.
func ExampleParseEK() {
	_, der := exampleEK()
	ek, err := tpmcert.ParseEK(append(der, 0xff, 0xff, 0xff))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ek.Encoding == tpmcert.EKEncoding{NVPadding: true})
	fmt.Println(ek.Directory.Vendor, ek.Directory.Model, ek.Directory.Version)
	fmt.Println(ek.Identity().Kind())
	// Output:
	// true
	// SIM tpmsim id:00010000
	// ek
}

// A vendor's root is trusted under a profile, and some of the vendor's firmware is not.
func ExampleEKVerifier_Verify() {
	ca, der := exampleEK()
	config := tpmcert.EKVerifierConfig{
		Issuers: []tpmcert.EKIssuer{{
			Roots:         []*x509.Certificate{ca.Root()},
			Intermediates: ca.Intermediates(),
			Profile:       tpmcert.EKProfileTCG(),
		}},
	}
	verifier, err := tpmcert.NewEKVerifier(config)
	if err != nil {
		log.Fatal(err)
	}
	ek, err := tpmcert.ParseEKPresented([][]byte{der}, nil)
	if err != nil {
		log.Fatal(err)
	}
	facts, err := verifier.Verify(context.Background(), ek, nil, time.Now(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(facts.Source, facts.Profile, len(facts.Chain), facts.Tolerances)

	config.Denied = []tpmcert.DeniedTPM{{Vendor: "SIM", First: 1 << 16, Last: 1<<16 | 0xffff, Reason: "an example"}}
	if verifier, err = tpmcert.NewEKVerifier(config); err != nil {
		log.Fatal(err)
	}
	_, err = verifier.Verify(context.Background(), ek, nil, time.Now(), nil)
	fmt.Println(errors.Is(err, tpmcert.CheckTPMDenied))
	// Output:
	// certificate TCG EK 3 []
	// true
}

// hostFetcher goes to hosts that it was told of and nowhere else.
type hostFetcher struct {
	prefix string
	get    func(ctx context.Context, url string) ([]byte, error)
}

func (f hostFetcher) FetchIssuer(ctx context.Context, url string) ([]byte, error) {
	if !strings.HasPrefix(url, f.prefix) {
		return nil, nil
	}
	return f.get(ctx, url)
}

// A fetcher is asked for the URLs of certificates that are not verified yet.
func ExampleIssuerFetcher() {
	fetcher := hostFetcher{"https://pki.infineon.com/", func(context.Context, string) ([]byte, error) {
		return []byte("a certificate"), nil // over HTTP in a real one
	}}
	for _, url := range []string{"https://pki.infineon.com/OptigaRsaMfrCA003/OptigaRsaMfrCA003.crt", "http://169.254.169.254/"} {
		der, err := fetcher.FetchIssuer(context.Background(), url)
		fmt.Println(len(der), err)
	}
	// Output:
	// 13 <nil>
	// 0 <nil>
}
