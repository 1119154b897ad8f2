package azure

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
	casn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/cloud/internal/chain"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// The machine of the documents here, and the time.
const (
	testSubscription = "8a205152-b25a-417f-a676-80465535a6c9"
	testVM           = "b1310a36-d400-46f6-82cb-6217df846586"
	testNonce        = "nodeattest007PsO2B9tnG1CEDAVcE7Z"
)

var testTime = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

// bench is a cloud, and an attacker that has CAs of its own, and a certificate of the
// cloud's CA for a name of its own: they are CAs of the web.
type bench struct {
	*forge
	attacker *forge
	web      *authority
}

// newBench makes one for all tests of this package: nothing is changed in it.
var newBench = sync.OnceValues(func() (*bench, error) {
	b := &bench{}
	var err1, err2, err3 error
	b.forge, err1 = newForge(testTime)
	b.attacker, err2 = newForge(testTime)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	template := b.leafTemplate(testTime)
	template.DNSNames = []string{"attacker.example"}
	b.web, err3 = b.newLeaf(template)
	return b, err3
})

func testBench(t testing.TB) *bench {
	t.Helper()
	return testkit.Must(newBench())
}

func (b *bench) config() VerifierConfig {
	return VerifierConfig{Roots: []*x509.Certificate{b.root.Certificate}, Intermediates: []*x509.Certificate{b.cross.Certificate, b.issuing.Certificate}}
}

// content is that of a good document.
func testContent() []byte {
	c, err := json.Marshal(newContent(testSubscription, testVM, testNonce, testTime.Add(-time.Minute)))
	return testkit.Must(c, err)
}

func (b *bench) good() *parts { return newParts(testContent(), b.leaf) }

// anotherKey is one key for all certificates whose key does not matter.
var anotherKey = sync.OnceValue(func() crypto.Signer { return testkit.Must(rsa.GenerateKey(rand.Reader, 2048)) })

// attack is a forged document.
type attack struct {
	name  string
	make  func(b *bench, p *parts) // changes a good one
	bytes func([]byte) []byte      // changes its DER
	want  refusal.Check
}

// signedBy has a certificate of the cloud's CA sign, as a template for it is changed.
func signedBy(change func(*x509.Certificate)) func(*bench, *parts) {
	return func(b *bench, p *parts) {
		template := b.leafTemplate(testTime)
		change(template)
		p.by(testkit.Must(b.newLeaf(template)))
	}
}

// by has another leaf sign, with its certificate.
func (p *parts) by(leaf *authority) { *p = *newParts(p.Content, leaf) }

// withContent has the cloud sign another content.
func withContent(old, replacement string) func(*bench, *parts) {
	return func(_ *bench, p *parts) {
		changed := bytes.Replace(p.Content, []byte(old), []byte(replacement), 1)
		if bytes.Equal(changed, p.Content) {
			panic(old + " is not in the content")
		}
		p.Content = changed
	}
}

func names(list ...string) func(*bench, *parts) {
	return signedBy(func(c *x509.Certificate) { c.DNSNames = list })
}

// attributesOver are the attributes contentType and messageDigest, as they are signed.
func attributesOver(content []byte) []byte {
	digest := sha256.Sum256(content)
	return tlv(0x31,
		tlv(0x30, tlv(0x06, []byte{0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 3}), tlv(0x31, tlv(0x06, []byte{0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1}))),
		tlv(0x30, tlv(0x06, []byte{0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 4}), tlv(0x31, tlv(0x04, digest[:]))))
}

func at(d time.Duration) []byte {
	return testkit.Must(json.Marshal(newContent(testSubscription, testVM, testNonce, testTime.Add(d))))
}

func attacks() []attack {
	return slices.Concat(signerAttacks(), certificateAttacks(), contentAttacks(), encodingAttacks())
}

// signerAttacks are about who signed.
func signerAttacks() []attack {
	return []attack{
		{name: nameAnchored, want: checkSigners,
			make: func(b *bench, p *parts) { // the certificate of the cloud comes first, and the attacker's signs
				p.by(b.attacker.leaf)
				p.Certificates = [][]byte{b.leaf.Certificate.Raw, b.attacker.leaf.Certificate.Raw}
			}},
		{name: "second-certificate", want: checkSigners,
			make: func(b *bench, p *parts) { p.Certificates = append(p.Certificates, b.web.Certificate.Raw) }},
		{name: "no-certificate", want: checkSigners, make: func(_ *bench, p *parts) { p.Certificates = nil }},
		{name: "intermediate-along", want: checkSigners,
			make: func(b *bench, p *parts) { p.Certificates = append(p.Certificates, b.issuing.Certificate.Raw) }},
		{name: "second-signer", want: checkSigners,
			make: func(b *bench, p *parts) {
				second := newSigner(b.attacker.leaf)
				second.Names = b.leaf.Certificate
				p.Signers = append(p.Signers, second)
			}},
		{name: "second-signer-first", want: checkSigners,
			make: func(b *bench, p *parts) {
				second := newSigner(b.attacker.leaf)
				second.Names = b.leaf.Certificate
				p.Signers = append([]signerParts{second}, p.Signers...)
			}},
		{name: "no-signer", want: checkSigners, make: func(_ *bench, p *parts) { p.Signers = nil }},
		{name: "signer-of-another-certificate", want: checkSigners,
			make: func(b *bench, p *parts) { p.Signers[0].Names = b.web.Certificate }},
		{name: "signer-of-another-issuer", want: checkSigners,
			make: func(b *bench, p *parts) {
				other := *b.leaf.Certificate
				other.RawIssuer = b.attacker.root.Certificate.RawSubject
				p.Signers[0].Names = &other
			}},
		{name: "second-digest-algorithm", want: checkSigners, make: func(_ *bench, p *parts) { p.Digests = append(p.Digests, sha256Digest()) }},
		{name: "signature-never-checked", want: checkSignature,
			make: func(b *bench, p *parts) { p.Signers[0].Signer = b.attacker.leaf }},
		{name: "signature-zero", want: checkSignature, make: func(_ *bench, p *parts) { p.Signers[0].Signature = make([]byte, 256) }},
		{name: "signature-empty", want: checkSignature, make: func(_ *bench, p *parts) { p.Signers[0].Signature = []byte{} }},
		{name: "signature-over-another-content", want: checkSignature, make: func(_ *bench, p *parts) { p.Signers[0].Over = []byte("{}") }},
		{name: "signed-attributes", want: checkAttributes,
			make: func(_ *bench, p *parts) {
				attributes := attributesOver(p.Content)
				p.Signers[0].Over = attributes
				p.Signers[0].Signed = append([]byte{0xa0}, attributes[1:]...)
			}},
		{name: nameAttributes, want: checkAttributes,
			make: func(_ *bench, p *parts) {
				p.Signers[0].Signed = append([]byte{0xa0}, attributesOver([]byte("{}"))[1:]...)
			}},
		{name: "attributes-as-content", want: checkEncoding, make: func(_ *bench, p *parts) { p.Content = attributesOver(p.Content) }},
		{name: "unsigned-attributes", want: checkAttributes,
			make: func(_ *bench, p *parts) {
				p.Signers[0].Unsigned = append([]byte{0xa1}, attributesOver(p.Content)[1:]...)
			}},
		{name: "digest-sha1", want: checkAlgorithm, make: func(_ *bench, p *parts) {
			p.Digests, p.Signers[0].Digest = [][]byte{sha1Digest()}, sha1Digest()
		}},
		{name: "digests-differ", want: checkAlgorithm, make: func(_ *bench, p *parts) { p.Signers[0].Digest = sha256Digest() }},
		{name: "digest-without-null", want: checkAlgorithm, make: func(_ *bench, p *parts) {
			bare := tlv(0x30, sha256WithRSA()[2:len(sha256WithRSA())-2])
			p.Digests, p.Signers[0].Digest = [][]byte{bare}, bare
		}},
		{name: "algorithm-pss", want: checkAlgorithm, make: func(_ *bench, p *parts) { p.Signers[0].Algorithm = rsaPSS() }},
	}
}

// certificateAttacks are about the signer's certificate.
func certificateAttacks() []attack {
	return []attack{
		{name: "another-root", want: chain.CheckChain, make: func(b *bench, p *parts) { p.by(b.attacker.leaf) }},
		{name: "self-signed", want: chain.CheckChain, make: func(b *bench, p *parts) {
			p.by(testkit.Must(issue(b.leafTemplate(testTime), anotherKey(), nil)))
		}},
		{name: "same-names-another-key", want: chain.CheckChain, make: func(b *bench, p *parts) {
			forged := *b.issuing.Certificate
			forged.PublicKey = b.attacker.issuing.Key.Public()
			template := b.leafTemplate(testTime)
			p.by(testkit.Must(issue(template, anotherKey(), &authority{&forged, b.attacker.issuing.Key})))
		}},
		{name: "issued-by-a-leaf", want: chain.CheckChain, make: func(b *bench, p *parts) {
			p.by(testkit.Must(issue(b.leafTemplate(testTime), anotherKey(), b.web)))
		}},
		{name: "name-of-another", want: checkName, make: func(b *bench, p *parts) { p.by(b.web) }},
		{name: "common-name-alone", want: checkName, make: names()},
		{name: "name-of-another-cloud", want: checkName, make: names("usgovvirginia.metadata.azure.us", "metadata.azure.us")},
		{name: "name-with-another-suffix", want: checkName, make: names("metadata.azure.com.attacker.example")},
		{name: "name-with-another-prefix", want: checkName, make: names("xmetadata.azure.com")},
		{name: "name-above", want: checkName, make: names("azure.com")},
		{name: "name-with-an-empty-first-label", want: checkName, make: names(".metadata.azure.com")},
		{name: "name-with-an-empty-label", want: checkName, make: names("eastus..metadata.azure.com")},
		{name: "bytes-after-the-certificates-signature", want: checkEncoding, make: func(_ *bench, p *parts) {
			in, body := cryptobyte.String(p.Certificates[0]), cryptobyte.String(nil)
			in.ReadASN1(&body, casn1.SEQUENCE)
			p.Certificates[0] = tlv(0x30, body, tlv(0x04, []byte("anything at all")))
		}},
		{name: "usage-clients", want: checkCertificate, make: signedBy(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })},
		{name: "usage-absent", want: checkCertificate, make: signedBy(func(c *x509.Certificate) { c.ExtKeyUsage = nil })},
		{name: "usage-no-signatures", want: checkCertificate, make: signedBy(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment })},
		{name: "a-ca-signs", want: checkCertificate, make: func(b *bench, p *parts) {
			template := caTemplate("metadata.azure.com", testTime.Add(-time.Hour), testTime.Add(time.Hour))
			template.DNSNames, template.ExtKeyUsage, template.KeyUsage = leafNames(), []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, x509.KeyUsageDigitalSignature
			p.by(testkit.Must(issue(template, anotherKey(), b.cross)))
		}},
		{name: "key-of-1024-bits", want: checkCertificate, make: func(b *bench, p *parts) {
			p.by(testkit.Must(issue(b.leafTemplate(testTime), testkit.Must(rsa.GenerateKey(rand.Reader, 1024)), b.issuing)))
		}},
		{name: "key-ecdsa", want: checkCertificate, make: func(b *bench, p *parts) {
			p.by(testkit.Must(issue(b.leafTemplate(testTime), testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), b.issuing)))
		}},
		{name: "certificate-expired", want: chain.CheckExpired, make: signedBy(func(c *x509.Certificate) { c.NotAfter = testTime.Add(-time.Second) })},
		{name: "certificate-of-tomorrow", want: chain.CheckNotYetValid, make: signedBy(func(c *x509.Certificate) { c.NotBefore = testTime.Add(time.Second) })},
	}
}

// contentAttacks change the signed content.
func contentAttacks() []attack {
	document := func(name, old, replacement string, want refusal.Check) attack {
		return attack{name: name, want: want, make: withContent(old, replacement)}
	}
	return []attack{
		{name: "machine-edited", want: checkSignature, bytes: func(der []byte) []byte {
			return bytes.Replace(der, []byte(testVM), []byte("b1310a36-d400-46f6-82cb-6217df846587"), 1)
		}},
		{name: "nonce-edited", want: checkSignature, bytes: func(der []byte) []byte {
			return bytes.Replace(der, []byte(testNonce), []byte(testNonce[:31]+"Y"), 1)
		}},
		{name: "document-of-yesterday", want: checkTime, make: func(_ *bench, p *parts) { p.Content = at(-6*time.Hour - time.Second) }},
		{name: "document-of-the-next-minutes", want: checkTime, make: func(_ *bench, p *parts) { p.Content = at(maxSkew + time.Second) }},
		document("member-twice", `"vmId":`, `"vmId":"00000000-0000-0000-0000-000000000000","vmId":`, checkEncoding),
		document("member-in-other-letters", `"vmId":`, `"vmid":"00000000-0000-0000-0000-000000000000","vmId":`, checkEncoding),
		document("time-twice", `"createdOn":`, `"createdOn":"01/01/26 00:00:00 -0000","createdOn":`, checkEncoding),
		document("machine-a-number", `"`+testVM+`"`, `7`, checkEncoding),
		document("time-in-another-zone", `-0000"`, `-0800"`, checkEncoding),
		document("time-of-another-form", `11/22/26`, `2026-11-22`, checkEncoding),
		document("content-cut", `}`, ``, checkEncoding),
		document("content-with-more", `"vmId":"`+testVM+`"}`, `"vmId":"`+testVM+`"}{}`, checkEncoding),
		document("nonce-of-a-megabyte", testNonce, string(bytes.Repeat([]byte("a"), 1<<20)), checkEncoding),
	}
}

// encodingAttacks are about the PKCS#7.
func encodingAttacks() []attack {
	version := []byte{2, 1, 1}
	id := func(b *bench) []byte {
		return tlv(0x30, b.leaf.Certificate.RawIssuer, tlv(2, b.leaf.Certificate.SerialNumber.Bytes()))
	}
	signer := func(name string, want refusal.Check, content func(b *bench) []byte) attack {
		return attack{name: name, want: want, make: func(b *bench, p *parts) { p.Signers[0].Content = content(b) }}
	}
	replaced := func(name string, old, replacement []byte) attack {
		return attack{name: name, want: checkEncoding, bytes: func(der []byte) []byte { return bytes.Replace(der, old, replacement, 1) }}
	}
	return []attack{
		replaced("another-content-type", oidSignedData, append(oidSignedData[:8:8], 3)),
		replaced("another-inner-content-type", oidData, append(oidData[:8:8], 5)),
		replaced("version-3", []byte{2, 1, 1, 0x31}, []byte{2, 1, 3, 0x31}),
		replaced("digest-algorithms-in-a-sequence", []byte{2, 1, 1, 0x31}, []byte{2, 1, 1, 0x30}),
		signer("signer-empty", checkEncoding, func(*bench) []byte { return []byte{} }),
		signer("signer-without-an-identifier", checkEncoding, func(*bench) []byte { return version }),
		signer("signer-by-key-identifier", checkEncoding, func(*bench) []byte { return append(version, 0x80, 1, 1) }),
		signer("signer-with-a-serial-number-in-bytes", checkEncoding, func(b *bench) []byte {
			return append(version, tlv(0x30, b.leaf.Certificate.RawIssuer, []byte{4, 1, 1})...)
		}),
		signer("signer-without-a-digest-algorithm", checkEncoding, func(b *bench) []byte { return slices.Concat(version, id(b)) }),
		signer("signer-without-an-algorithm", checkEncoding, func(b *bench) []byte { return slices.Concat(version, id(b), sha256WithRSA()) }),
		signer("signer-without-a-signature", checkEncoding, func(b *bench) []byte {
			return slices.Concat(version, id(b), sha256WithRSA(), rsaEncryption())
		}),
		signer("signature-in-bits", checkEncoding, func(b *bench) []byte {
			return slices.Concat(version, id(b), sha256WithRSA(), rsaEncryption(), []byte{3, 2, 0, 1})
		}),
		{name: "certificate-that-is-none", want: checkEncoding, make: func(_ *bench, p *parts) { p.Certificates = [][]byte{{0x30, 0}} }},
		{name: "certificate-of-another-form", want: checkSigners, make: func(_ *bench, p *parts) { p.Certificates = [][]byte{{0xa1, 0}} }},
		{name: "time-of-expiry-absent", want: checkEncoding, make: withContent(`"expiresOn"`, `"expires"`)},
		{name: "machine-of-100-characters", want: checkEncoding, make: withContent(testVM, string(bytes.Repeat([]byte("a"), 100)))},
		{name: "trailing-bytes", want: checkEncoding, make: func(_ *bench, p *parts) { p.Behind = []byte{0} }},
		{name: "indefinite-length", want: checkEncoding, bytes: func(der []byte) []byte {
			return slices.Concat([]byte{0x30, 0x80}, der[4:], []byte{0, 0})
		}},
		{name: "long-length", want: checkEncoding, bytes: func(der []byte) []byte {
			return slices.Concat([]byte{0x30, 0x83, 0}, der[2:])
		}},
		{name: "revocation-list-along", want: checkEncoding, make: func(_ *bench, p *parts) { p.CRLs = []byte{0xa1, 0} }},
		{name: "signer-version-3", want: checkEncoding, make: func(_ *bench, p *parts) { p.Signers[0].Version = 3 }},
		{name: "more-in-the-signer", want: checkEncoding, make: func(_ *bench, p *parts) { p.Signers[0].AfterSignature = []byte{5, 0} }},
		{name: "content-detached", want: checkEncoding, bytes: func(der []byte) []byte { return bytes.Replace(der, []byte{0xa0, 0x82}, []byte{0xa2, 0x82}, 2) }},
		{name: "cut", want: checkEncoding, bytes: func(der []byte) []byte { return der[:len(der)-1] }},
		{name: "empty", want: checkEncoding, bytes: func([]byte) []byte { return nil }},
	}
}

// forged is the DER of an attack.
func (a *attack) forged(b *bench) []byte {
	p := b.good()
	if a.make != nil {
		a.make(b, p)
	}
	der := testkit.Must(p.marshal())
	if a.bytes != nil {
		der = a.bytes(der)
	}
	return der
}

// TestAttacks: a good document is good, and each forgery fails on its own check. That
// each is the attack that its name says is shown in test/clouds, by plain verifiers that forget
// one check.
func TestAttacks(t *testing.T) {
	b := testBench(t)
	v := newVerifier(t, b.config())
	good := testkit.Must(b.good().marshal())
	d, err := v.Verify(context.Background(), good, testTime)
	if err != nil || d.VMID != testVM || d.SubscriptionID != testSubscription || d.Nonce != testNonce || d.Name != "eastus.metadata.azure.com" || len(d.Chain) != 4 {
		t.Fatalf("a good document: %+v, %v", d, err)
	}
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) {
			der := a.forged(b)
			d, err := v.Verify(context.Background(), der, testTime)
			e, ok := errors.AsType[*refusal.Error](err)
			if d != nil || !ok || e.Check != a.want || errors.Is(err, refusal.ErrRetry) {
				t.Errorf("got %v, want %s", err, a.want)
			}
		})
	}
}
