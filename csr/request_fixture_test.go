package csr

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// The keys of these tests are made once, since RSA keys take long.
var (
	keyP256 = sync.OnceValue(func() crypto.Signer { return newECDSA(elliptic.P256()) })
	keyP384 = sync.OnceValue(func() crypto.Signer { return newECDSA(elliptic.P384()) })
	keyRSA2 = sync.OnceValue(func() crypto.Signer {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		return key
	})
)

func newECDSA(curve elliptic.Curve) crypto.Signer {
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

// clientRequest makes a request such as a kubelet files, with a provider ID.
func clientRequest(t testing.TB, key crypto.Signer) []byte {
	t.Helper()
	der, err := Create(PurposeClient, key, "node-1", CreateOptions{ProviderID: "aws:///eu-west-1a/i-0123456789abcdef0"})
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// servingRequest makes a request with two kinds of SANs.
func servingRequest(t testing.TB, key crypto.Signer) []byte {
	t.Helper()
	der, err := Create(PurposeServing, key, "node-1", CreateOptions{
		DNSNames:    []string{"node-1", "node-1.example.com"},
		IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// attestedBundle is a bundle with evidence of n bytes, which only looks like some.
func attestedBundle(t testing.TB, n int) *Bundle {
	t.Helper()
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(31 * i)
	}
	return &Bundle{Request: clientRequest(t, keyP256()), Provider: "tpm/v1", Data: data}
}

func encodeBundle(t testing.TB, b *Bundle) []byte {
	t.Helper()
	text, err := b.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// block writes one PEM block by encoding/pem.
func block(label string, body []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: label, Bytes: body})
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// wantRule fails the test unless err is one Error of the check with a Got.
func wantRule(t testing.TB, name string, err error, rule Check) {
	t.Helper()
	var v *Error
	if !errors.Is(err, rule) || !errors.As(err, &v) {
		t.Errorf("%s: error %v, want %s", name, err, rule)
		return
	}
	if v.Check != rule || v.Got == "" {
		t.Errorf("%s: violation %+v, want %s and what was got", name, v, rule)
	}
}

// corpus returns the folder with real requests, which is not part of this repository.
func corpus(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("NODEATTEST_CORPUS")
	if dir == "" {
		t.Skip("NODEATTEST_CORPUS is not set: no real requests to read")
	}
	return dir
}

// openssl runs the tool with input and returns its output.
func openssl(t testing.TB, input []byte, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed (Debian: apt-get install openssl): no second reader for requests")
	}
	command := exec.Command(path, args...)
	command.Stdin = bytes.NewReader(input)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("openssl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func writeFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
