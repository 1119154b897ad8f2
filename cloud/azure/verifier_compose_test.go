package azure

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	mathrand "math/rand/v2"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestComposed puts documents together at random out of an attacker's parts: a real document's
// content, certificate and signature, keys and certificates of their own, some with the
// service's names and serial numbers, and every way to sign. The service signs nothing here, so
// nothing gets in but the real content under the real signature.
func TestComposed(t *testing.T) {
	b := testBench(t)
	v := newVerifier(t, b.config())
	key := b.attacker.leaf.Key.(*rsa.PrivateKey)
	below := func(issuer *x509.Certificate, change func(*x509.Certificate)) *x509.Certificate {
		forged, template := *issuer, b.leafTemplate(testTime)
		forged.PublicKey = b.attacker.issuing.Key.Public()
		change(template)
		return testkit.Must(issue(template, key, &authority{&forged, b.attacker.issuing.Key})).Certificate
	}
	genuine := b.leaf.Certificate
	certificates := []*x509.Certificate{genuine, b.attacker.leaf.Certificate, b.issuing.Certificate, b.root.Certificate, b.attacker.root.Certificate, b.web.Certificate,
		below(b.issuing.Certificate, func(c *x509.Certificate) { c.SerialNumber = genuine.SerialNumber }),
		below(b.issuing.Certificate, func(c *x509.Certificate) { c.Subject, c.SubjectKeyId = genuine.Subject, genuine.SubjectKeyId }),
		below(b.attacker.issuing.Certificate, func(c *x509.Certificate) { c.SerialNumber = genuine.SerialNumber })}
	own := bytes.Replace(testContent(), []byte(testNonce), []byte(testNonce[:31]+"Y"), 1)
	digest := sha256.Sum256(testContent())
	signature := testkit.Must(b.leaf.Key.Sign(rand.Reader, digest[:], crypto.SHA256))
	ways := []func(over []byte) []byte{
		func([]byte) []byte { return signature },
		func(over []byte) []byte {
			d := sha256.Sum256(over)
			return testkit.Must(rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, d[:]))
		},
		func(over []byte) []byte {
			d := sha256.Sum256(over)
			return testkit.Must(rsa.SignPSS(rand.Reader, key, crypto.SHA256, d[:], nil))
		},
		func(over []byte) []byte {
			d := sha1.Sum(over)
			return testkit.Must(rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA1, d[:]))
		},
		func([]byte) []byte { return make([]byte, 256) },
	}
	r := mathrand.New(mathrand.NewPCG(1, 2))
	algorithms := [][]byte{sha256WithRSA(), sha256WithRSA(), sha256WithRSA(), sha256Digest(), sha1Digest(), rsaEncryption(), rsaEncryption(), rsaPSS()}
	pick := func() []byte { return algorithms[r.IntN(len(algorithms))] }
	good := 0
	for range 1500 {
		p := &parts{Content: [][]byte{testContent(), own}[r.IntN(2)], Digests: [][]byte{pick()}}
		named := certificates[r.IntN(len(certificates))]
		p.Certificates = [][]byte{named.Raw}
		for r.IntN(4) == 0 {
			p.Certificates = append(p.Certificates, certificates[r.IntN(len(certificates))].Raw)
			r.Shuffle(len(p.Certificates), func(i, j int) { p.Certificates[i], p.Certificates[j] = p.Certificates[j], p.Certificates[i] })
		}
		for len(p.Signers) == 0 || r.IntN(8) == 0 {
			s := signerParts{Version: 1, Names: named, Digest: p.Digests[0], Algorithm: rsaEncryption()}
			over := p.Content
			switch r.IntN(12) {
			case 0:
				s.Digest = pick()
			case 1:
				s.Algorithm = pick()
			case 2:
				over = attributesOver(p.Content)
				s.Signed = append([]byte{0xa0}, over[1:]...)
			case 3:
				s.Unsigned = tlv(0xa1, tlv(0x30))
			case 4:
				s.Names = certificates[r.IntN(len(certificates))]
			}
			s.Signature = ways[r.IntN(len(ways))](over)
			p.Signers = append(p.Signers, s)
		}
		d, err := v.Verify(context.Background(), testkit.Must(p.marshal()), testTime)
		if err != nil {
			continue
		}
		good++
		if d.Nonce != testNonce || !bytes.Equal(p.Signers[0].Signature, signature) || len(p.Certificates) != 1 || len(p.Signers) != 1 || p.Signers[0].Signed != nil {
			t.Errorf("taken: %+v", p)
		}
	}
	if good == 0 {
		t.Error("the real document was never put together")
	}
}
