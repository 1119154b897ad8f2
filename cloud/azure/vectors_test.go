package azure

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
	"github.com/nodeattest/nodeattest/cloud/internal/vectors"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// environment is what all vectors have in common: with this trust and at this time a
// document is verified, and then its machine and nonce are read.
type environment struct {
	Time          time.Time `json:"time"`
	Roots         [][]byte  `json:"roots"`
	Intermediates [][]byte  `json:"intermediates"`
	Domains       []string  `json:"domains"`
	Subscriptions []string  `json:"subscriptions"`
}

// Names of published vectors.
const (
	nameAnchored   = "anchored-certificate-beside-signers"
	nameAttributes = "signed-attributes-beside-content"
)

// maxVector bounds the documents that are kept.
const maxVector = 64 << 10

// cases are every attack and good document.
func cases(b *bench) (cases vectors.Cases) {
	identity := string(testkit.Must(Identity(testSubscription, testVM)))
	list := []attack{
		{name: "as-it-is"},
		{name: "digest-algorithm-sha256", make: func(_ *bench, p *parts) { p.Digests, p.Signers[0].Digest = [][]byte{sha256Digest()}, sha256Digest() }},
		{name: "usage-clients-and-servers", make: signedBy(func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
		})},
		{name: "member-unknown", make: withContent(`"sku":`, `"zone":"1","sku":`)},
		{name: "machine-in-upper-case", make: withContent(testVM[:8], "B1310A36")},
		{name: "certificate-in-its-last-second", make: signedBy(func(c *x509.Certificate) { c.NotAfter = testTime })},
		{name: "document-in-its-last-second", make: func(_ *bench, p *parts) { p.Content = at(-6 * time.Hour) }},
		{name: "no-subscription", want: attest.CheckIdentity, make: withContent(testSubscription, "")},
		{name: "another-subscription", want: checkSubscription, make: withContent(testSubscription, testVM)},
		{name: "no-machine", want: attest.CheckIdentity, make: withContent(`"vmId":"`+testVM, `"vmId":"`)},
		{name: "nonce-of-the-service", want: checkNonce, make: withContent(testNonce, "20261122-145900")},
		{name: "nonce-without-a-label", want: checkNonce, make: withContent(testNonce, "00112233445566778899aabbccddeeff")},
		{name: "nonce-of-another-label", want: checkNonce, make: withContent(testNonce, "otherlabel"+testNonce[len(label):])},
		{name: "nonce-in-upper-case", want: checkNonce, make: withContent(testNonce, strings.ToUpper(testNonce))},
		{name: "nonce-of-129-bits", want: checkNonce, make: withContent(testNonce, label+"7N42dgm5tFLK9N8MT7fHC8")},
		{name: "nonce-of-31-characters", want: checkNonce, make: withContent(testNonce, testNonce[:31])},
	}
	for _, a := range append(list, attacks()...) {
		v := vectors.Vector{Name: a.name, Expect: string(a.want), Document: a.forged(b)}
		if a.want == "" {
			v.Machine = identity
		}
		if len(v.Document) > maxVector {
			continue
		}
		cases.Add(v)
	}
	return cases
}

func parsed(t *testing.T, list [][]byte) (out []*x509.Certificate) {
	t.Helper()
	for _, der := range list {
		c := testkit.Must(x509.ParseCertificate(der))
		out = append(out, c)
	}
	return out
}

// TestVectors replays the vectors that are kept: one for each case here, and no other.
func TestVectors(t *testing.T) {
	b := testBench(t)
	var e environment
	list := testkit.Must(cases(b).Files(testkit.VectorFolder(t, "cloud", "azure"), environment{testTime, [][]byte{b.root.Certificate.Raw},
		[][]byte{b.issuing.Certificate.Raw, b.cross.Certificate.Raw}, []string{domainPublic}, []string{testSubscription}}, &e))
	p := &platform{newVerifier(t, VerifierConfig{Roots: parsed(t, e.Roots), Intermediates: parsed(t, e.Intermediates), Domains: e.Domains}), e.Subscriptions}
	kindtest.Replay(t, p, e.Time, list)
}
