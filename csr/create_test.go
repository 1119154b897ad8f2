package csr

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/refusal"
)

func TestCreate(t *testing.T) {
	for name, key := range map[string]crypto.Signer{"P-256": keyP256(), "P-384": keyP384(), "RSA": keyRSA2()} {
		t.Run(name, func(t *testing.T) {
			for purpose, want := range map[Purpose][2]string{
				PurposeClient:   {"system:nodes", "system:node:node-1.example.com"},
				PurposeServing:  {"system:nodes", "system:node:node-1.example.com"},
				PurposeRecovery: {"nodeattest:recovery", "nodeattest:recovery:node-1.example.com"},
			} {
				opts := CreateOptions{ProviderID: "aws:///a/i-1", Flag: testFlag}
				if purpose == PurposeServing {
					opts.DNSNames = []string{"node-1.example.com"}
					opts.IPAddresses = []netip.Addr{netip.MustParseAddr("::ffff:192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
				}
				der, err := Create(purpose, key, "node-1.example.com", opts)
				if err != nil {
					t.Fatalf("%s, %v: %v", name, purpose, err)
				}
				p, err := ParsePKCS10(der)
				if err != nil {
					t.Fatalf("%s, %v: %v", name, purpose, err)
				}
				var subject [2]string
				for i := range p.subject {
					subject[i] = string(p.subject[i].Value)
				}
				if diff := cmp.Diff(want, subject); diff != "" {
					t.Errorf("%s, %v: %s", name, purpose, diff)
				}
				if p.ProviderID != opts.ProviderID {
					t.Errorf("%s, %v: provider ID %q", name, purpose, p.ProviderID)
				}
				if flag, err := hasFlag(p.CSR.Extensions, testFlag); err != nil || !flag {
					t.Errorf("%s, %v: flag %v, %v", name, purpose, flag, err)
				}
				checkSANs(t, purpose, p.CSR)
			}
		})
	}
}

func checkSANs(t *testing.T, purpose Purpose, r *x509.CertificateRequest) {
	t.Helper()
	got := append([]string{}, r.DNSNames...)
	for _, ip := range r.IPAddresses {
		got = append(got, ip.String())
	}
	want := []string{}
	if purpose == PurposeServing {
		want = []string{"node-1.example.com", "192.0.2.1", "2001:db8::1"}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%v: %s", purpose, diff)
	}
}

// The most that is allowed is no error.
func TestCreateOfManyNames(t *testing.T) {
	var opts CreateOptions
	for i := range maxSANs {
		opts.DNSNames = append(opts.DNSNames, "n"+strconv.Itoa(i)+".example")
	}
	if _, err := Create(PurposeServing, keyP256(), "node-1", opts); err != nil {
		t.Error(err)
	}
}

func TestCreateAsksForNothingUnasked(t *testing.T) {
	der, err := Create(PurposeClient, keyP256(), "node-1", CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := ParsePKCS10(der)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.CSR.Extensions) != 0 || p.ProviderID != "" || len(p.attributes) != 0 {
		t.Errorf("extensions %v", p.CSR.Extensions)
	}
}

// A cloud names a machine in capital letters, and the kubelet its Node in lower case: the fault
// with the name is said to who makes the request, and to who judges one.
func TestCreateSaysWhatIsWrongWithAName(t *testing.T) {
	for name, want := range map[string]string{"pool-vmss00000A": "lower-case: pool-vmss00000a", "node_1": `lower-case letters, digits, "-" and "."`} {
		_, err := Create(PurposeClient, keyP256(), name, CreateOptions{})
		if !errors.Is(err, refusal.CheckConfig) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "purpose") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Create(0, keyP256(), "node-1", CreateOptions{}); err == nil || !strings.Contains(err.Error(), "purpose") || strings.Contains(err.Error(), "name") {
		t.Errorf("no purpose: %v", err)
	}
}

func TestCreateRefuses(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	ip := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	dns := []string{"node-1"}
	good := CreateOptions{DNSNames: dns}
	for name, test := range map[string]struct {
		purpose Purpose
		key     crypto.Signer
		node    string
		opts    CreateOptions
		want    error
	}{
		"no purpose":                {0, keyP256(), "node-1", good, refusal.CheckConfig},
		"another purpose":           {99, keyP256(), "node-1", good, refusal.CheckConfig},
		"no name":                   {PurposeServing, keyP256(), "", good, refusal.CheckConfig},
		"name in upper case":        {PurposeServing, keyP256(), "Node-1", good, refusal.CheckConfig},
		"name with a colon":         {PurposeServing, keyP256(), "system:node:a", good, refusal.CheckConfig},
		"name with a newline":       {PurposeServing, keyP256(), "node-1\n", good, refusal.CheckConfig},
		"name too long":             {PurposeServing, keyP256(), strings.Repeat("a", 254), good, refusal.CheckConfig},
		"no key":                    {PurposeServing, nil, "node-1", good, refusal.CheckConfig},
		"RSA-1024":                  {PurposeServing, small, "node-1", good, refusal.CheckConfig},
		"P-224":                     {PurposeServing, newECDSA(elliptic.P224()), "node-1", good, refusal.CheckConfig},
		"key without public part":   {PurposeServing, signer{}, "node-1", good, refusal.CheckConfig},
		"client with DNS name":      {PurposeClient, keyP256(), "node-1", CreateOptions{DNSNames: dns}, refusal.CheckConfig},
		"client with IP address":    {PurposeClient, keyP256(), "node-1", CreateOptions{IPAddresses: ip}, refusal.CheckConfig},
		"recovery with DNS name":    {PurposeRecovery, keyP256(), "node-1", CreateOptions{DNSNames: dns}, refusal.CheckConfig},
		"recovery with IP address":  {PurposeRecovery, keyP256(), "node-1", CreateOptions{IPAddresses: ip}, refusal.CheckConfig},
		"serving without a name":    {PurposeServing, keyP256(), "node-1", CreateOptions{}, refusal.CheckConfig},
		"wildcard":                  {PurposeServing, keyP256(), "node-1", CreateOptions{DNSNames: []string{"*.example.com"}}, refusal.CheckConfig},
		"empty DNS name":            {PurposeServing, keyP256(), "node-1", CreateOptions{DNSNames: []string{"node-1", ""}}, refusal.CheckConfig},
		"empty IP address":          {PurposeServing, keyP256(), "node-1", CreateOptions{IPAddresses: make([]netip.Addr, 1)}, refusal.CheckConfig},
		"IP address with zone":      {PurposeServing, keyP256(), "node-1", CreateOptions{IPAddresses: []netip.Addr{netip.MustParseAddr("fe80::1%eth0")}}, refusal.CheckConfig},
		"provider ID not UTF-8":     {PurposeClient, keyP256(), "node-1", CreateOptions{ProviderID: "\xff"}, refusal.Check("provider-id-text")},
		"provider ID too long":      {PurposeClient, keyP256(), "node-1", CreateOptions{ProviderID: strings.Repeat("a", 1025)}, refusal.Check("provider-id-size")},
		"flag that does not fit":    {PurposeClient, keyP256(), "node-1", CreateOptions{Flag: asn1.ObjectIdentifier{1, 2, 1 << 31}}, checkFlag},
		"flag of one arc":           {PurposeClient, keyP256(), "node-1", CreateOptions{Flag: asn1.ObjectIdentifier{1}}, checkFlag},
		"flag of the provider ID":   {PurposeClient, keyP256(), "node-1", CreateOptions{ProviderID: "a", Flag: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11129, 2, 1, 21}}, refusal.CheckConfig},
		"flag of basicConstraints":  {PurposeClient, keyP256(), "node-1", CreateOptions{Flag: asn1.ObjectIdentifier{2, 5, 29, 19}}, refusal.CheckConfig},
		"flag of authority access":  {PurposeClient, keyP256(), "node-1", CreateOptions{Flag: asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 1}}, checkFlag},
		"provider ID is refused so": {PurposeClient, keyP256(), "node-1", CreateOptions{ProviderID: " "}, refusal.CheckConfig},
		"flag is refused so":        {PurposeClient, keyP256(), "node-1", CreateOptions{Flag: asn1.ObjectIdentifier{1}}, refusal.CheckConfig},
		"101 names":                 {PurposeServing, keyP256(), "node-1", CreateOptions{DNSNames: slices.Repeat(dns, 100), IPAddresses: ip}, refusal.CheckConfig},
		"DNS name like an address":  {PurposeServing, keyP256(), "node-1", CreateOptions{DNSNames: []string{"10.0.0.1"}}, refusal.CheckConfig},
		"that in hexadecimal":       {PurposeServing, keyP256(), "node-1", CreateOptions{DNSNames: []string{"0xa000001"}}, refusal.CheckConfig},
		"localhost":                 {PurposeServing, keyP256(), "node-1", CreateOptions{DNSNames: []string{"node-1", "localhost"}}, refusal.CheckConfig},
		"name of the API server":    {PurposeServing, keyP256(), "node-1", CreateOptions{DNSNames: []string{"kubernetes.default.svc"}}, refusal.CheckConfig},
		"loopback":                  {PurposeServing, keyP256(), "node-1", CreateOptions{IPAddresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}, refusal.CheckConfig},
		"loopback mapped into IPv6": {PurposeServing, keyP256(), "node-1", CreateOptions{IPAddresses: []netip.Addr{netip.MustParseAddr("::ffff:127.0.0.1")}}, refusal.CheckConfig},
		"nil Ed25519 key":           {PurposeServing, ed25519.PrivateKey(nil), "node-1", good, refusal.CheckConfig},
		"ECDSA key without a point": {PurposeServing, &ecdsa.PrivateKey{PublicKey: ecdsa.PublicKey{Curve: elliptic.P256()}}, "node-1", good, refusal.CheckConfig},
		"ECDSA key, public alone":   {PurposeServing, &ecdsa.PrivateKey{PublicKey: *keyP256().Public().(*ecdsa.PublicKey)}, "node-1", good, refusal.CheckConfig},
		"zero ECDSA key":            {PurposeServing, &ecdsa.PrivateKey{}, "node-1", good, refusal.CheckConfig},
		"zero RSA key":              {PurposeServing, &rsa.PrivateKey{}, "node-1", good, refusal.CheckConfig},
		"RSA key, public alone":     {PurposeServing, &rsa.PrivateKey{PublicKey: *keyRSA2().Public().(*rsa.PublicKey)}, "node-1", good, refusal.CheckConfig},
		"nil public key":            {PurposeServing, signer{public: (*ecdsa.PublicKey)(nil)}, "node-1", good, refusal.CheckConfig},
		"signer that fails":         {PurposeClient, signer{public: keyP256().Public(), err: io.ErrClosedPipe}, "node-1", CreateOptions{}, io.ErrClosedPipe},
		"signer with a foreign key": {PurposeClient, signer{public: keyP384().Public(), key: keyP256()}, "node-1", CreateOptions{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			der, err := Create(test.purpose, test.key, test.node, test.opts)
			if err == nil || der != nil || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%x, %v, want %v", der, err, test.want)
			}
		})
	}
}

// signer is a key that lives elsewhere.
type signer struct {
	public crypto.PublicKey
	key    crypto.Signer
	err    error
}

func (s signer) Public() crypto.PublicKey { return s.public }

func (s signer) Sign(random io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.key.Sign(random, digest, opts)
}

// TestOpenSSLReadsOurRequests has OpenSSL parse the requests and verify their
// signatures.
func TestOpenSSLReadsOurRequests(t *testing.T) {
	for name, key := range map[string]crypto.Signer{"P-256": keyP256(), "P-384": keyP384(), "RSA": keyRSA2()} {
		t.Run(name, func(t *testing.T) {
			client := block(BlockRequest, clientRequest(t, key))
			out := openssl(t, client, "req", "-verify", "-noout", "-text", "-nameopt", "RFC2253")
			for _, want := range []string{"verify OK", "CN=system:node:node-1,O=system:nodes", "1.3.6.1.4.1.11129.2.1.21", "aws:///eu-west-1a/i-0123456789abcdef0"} {
				if !strings.Contains(out, want) {
					t.Errorf("OpenSSL does not print %q:\n%s", want, out)
				}
			}
			// The whole bundle: OpenSSL stops after the first block, as kube-apiserver does.
			bundle := encodeBundle(t, &Bundle{Request: servingRequest(t, key), Provider: "tpm/v1", Data: []byte("evidence")})
			out = openssl(t, bundle, "req", "-verify", "-noout", "-text")
			for _, want := range []string{"verify OK", "DNS:node-1, DNS:node-1.example.com, IP Address:192.0.2.7, IP Address:2001:DB8:0:0:0:0:0:7"} {
				if !strings.Contains(out, want) {
					t.Errorf("OpenSSL does not print %q:\n%s", want, out)
				}
			}
		})
	}
}

// TestParsePKCS10ReadsOpenSSLsRequests goes the other way.
func TestParsePKCS10ReadsOpenSSLsRequests(t *testing.T) {
	for _, curve := range []string{"P-256", "P-384"} {
		key := openssl(t, nil, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:"+curve)
		dir := t.TempDir() + "/key.pem"
		writeFile(t, dir, key)
		text := openssl(t, nil, "req", "-new", "-key", dir, "-sha384", "-subj", "/O=system:nodes/CN=system:node:a", "-config", "/dev/null",
			"-addext", "subjectAltName=DNS:a,IP:192.0.2.1", "-addext", "1.3.6.1.4.1.11129.2.1.21=ASN1:UTF8String:aws:///a")
		b, err := Parse([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v\n%s", curve, err, text)
		}
		p, err := ParsePKCS10(b.Request)
		if err != nil {
			t.Fatalf("%s: %v", curve, err)
		}
		if err := p.CheckSignature(); err != nil || p.ProviderID != "aws:///a" || len(p.subject) != 2 {
			t.Errorf("%s: %v, %q, %v", curve, err, p.ProviderID, p.subject)
		}
	}
}
