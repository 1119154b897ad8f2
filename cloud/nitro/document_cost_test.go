package nitro

import (
	"bytes"
	"crypto"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"testing"

	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/cloud/internal/kindtest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/costsearch"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

// costly is a document that a search has made: its payload, and the signed parts of its
// certificates below the root, the leaf's first, with the key of each.
type costly struct {
	payload      *costsearch.Tree
	certificates []*costsearch.Tree
	keys         []crypto.Signer
}

// costBench makes documents of an attacker's, who has keys and claims to be below the root.
type costBench struct {
	*bench
	keys []crypto.Signer
}

// element is CBOR that has a head before its content.
func element(head func(members int, content []byte) []byte, text bool, content []byte, members ...*costsearch.Tree) *costsearch.Tree {
	return &costsearch.Tree{Content: content, Members: members, Text: text, Wrap: func(parts [][]byte) []byte {
		content := bytes.Join(parts, nil)
		return append(head(len(parts), content), content...)
	}}
}

func stringOf(major byte, text bool, content []byte) *costsearch.Tree {
	return element(func(_ int, content []byte) []byte { return head(major, len(content)) }, text, content)
}

func bare(content []byte, members ...*costsearch.Tree) *costsearch.Tree {
	return element(func(int, []byte) []byte { return nil }, false, content, members...)
}

// start is a document in which everything that can repeat does.
func (b *costBench) start() *costly {
	c := &costly{payload: element(func(members int, _ []byte) []byte { return head(5, members) }, false, nil)}
	for _, m := range b.good().members {
		key, value := stringOf(3, true, m.key[1:]), bare(m.value)
		if string(m.key) == string(tstr("nitrotpm_pcrs")) {
			value = element(func(members int, _ []byte) []byte { return head(5, members) }, false, nil)
			for i := range 24 {
				value.Members = append(value.Members, bare(nil, bare(head(0, i)), stringOf(2, false, pcr(i))))
			}
		}
		c.payload.Members = append(c.payload.Members, bare(nil, key, value))
	}
	for n, from := range []*authority{b.leaf, b.instance, b.zonal, b.regional} {
		template := *from.Certificate
		template.DNSNames, template.PublicKey = []string{fmt.Sprint("a.b", n)}, b.keys[0].Public()
		c.certificates = append(c.certificates, costsearch.Trees(issue(&template, b.keys[0], nil).RawTBSCertificate)...)
		c.keys = append(c.keys, b.keys[0])
	}
	return c
}

func (b *costBench) change(r *mathrand.Rand, from *costly) *costly {
	c := &costly{payload: from.payload.Clone(), keys: slices.Clone(from.keys)}
	for _, e := range from.certificates {
		c.certificates = append(c.certificates, e.Clone())
	}
	for range 1 + r.IntN(3) {
		n, m := r.IntN(len(c.certificates)), r.IntN(len(c.certificates))
		switch op := r.IntN(10); {
		case op == 0:
			c.payload.Mutate(r, maxDocumentSize)
		case op < 3:
			c.keys[n] = b.keys[r.IntN(len(b.keys))]
		case op < 5 && n > 0 && m > 0:
			c.certificates[n].Members[5] = c.certificates[m].Members[5]
			c.keys[n] = c.keys[m]
		case op == 5 && n > 0 && len(c.certificates) < maxCertificates:
			c.certificates = slices.Insert(c.certificates, n, c.certificates[n].Clone())
			c.certificates[n].Mutate(r, maxField)
			c.keys = slices.Insert(c.keys, n, c.keys[n])
		case op == 6 && len(c.certificates) > 2 && n > 0:
			c.certificates, c.keys = slices.Delete(c.certificates, n, n+1), slices.Delete(c.keys, n, n+1)
		default:
			c.certificates[n].Mutate(r, maxField-200)
		}
		for _, e := range c.certificates {
			if len(e.Members) < 7 { // names and keys are found by their place
				return from
			}
		}
	}
	return c
}

// write has each certificate name the next as its issuer, and the last the root, which has not
// signed it.
func (b *costBench) write(c *costly) []byte {
	issuer, by := costsearch.Trees(b.root.RawSubject)[0], b.keys[0]
	bundle := [][]byte{b.root.Raw}
	for n, tbs := range slices.Backward(c.certificates) {
		tbs.Members[2], tbs.Members[3] = costsearch.Trees([]byte(tpmlab.ECDSASHA256))[0], issuer
		tbs.Members[6] = costsearch.Trees(testkit.Must(x509.MarshalPKIXPublicKey(c.keys[n].Public())))[0]
		signed := tbs.Marshal()
		digest := sha256.Sum256(signed)
		signature := testkit.Must(by.Sign(rand.Reader, digest[:], crypto.SHA256))
		bundle = append(bundle, tpmlab.Seq(signed, []byte(tpmlab.ECDSASHA256), tpmlab.Element(cbasn1.BIT_STRING, append([]byte{0}, signature...))))
		issuer, by = tbs.Members[5], c.keys[n]
	}
	leaf, items := bundle[len(bundle)-1], [][]byte{}
	for _, der := range bundle[:len(bundle)-1] {
		items = append(items, bstr(der))
	}
	p := b.good()
	p.signature = make([]byte, signatureSize)
	payload := c.payload.Clone()
	for _, m := range payload.Members {
		if len(m.Members) == 2 {
			switch string(m.Members[0].Content) {
			case "certificate":
				m.Members[1] = bare(bstr(leaf))
			case "cabundle":
				m.Members[1] = bare(array(items...))
			}
		}
	}
	p.payload = bstr(payload.Marshal())
	return p.marshal()
}

// good is a good document, whose certificates have an extension that fills them.
func (b *costBench) goodOf(_, size int) []byte {
	p, root := &platformOf{}, b.root
	fill := max(0, (size-4<<10)/4)
	below := func(template *x509.Certificate, issuer *authority) *authority {
		for n := min(fill, maxField); ; n -= 16 {
			template := *template
			if n > 0 {
				template.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 999, 1}, Value: make([]byte, n)}}
			}
			if made := issue(&template, newKey(elliptic.P384()), issuer); len(made.Raw) <= maxField || n <= 0 {
				return made
			}
		}
	}
	p.root = root
	p.regional = below(caTemplate("0123456789abcdef."+testRegion+".aws.nitro-enclaves", 2), p.root)
	p.zonal = below(caTemplate("fedcba9876543210.zonal."+testRegion+".aws.nitro-enclaves", 1), p.regional)
	p.instance = below(caTemplate(testInstance+"."+testRegion+".aws.nitro-enclaves", 0), p.zonal)
	p.leaf = below(leafTemplate(), p.instance)
	return p.good().marshal()
}

// Of the documents that a search tries, none takes much more memory or counted work than a good one
// of its size. Parsing makes the more memory of a certificate, the more elements it has.
func TestCostliestDocuments(t *testing.T) {
	b := &costBench{newBench(), []crypto.Signer{newKey(elliptic.P384()), newKey(elliptic.P521()), newKey(elliptic.P256())}}
	s := &costsearch.Search[*costly]{Start: []*costly{b.start()}, Change: b.change, Write: b.write,
		Read: kindtest.Cost(&platform{verifier: b.verifier(t)}, testTime), Good: b.goodOf, Largest: maxDocumentSize}
	s.Run(t, 100, [...]float64{costsearch.Memory: 6, costsearch.Counted: 3})
}
