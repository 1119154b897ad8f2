package csr_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// A node makes its request and puts evidence after it; a control plane reads both.
func Example_bundle() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		fmt.Println(err)
		return
	}
	request, err := csr.Create(csr.PurposeClient, key, "node-1", csr.CreateOptions{
		ProviderID: "aws:///eu-west-1a/i-0123456789abcdef0",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := (&csr.Bundle{Request: request, Provider: "tpm/v1", Data: []byte("evidence")}).Marshal()
	if err != nil {
		fmt.Println(err)
		return
	}

	bundle, err := csr.Parse(text)
	if err != nil {
		fmt.Println(err)
		return
	}
	parsed, err := csr.ParsePKCS10(bundle.Request)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(bundle.Provider, string(bundle.Data))
	fmt.Println(parsed.CSR.Subject, parsed.ProviderID)
	fmt.Println("signature:", parsed.CheckSignature())
	// Output:
	// tpm/v1 evidence
	// CN=system:node:node-1,O=system:nodes aws:///eu-west-1a/i-0123456789abcdef0
	// signature: <nil>
}

// A bundle in any other form is refused, with the rule that it breaks.
func ExampleParse() {
	const text = "-----BEGIN CERTIFICATE REQUEST-----\r\nMAkwADAAAwIAAA==\r\n-----END CERTIFICATE REQUEST-----\r\n"
	_, err := csr.Parse([]byte(text))
	fmt.Println(errors.Is(err, refusal.Check("bundle-block")))
	fmt.Println(err)

	_, err = csr.Parse([]byte(strings.ReplaceAll(text, "\r", "") + "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
	fmt.Println(errors.Is(err, refusal.Check("bundle-block")))
	// Output:
	// true
	// bundle-block: got "-----BEGIN CERTIFICATE REQUEST-----\r", want -----BEGIN CERTIFICATE REQUEST-----
	// true
}

func ExampleBundle_Marshal() {
	// The outer shape of a request is all that a bundle looks at.
	bundle := &csr.Bundle{Request: []byte("\x30\x08\x30\x00\x30\x00\x03\x02\x00\x00"), Provider: "tpm/v1", Data: []byte("evidence")}
	text, err := bundle.Marshal()
	fmt.Print(string(text), err)
	// Output:
	// -----BEGIN CERTIFICATE REQUEST-----
	// MAgwADAAAwIAAA==
	// -----END CERTIFICATE REQUEST-----
	// -----BEGIN KUBELET AUTHENTICATOR ATTESTATION PROVIDER-----
	// dHBtL3Yx
	// -----END KUBELET AUTHENTICATOR ATTESTATION PROVIDER-----
	// -----BEGIN KUBELET AUTHENTICATOR ATTESTATION DATA-----
	// ZXZpZGVuY2U=
	// -----END KUBELET AUTHENTICATOR ATTESTATION DATA-----
	// <nil>
}

func ExampleCreate() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		fmt.Println(err)
		return
	}
	addresses := []netip.Addr{netip.MustParseAddr("192.0.2.7")}

	der, err := csr.Create(csr.PurposeServing, key, "node-1", csr.CreateOptions{IPAddresses: addresses})
	if err != nil {
		fmt.Println(err)
		return
	}
	request, err := csr.ParsePKCS10(der)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(request.CSR.Subject, request.CSR.IPAddresses)

	_, err = csr.Create(csr.PurposeClient, key, "node-1", csr.CreateOptions{IPAddresses: addresses})
	fmt.Println(err)
	// Output:
	// CN=system:node:node-1,O=system:nodes [192.0.2.7]
	// configuration: got DNSNames or IPAddresses in a client certificate, want none
}

func ExampleBundle_ProviderVersion() {
	name, version, err := (&csr.Bundle{Provider: "tpm/v1"}).ProviderVersion()
	fmt.Println(name, version, err)
	// Output: tpm 1 <nil>
}
