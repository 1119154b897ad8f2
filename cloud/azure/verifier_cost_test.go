package azure

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/costsearch"
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
			c.Policies = append(c.Policies, testkit.Must(x509.OIDFromInts([]uint64{1, 2, uint64(n)})))
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

// largest has about as many repeats as fit in a document of so many bytes.
func largest(most int, make func(n int) []byte) []byte {
	few, each := len(make(64)), (len(make(128))-len(make(64)))/64
	for n := 64 + (most-few)/each; ; n -= 1 + n/100 {
		if der := make(n); len(der) <= most {
			return der
		}
	}
}

// repeating are documents with everything in them repeated as often as fits, in a stranger's
// certificate and in one that claims to be by a real CA.
func repeating(b *bench) map[string][]byte {
	claimed := &authority{b.issuing.Certificate, anotherKey()}
	stranger := testkit.Must(issue(caTemplate("Stranger", testTime.Add(-year), testTime.Add(year)), anotherKey(), nil))
	documents := map[string][]byte{}
	for name, add := range repeats() {
		for by, issuer := range map[string]*authority{" by a stranger": stranger, " as if by a real CA": claimed} {
			documents[name+by] = largest(maxDocumentSize, func(n int) []byte {
				template := b.leafTemplate(testTime)
				for i := range n {
					add(template, i)
				}
				forged := *issuer.Certificate
				forged.PublicKey = issuer.Key.Public()
				return testkit.Must(newParts(testContent(), testkit.Must(issue(template, anotherKey(), &authority{&forged, issuer.Key}))).marshal())
			})
		}
	}
	documents["subject of one that has ended"] = largest(maxDocumentSize, func(n int) []byte {
		template := b.leafTemplate(testTime)
		template.NotAfter = testTime.Add(-time.Second)
		for i := range n {
			repeats()["subject"](template, i)
		}
		return testkit.Must(newParts(testContent(), testkit.Must(issue(template, anotherKey(), stranger))).marshal())
	})
	documents["issuer"] = largest(maxDocumentSize, func(n int) []byte {
		template := caTemplate("Long", testTime.Add(-year), testTime.Add(year))
		for i := range n {
			repeats()["subject"](template, i)
		}
		return testkit.Must(newParts(testContent(), testkit.Must(issue(b.leafTemplate(testTime), anotherKey(), testkit.Must(issue(template, anotherKey(), nil))))).marshal())
	})
	content := func(member func(n int) string) []byte {
		return largest(len(testkit.Must(b.good().marshal()))+maxContentSize-512, func(n int) []byte {
			var more strings.Builder
			for i := range n {
				more.WriteString(member(i))
			}
			p := b.good()
			p.Content = bytes.Replace(p.Content, []byte(`"sku":`), []byte(more.String()+`"sku":`), 1)
			return testkit.Must(p.marshal())
		})
	}
	documents["members"] = content(func(n int) string { return fmt.Sprintf(`"a%d":0,`, n) })
	documents["levels"] = content(func(n int) string { return `"a":{` })
	return documents
}

// costlyVerifier knows a cloud's CAs, and asks for others.
func costlyVerifier(t *testing.T, b *bench) (*Verifier, *fetcher) {
	f := &fetcher{give: map[string][]byte{}}
	return newVerifier(t, VerifierConfig{Roots: []*x509.Certificate{b.root.Certificate}, Intermediates: []*x509.Certificate{b.cross.Certificate, b.issuing.Certificate}, FetchIssuer: f.FetchIssuer}), f
}

// Memory grows with the size of a document only, few signatures are checked and few places asked,
// and an error shows no more than a little.
func TestWorkOfDocuments(t *testing.T) {
	b := testBench(t)
	v, f := costlyVerifier(t, b)
	for name, der := range repeating(b) {
		t.Run(name, func(t *testing.T) {
			if least := map[bool]int{false: maxDocumentSize, true: maxContentSize}[name == "members" || name == "levels"]; len(der) < least*9/10 {
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

// The places of the content, the certificate and the signer in a document, as member numbers.
var contentAt, certificateAt, signerAt = []int{1, 0, 2, 1, 0}, []int{1, 0, 3, 0, 0}, []int{1, 0, 4, 0, 1}

// elementAt is the element at a place below e, or nil.
func elementAt(e *costsearch.Tree, place []int) *costsearch.Tree {
	for _, n := range place {
		if n >= len(e.Members) {
			return nil
		}
		e = e.Members[n]
	}
	return e
}

// treeOf reads a document, and the JSON in it.
func treeOf(document []byte) *costsearch.Tree {
	e := costsearch.Trees(document)[0]
	content := elementAt(e, contentAt)
	content.Members = []*costsearch.Tree{costsearch.JSON(content.Content)}
	return e
}

// start are documents with a list of each sort in the certificate, by a stranger and as if by a
// real CA, those in which one thing is repeated, and a good one.
func start(b *bench) []*costsearch.Tree {
	starts, lists := []*costsearch.Tree{treeOf(testkit.Must(b.good().marshal()))}, repeats()
	for _, by := range []*x509.Certificate{b.issuing.Certificate, b.attacker.issuing.Certificate} {
		template := b.leafTemplate(testTime)
		delete(lists, "critical extensions") // are the others, again
		for _, name := range slices.Sorted(maps.Keys(lists)) {
			lists[name](template, 1)
		}
		issuer := *by
		issuer.PublicKey = anotherKey().Public()
		starts = append(starts, treeOf(testkit.Must(newParts(testContent(), testkit.Must(issue(template, anotherKey(), &authority{&issuer, anotherKey()}))).marshal())))
	}
	documents := repeating(b)
	delete(documents, "levels") // is no JSON
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		starts = append(starts, treeOf(documents[name]))
	}
	return starts
}

// Of the documents that a search tries, none takes much more memory or counted work than a good one
// of its size. Parsing makes the more memory of a certificate, the more elements it has: up to 32
// times its bytes.
func TestCostliestDocuments(t *testing.T) {
	b := testBench(t)
	v, _ := costlyVerifier(t, b)
	s := &costsearch.Search[*costsearch.Tree]{Start: start(b), Largest: maxDocumentSize,
		Change: func(r *mathrand.Rand, from *costsearch.Tree) *costsearch.Tree {
			c := from.Clone()
			parts := []*costsearch.Tree{c, elementAt(c, contentAt), elementAt(c, certificateAt)}
			for range 1 + r.IntN(3) {
				if part := parts[r.IntN(len(parts))]; part != nil {
					part.Mutate(r, maxDocumentSize-64-len(c.Marshal())+len(part.Marshal()))
				}
			}
			return c
		},
		Write: func(c *costsearch.Tree) []byte { // the signer is the certificate's
			if tbs, id := elementAt(c, certificateAt), elementAt(c, signerAt); tbs != nil && len(tbs.Members) > 3 && id != nil && len(id.Members) == 2 {
				id.Members[0], id.Members[1] = tbs.Members[3], tbs.Members[1]
			}
			return c.Marshal()
		},
		Read: kindtest.Cost(&platform{v, []string{testSubscription}}, testTime),
		Good: func(_, size int) []byte {
			template, more := b.leafTemplate(testTime), max(0, size-3<<10)
			fill := testkit.Must(json.Marshal(strings.Repeat("a", min(more, maxContentSize-512))))
			template.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 999, 1}, Value: make([]byte, max(0, more-maxContentSize))}}
			return testkit.Must(newParts(bytes.Replace(testContent(), []byte(`"sku":""`), append([]byte(`"sku":`), fill...), 1), testkit.Must(b.newLeaf(template))).marshal())
		}}
	s.Run(t, 200, [...]float64{costsearch.Memory: 20, costsearch.Counted: 3})
}
