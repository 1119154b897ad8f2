package azure

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"net"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
)

// repeats are the parts of a certificate that can stand there any number of times.
func repeats() map[string]func(c *x509.Certificate, n int) {
	oid := func(n int) asn1.ObjectIdentifier { return asn1.ObjectIdentifier{1, 2, n} }
	return map[string]func(c *x509.Certificate, n int){
		"DNS names":        func(c *x509.Certificate, n int) { c.DNSNames = append(c.DNSNames, fmt.Sprint("a", n, ".b")) },
		"e-mail addresses": func(c *x509.Certificate, n int) { c.EmailAddresses = append(c.EmailAddresses, fmt.Sprint(n, "@b")) },
		"addresses": func(c *x509.Certificate, n int) {
			c.IPAddresses = append(c.IPAddresses, net.IP{10, 0, byte(n >> 8), byte(n)})
		},
		"URIs":      func(c *x509.Certificate, n int) { c.URIs = append(c.URIs, &url.URL{Scheme: "a", Host: fmt.Sprint(n)}) },
		"usages":    func(c *x509.Certificate, n int) { c.UnknownExtKeyUsage = append(c.UnknownExtKeyUsage, oid(n)) },
		"one usage": func(c *x509.Certificate, n int) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth) },
		"policies": func(c *x509.Certificate, n int) {
			c.Policies = append(c.Policies, must(x509.OIDFromInts([]uint64{1, 2, uint64(n)})))
		},
		"places of issuers": func(c *x509.Certificate, n int) { c.IssuingCertificateURL = append(c.IssuingCertificateURL, place(n)) },
		"places of lists": func(c *x509.Certificate, n int) {
			c.CRLDistributionPoints = append(c.CRLDistributionPoints, fmt.Sprint("http://", n))
		},
		"extensions": func(c *x509.Certificate, n int) {
			c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: oid(n), Value: []byte{5, 0}})
		},
		"critical extensions": func(c *x509.Certificate, n int) {
			c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: oid(n), Critical: true, Value: []byte{5, 0}})
		},
		"subject": func(c *x509.Certificate, n int) {
			c.Subject.ExtraNames = append(c.Subject.ExtraNames, pkix.AttributeTypeAndValue{Type: oid(n), Value: "x"})
		},
		"permitted names": func(c *x509.Certificate, n int) {
			c.PermittedDNSDomains = append(c.PermittedDNSDomains, fmt.Sprint("a", n, ".b"))
		},
	}
}

// largest has about as many repeats as fit in a document.
func largest(make func(n int) []byte) []byte {
	few, each := len(make(64)), (len(make(128))-len(make(64)))/64
	for n := 64 + (maxDocumentSize-few)/each; ; n -= 1 + n/100 {
		if der := make(n); len(der) <= maxDocumentSize {
			return der
		}
	}
}

// TestWorkOfDocuments has everything in a document repeated as often as fits, in a stranger's
// certificate and in one that claims to be by a real CA. Memory grows with the size alone, few
// signatures are checked and few places asked, and an error shows no more than a little.
func TestWorkOfDocuments(t *testing.T) {
	b := testBench(t)
	f := &fetcher{give: map[string][]byte{}}
	v := newVerifier(t, VerifierConfig{Roots: []*x509.Certificate{b.root.Certificate}, Intermediates: []*x509.Certificate{b.cross.Certificate, b.issuing.Certificate}, FetchIssuer: f.FetchIssuer})
	claimed := &authority{b.issuing.Certificate, anotherKey()}
	stranger := must(issue(caTemplate("Stranger", testTime.Add(-year), testTime.Add(year)), anotherKey(), nil))
	documents := map[string][]byte{}
	for name, add := range repeats() {
		for by, issuer := range map[string]*authority{" by a stranger": stranger, " as if by a real CA": claimed} {
			documents[name+by] = largest(func(n int) []byte {
				template := b.leafTemplate(testTime)
				for i := range n {
					add(template, i)
				}
				forged := *issuer.Certificate
				forged.PublicKey = issuer.Key.Public()
				return must(newParts(testContent(), must(issue(template, anotherKey(), &authority{&forged, issuer.Key}))).marshal())
			})
		}
	}
	documents["subject of one that has ended"] = largest(func(n int) []byte {
		template := b.leafTemplate(testTime)
		template.NotAfter = testTime.Add(-time.Second)
		for i := range n {
			repeats()["subject"](template, i)
		}
		return must(newParts(testContent(), must(issue(template, anotherKey(), stranger))).marshal())
	})
	documents["issuer"] = largest(func(n int) []byte {
		template := caTemplate("Long", testTime.Add(-year), testTime.Add(year))
		for i := range n {
			repeats()["subject"](template, i)
		}
		return must(newParts(testContent(), must(issue(b.leafTemplate(testTime), anotherKey(), must(issue(template, anotherKey(), nil))))).marshal())
	})
	content := func(member func(n int) string) []byte {
		return largest(func(n int) []byte {
			var more strings.Builder
			for i := range n {
				more.WriteString(member(i))
			}
			p := b.good()
			p.Content = bytes.Replace(p.Content, []byte(`"sku":`), []byte(more.String()+`"sku":`), 1)
			return must(p.marshal())
		})
	}
	documents["members"] = content(func(n int) string { return fmt.Sprintf(`"a%d":0,`, n) })
	documents["levels"] = content(func(n int) string { return `"a":{` })
	for name, der := range documents {
		t.Run(name, func(t *testing.T) {
			if len(der) < maxDocumentSize*9/10 {
				t.Fatalf("%d bytes", len(der))
			}
			f.asked = nil
			budget := attest.NewBudget(12)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := v.verify(t.Context(), der, testTime, budget)
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 48*maxDocumentSize {
				t.Errorf("%d bytes allocated", got)
			}
			if budget.Signatures() > 4 || len(f.asked) > maxFetches {
				t.Errorf("%d signatures, %d places", budget.Signatures(), len(f.asked))
			}
			if err != nil && len(err.Error()) > 1024 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}
