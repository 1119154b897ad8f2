package tpm_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"testing"

	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit/costsearch"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

// costly is a request that a search has made: its statements, the signed parts of its PKCS#10
// request and of its certificates, and the changes when they are put together.
type costly struct {
	statements, request *costsearch.Tree
	certificates        []*costsearch.Tree
	rooted, signed      bool // the last certificate names a root; the signatures verify
}

func (c *costly) clone() *costly {
	d := &costly{statements: c.statements.Clone(), request: c.request.Clone(), rooted: c.rooted, signed: c.signed}
	for _, e := range c.certificates {
		d.certificates = append(d.certificates, e.Clone())
	}
	return d
}

// costBench makes requests of a road and a stage.
type costBench struct {
	*workBench
	t   testing.TB
	key *ecdsa.PrivateKey // of the PKCS#10 requests in hellos, which anyone can sign; nil for answers
}

// start is a good request with a chain of so many certificates, with lists in them or without.
func (s *costBench) start(certificates int, rich bool) *costly {
	bundle, evidence := s.open(s.t)
	c := &costly{statements: &costsearch.Tree{Tag: cbasn1.SEQUENCE}, rooted: true, signed: true}
	for _, one := range evidence.Statements {
		c.statements.Members = append(c.statements.Members, costsearch.Trees(one.Stmt)...)
	}
	if s.key != nil {
		parsed, err := s.request.Parsed().PKCS10()
		if err != nil {
			s.t.Fatal(err)
		}
		if bundle.Request, err = csr.Create(csr.PurposeClient, s.key, parsed.CSR.Subject.CommonName[len("system:node:"):], csr.CreateOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
	c.request = costsearch.Trees(bundle.Request)[0].Members[0]
	for n := range certificates {
		cert, extra := s.newLeaf("CA 1"), listExtensions()
		cert.Algorithm = []byte(tpmlab.ECDSASHA256)
		if n > 0 {
			cert = s.ca(fmt.Sprint("CA ", n), fmt.Sprint("CA ", n+1), s.lower)
			extra = append(extra, tpmlab.Usages("\x2a\x03\x04", "\x67\x81\x05\x08\x03", "\x67\x81\x05\x08\x01"))
		} else {
			names := slices.Concat(costsearch.Trees(cert.Extensions[3].Value)[0].Members, costsearch.Trees(extra[0].Value)[0].Members)
			if extra = extra[2:]; rich {
				cert.Extensions[3].Value = (&costsearch.Tree{Tag: cbasn1.SEQUENCE, Members: names}).Marshal()
			}
		}
		if rich {
			cert.Extensions = append(cert.Extensions, extra...)
		}
		c.certificates = append(c.certificates, costsearch.Trees(cert.Sign(s.t, s.lower))[0].Members[0])
	}
	return c
}

// largest is the largest signed part that certificate n can have.
func (s *costBench) largest(n int) int {
	if n == 0 && s.road == attest.RoadEK {
		return 8<<10 - 512
	}
	return der.MaxCertificateSize - 512
}

// change makes another request of this one.
func (s *costBench) change(r *mathrand.Rand, c *costly) *costly {
	c = c.clone()
	for range 1 + r.IntN(4) {
		n := r.IntN(len(c.certificates))
		switch op := r.IntN(20); {
		case op == 0:
			c.rooted = !c.rooted
		case op == 1:
			c.signed = !c.signed
		case op < 5 && s.key != nil:
			c.request.Mutate(r, 64<<10)
		case op == 5:
			c.statements.Mutate(r, 128<<10)
		case op == 6 && n > 0:
			c.certificates = slices.Delete(c.certificates, n, n+1)
		case op == 7 && n > 0 && len(c.certificates) < der.MaxCertificates:
			again := c.certificates[n].Clone()
			if name := again.Members[5].Last(); len(name.Content) > 0 {
				name.Content = bytes.Clone(name.Content)
				name.Content[r.IntN(len(name.Content))] = byte('a' + r.IntN(26))
			}
			c.certificates = slices.Insert(c.certificates, n, again)
		default:
			before := c.certificates[n].Clone()
			if c.certificates[n].Mutate(r, s.largest(n)); len(c.certificates[n].Members) < 8 {
				c.certificates[n] = before // issuer and subject are found by their place
			}
			for m := 1; op > 15 && n > 0 && m < len(c.certificates); m++ { // what one CA gains all gain
				subject := c.certificates[m].Members[5]
				c.certificates[m] = c.certificates[n].Clone()
				c.certificates[m].Members[5] = subject
			}
		}
	}
	return c
}

// write puts the request together: each certificate names the next as its issuer. It is nil for
// what cannot be written.
func (s *costBench) write(c *costly) []byte {
	bundle, evidence := s.open(s.t)
	evidence.Certificates = nil
	for n, tbs := range c.certificates {
		issuer, signer := costsearch.Trees(tpmlab.NameOf("absent"))[0], s.lower
		switch {
		case n < len(c.certificates)-1:
			issuer = c.certificates[n+1].Members[5]
		case c.rooted:
			issuer, signer = costsearch.Trees(tpmlab.NameOf("root 9"))[0], s.roots[9].Key.(*ecdsa.PrivateKey)
		}
		tbs.Members[3] = issuer
		evidence.Certificates = append(evidence.Certificates, signedBy(tbs.Marshal(), signer, c.signed))
	}
	for n := range min(len(evidence.Statements), len(c.statements.Members)) {
		evidence.Statements[n].Stmt = c.statements.Members[n].Marshal()
	}
	if s.key != nil {
		bundle.Request = signedBy(c.request.Marshal(), s.key, true)
	}
	var err error
	if bundle.Data, err = evidence.Marshal(); err != nil {
		return nil
	}
	request, err := bundle.Marshal()
	if err != nil {
		return nil
	}
	return request
}

func signedBy(signed []byte, key *ecdsa.PrivateKey, right bool) []byte {
	digest := sha256.Sum256(signed)
	if !right {
		digest[0] ^= 1
	}
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	if err != nil {
		panic(err)
	}
	return tpmlab.Seq(signed, []byte(tpmlab.ECDSASHA256), tpmlab.Element(cbasn1.BIT_STRING, append([]byte{0}, signature...)))
}

// read verifies a request, by a kind that has seen no certificate.
func (s *costBench) read(request []byte) (work int, err error) {
	s.kind.ForgetSignatures(true)
	filed := *s.request
	filed.Spec.Request = request
	cost := s.kind.costOf(func() { err = s.verify(&filed) })
	return max(cost[2], len(request)), err
}

// good is a good request with so many certificates more than one, of about so many bytes of PEM as
// far as there is room for them, in which nothing repeats.
func (s *costBench) good(more, size int) []byte {
	c := s.start(1+more, false)
	for n, tbs := range c.certificates {
		if fill := min(size*3/4/(1+more), s.largest(n)) - len(tbs.Marshal()) - 64; fill > 0 {
			extensions := tbs.Members[len(tbs.Members)-1].Members[0]
			extensions.Members = append(extensions.Members, costsearch.Trees(tpmlab.Seq([]byte{6, 3, 0x88, 0x37, 2}, tpmlab.Octets(bytes.Repeat([]byte{0xff}, fill))))...)
		}
	}
	return s.write(c)
}

// Of the requests that a search tries, none takes much more memory or counted work than a good one
// of its size. Parsing makes the more memory of a certificate, the more elements it has, and each
// issuer that refuses a cheap request names the certificate.
func TestCostliestRequests(t *testing.T) {
	for _, road := range []attest.Road{attest.RoadAK, attest.RoadEK} {
		for _, answer := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/answer %t", road, answer), func(t *testing.T) {
				b := &costBench{workBench: newWorkBench(t, road, answer, elliptic.P256()), t: t}
				if !answer {
					b.key = tpmlab.NewECDSA(t, elliptic.P256())
				}
				s := &costsearch.Search[*costly]{Change: b.change, Write: b.write, Read: b.read,
					Good: b.good, Largest: der.MaxEvidenceSize * 4 / 3,
					Class: func(c *costly) int { return min(len(c.certificates), message.MaxChainLinks) - 1 }, Classes: message.MaxChainLinks}
				for _, certificates := range []int{1, 2, message.MaxChainLinks, der.MaxCertificates} {
					s.Start = append(s.Start, b.start(certificates, true))
				}
				s.Run(t, 150, [...]float64{costsearch.Memory: 6, costsearch.Counted: 3})
			})
		}
	}
}
