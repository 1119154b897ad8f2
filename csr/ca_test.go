package csr_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

var p256Curve = elliptic.P256()

// excluded are name constraints: one DNS name and some networks.
func excluded(dns string, networks ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.ExcludedDNSDomains = []string{dns}
		for _, n := range networks {
			_, network, err := net.ParseCIDR(n)
			if err != nil {
				panic(err)
			}
			c.ExcludedIPRanges = append(c.ExcludedIPRanges, network)
		}
	}
}

func TestNewCARefuses(t *testing.T) {
	root := makeCA(t, caTemplate("root"), p384Key(), nil, nil)
	intermediate := func(change func(*x509.Certificate)) []*x509.Certificate {
		template := caTemplate("intermediate")
		change(template)
		return []*x509.Certificate{makeCA(t, template, p256Key(), root, p384Key()), root}
	}
	good := intermediate(func(*x509.Certificate) {})
	if _, err := csr.NewCA(good, p256Key(), goodOptions()); err != nil {
		t.Fatal(err)
	}
	options := func(change func(*csr.CAConfig)) csr.CAConfig {
		o := goodOptions()
		change(&o)
		return o
	}
	forged := *intermediate(func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, x509.KeyUsageCertSign })[0]
	forged.IsCA = true // the struct says so, the DER does not
	pathZero := caTemplate("root")
	pathZero.MaxPathLenZero = true
	zeroRoot := makeCA(t, pathZero, p384Key(), nil, nil)
	usages := func(u ...x509.ExtKeyUsage) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtKeyUsage = u }
	}
	nameless := makeCA(t, caTemplate(""), p384Key(), nil, nil)
	client := caTemplate("root")
	usages(x509.ExtKeyUsageClientAuth)(client)
	clientRoot := makeCA(t, client, p384Key(), nil, nil)
	for _, c := range []struct {
		name  string
		chain []*x509.Certificate
		key   crypto.Signer
		opts  csr.CAConfig
	}{
		{"no options", good, p256Key(), csr.CAConfig{}},
		{"no cluster", good, p256Key(), options(func(o *csr.CAConfig) { o.ClusterIDs = nil })},
		{"every cluster's name", good, p256Key(), options(func(o *csr.CAConfig) { o.ClusterIDs = []string{"kubernetes"} })},
		{"no signer names", good, p256Key(), options(func(o *csr.CAConfig) { o.SignerNames = nil })},
		{"unknown signer name", good, p256Key(), options(func(o *csr.CAConfig) { o.SignerNames = []string{"example.com/x"} })},
		{"challenge signer", good, p256Key(), options(func(o *csr.CAConfig) { o.SignerNames = []string{csr.SignerChallengeTPM} })},
		{"insecure and attested", good, p256Key(), options(func(o *csr.CAConfig) { o.SignerNames = append(o.SignerNames, csr.SignerClientInsecure) })},
		{"negative lifetime", good, p256Key(), options(func(o *csr.CAConfig) { o.MaxLifetime = -1 })},
		{"lifetime under a minute", good, p256Key(), options(func(o *csr.CAConfig) { o.MaxLifetime = time.Minute - 1 })},
		{"recovery lifetime under that", good, p256Key(), options(func(o *csr.CAConfig) { o.MaxRecoveryLifetime = time.Minute - 1 })},
		{"key without a point", good, &ecdsa.PrivateKey{PublicKey: ecdsa.PublicKey{Curve: p256Curve}}, goodOptions()},
		{"public part of the key", good, &ecdsa.PrivateKey{PublicKey: *p256Key().Public().(*ecdsa.PublicKey)}, goodOptions()},
		{"no subject", []*x509.Certificate{makeCA(t, caTemplate(""), p256Key(), nil, nil)}, p256Key(), goodOptions()},
		{"root without subject", []*x509.Certificate{makeCA(t, caTemplate("i"), p256Key(), nameless, p384Key()), nameless}, p256Key(), goodOptions()},
		{"client auth only", intermediate(usages(x509.ExtKeyUsageClientAuth)), p256Key(), goodOptions()},
		{"server auth only", intermediate(usages(x509.ExtKeyUsageServerAuth)), p256Key(), goodOptions()},
		{"another usage", intermediate(usages(x509.ExtKeyUsageCodeSigning)), p256Key(), goodOptions()},
		{"unknown usage", intermediate(func(c *x509.Certificate) { c.UnknownExtKeyUsage = []asn1.ObjectIdentifier{{1, 2, 3}} }), p256Key(), goodOptions()},
		{"root for client auth only", []*x509.Certificate{makeCA(t, caTemplate("i"), p256Key(), clientRoot, p384Key()), clientRoot}, p256Key(), goodOptions()},
		{"every name excluded", intermediate(excluded("", "0.0.0.0/0", "::/0")), p256Key(), goodOptions()},
		{"negative recovery lifetime", good, p256Key(), options(func(o *csr.CAConfig) { o.MaxRecoveryLifetime = -1 })},
		{"no chain", nil, p256Key(), goodOptions()},
		{"nil certificate", []*x509.Certificate{nil}, p256Key(), goodOptions()},
		{"empty certificate", []*x509.Certificate{{}}, p256Key(), goodOptions()},
		{"no key", good, nil, goodOptions()},
		{"another key", good, newECDSAKey(p256Curve), goodOptions()},
		{"the root's key", good, p384Key(), goodOptions()},
		{"chain in the wrong order", []*x509.Certificate{good[1], good[0]}, p384Key(), goodOptions()},
		{"another root", []*x509.Certificate{good[0], makeCA(t, caTemplate("root"), p521Key(), nil, nil)}, p256Key(), goodOptions()},
		{"root of another name", []*x509.Certificate{good[0], makeCA(t, caTemplate("other"), p384Key(), nil, nil)}, p256Key(), goodOptions()},
		{"no CA", intermediate(func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature }), p256Key(), goodOptions()},
		{"no basic constraints", intermediate(func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = false, false }), p256Key(), goodOptions()},
		{"no cert sign", intermediate(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }), p256Key(), goodOptions()},
		{"no key usage", intermediate(func(c *x509.Certificate) { c.KeyUsage = 0 }), p256Key(), goodOptions()},
		{"CA in the struct only", []*x509.Certificate{&forged, root}, p256Key(), goodOptions()},
		{"root that allows no CA below", []*x509.Certificate{makeCA(t, caTemplate("i"), p256Key(), zeroRoot, p384Key()), zeroRoot}, p256Key(), goodOptions()},
		{"weak curve", []*x509.Certificate{makeCA(t, caTemplate("weak"), p224Key(), nil, nil)}, p224Key(), goodOptions()},
		{"weak RSA key", []*x509.Certificate{makeCA(t, caTemplate("weak"), rsa1024(), nil, nil)}, rsa1024(), goodOptions()},
	} {
		t.Run(c.name, func(t *testing.T) {
			if ca, err := csr.NewCA(c.chain, c.key, c.opts); ca != nil || !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("%v", err)
			}
		})
	}
	for name, c := range map[string]struct {
		change func(*x509.Certificate)
		opts   csr.CAConfig
	}{
		"both usages":                 {usages(x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth), goodOptions()},
		"any usage":                   {usages(x509.ExtKeyUsageAny), goodOptions()},
		"client auth, client signer":  {usages(x509.ExtKeyUsageClientAuth), options(func(o *csr.CAConfig) { o.SignerNames = o.SignerNames[:1] })},
		"server auth, serving signer": {usages(x509.ExtKeyUsageServerAuth), options(func(o *csr.CAConfig) { o.SignerNames = o.SignerNames[1:2] })},
		"every DNS name excluded":     {excluded(""), goodOptions()},
		"every address excluded":      {excluded("corp.example", "0.0.0.0/0", "::/0"), goodOptions()},
		"no name, and client signers": {excluded("", "0.0.0.0/0", "::/0"), options(func(o *csr.CAConfig) { o.SignerNames = o.SignerNames[:1] })},
		"no DNS name, IPv6 addresses": {excluded("", "0.0.0.0/0", "fe80::/10"), goodOptions()},
		"a minute":                    {func(*x509.Certificate) {}, options(func(o *csr.CAConfig) { o.MaxLifetime = time.Minute })},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := csr.NewCA(intermediate(c.change), p256Key(), c.opts); err != nil {
				t.Errorf("%v", err)
			}
		})
	}
	insecure := options(func(o *csr.CAConfig) { o.SignerNames = []string{csr.SignerClientInsecure} })
	if _, err := csr.NewCA(good, p256Key(), insecure); err != nil {
		t.Errorf("insecure alone: %v", err)
	}
}

// A chain holds whose certificates spell the name of the CA above in another way than that
// does (RFC 5280, 7.1), and a root in two spellings is still left out of the PEM.
func TestCAOfOtherSpellings(t *testing.T) {
	called := func(tag int, name string) []byte {
		type attribute struct {
			ID    asn1.ObjectIdentifier
			Value asn1.RawValue
		}
		der, err := asn1.Marshal([][]attribute{{{asn1.ObjectIdentifier{2, 5, 4, 3}, asn1.RawValue{Tag: tag, Bytes: []byte(name)}}}})
		if err != nil {
			t.Fatal(err)
		}
		der[2] = 0x31 // a SET, of one
		return der
	}
	template := caTemplate("")
	template.RawSubject = called(asn1.TagPrintableString, "Cluster root")
	other := *template
	other.RawSubject = called(asn1.TagUTF8String, "CLUSTER  Root")
	root := makeCA(t, template, p384Key(), &other, p384Key())
	for name, c := range map[string]struct {
		issuer []byte
		want   error
	}{
		"a UTF8String":           {called(asn1.TagUTF8String, "Cluster root"), nil},
		"another case and space": {other.RawSubject, nil},
		"another name":           {called(asn1.TagUTF8String, "Cluster root 2"), refusal.CheckConfig},
		"no space":               {called(asn1.TagUTF8String, "Clusterroot"), refusal.CheckConfig},
	} {
		t.Run(name, func(t *testing.T) {
			above := *root
			above.RawSubject = c.issuer
			issuing := makeCA(t, caTemplate("issuing"), p256Key(), &above, p384Key())
			ca, err := csr.NewCA([]*x509.Certificate{issuing, root}, p256Key(), goodOptions())
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err != nil {
				return
			}
			issued := mustIssue(t, ca, goodVerified(goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).mustCheck(t)))
			if n := bytes.Count(issued.PEM, []byte("BEGIN CERTIFICATE")); n != 2 {
				t.Errorf("%d certificates are issued, want the node's and its issuer's", n)
			}
		})
	}
}

// The PEM holds the leaf and the CAs between it and the root.
func TestIssuedPEMHoldsTheChain(t *testing.T) {
	root := makeCA(t, caTemplate("root"), p384Key(), nil, nil)
	short := caTemplate("intermediate")
	short.NotAfter = issueTime.Add(30 * time.Minute).Truncate(time.Second)
	intermediate := makeCA(t, short, p521Key(), root, p384Key())
	zero := caTemplate("issuing")
	zero.MaxPathLenZero = true
	issuing := makeCA(t, zero, p256Key(), intermediate, p521Key())
	ca, err := csr.NewCA([]*x509.Certificate{issuing, intermediate, root}, p256Key(), goodOptions())
	if err != nil {
		t.Fatal(err)
	}
	checked := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).mustCheck(t)
	for range 2 { // the second must not have grown
		issued := mustIssue(t, ca, goodVerified(checked))
		rest := issued.PEM
		for i, want := range []*x509.Certificate{issued.Certificate, issuing, intermediate} {
			var block *pem.Block
			block, rest = pem.Decode(rest)
			if block == nil || block.Type != "CERTIFICATE" || !bytes.Equal(block.Bytes, want.Raw) {
				t.Fatalf("block %d is not %s", i, want.Subject)
			}
		}
		if len(rest) != 0 {
			t.Errorf("%d bytes after the chain", len(rest))
		}
		if !issued.Certificate.NotAfter.Equal(short.NotAfter) {
			t.Errorf("ends at %v, after a CA above it (%v)", issued.Certificate.NotAfter, short.NotAfter)
		}
		intermediates, roots := x509.NewCertPool(), x509.NewCertPool()
		intermediates.AppendCertsFromPEM(issued.PEM)
		roots.AddCert(root)
		if _, err := issued.Certificate.Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, CurrentTime: issueTime, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			t.Error(err)
		}
	}
}

// TestCAKeyIsNotShown: the private key of a CA that stands in a program's configuration is
// in nothing that is written about it. An Ed25519 key is bytes, which fmt shows.
func TestCAKeyIsNotShown(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := makeCA(t, caTemplate("root"), key, nil, nil)
	ca, err := csr.NewCA([]*x509.Certificate{root}, key, goodOptions())
	if err != nil {
		t.Fatal(err)
	}
	testkit.CheckSecrets(t, ca, key.Seed())
	testkit.CheckSecrets(t, *ca, key.Seed())
}
