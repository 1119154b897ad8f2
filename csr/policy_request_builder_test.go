package csr_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
)

// requestBuilder makes PKCS#10 requests that Create does not make: it writes the parts that it
// is told, and signs it.
type requestBuilder struct {
	rdns         [][]subjectAttribute
	key          crypto.Signer
	extensions   []pkix.Extension
	attributes   map[oid.OID][]byte // further attributes: one value each, with tag and length
	badSignature bool
}

type subjectAttribute struct {
	id    oid.OID
	tag   cryptobyteasn1.Tag
	value string
}

func commonName(value string) subjectAttribute {
	return subjectAttribute{oid.CommonName, cryptobyteasn1.UTF8String, value}
}

func organization(value string) subjectAttribute {
	return subjectAttribute{oid.Organization, cryptobyteasn1.UTF8String, value}
}

// der writes the request.
func (b *requestBuilder) der(t testing.TB) []byte {
	t.Helper()
	spki, err := x509.MarshalPKIXPublicKey(b.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	var info cryptobyte.Builder
	info.AddASN1(cryptobyteasn1.SEQUENCE, func(c *cryptobyte.Builder) {
		c.AddASN1Int64(0)
		c.AddASN1(cryptobyteasn1.SEQUENCE, func(c *cryptobyte.Builder) {
			for _, rdn := range b.rdns {
				c.AddASN1(cryptobyteasn1.SET, func(c *cryptobyte.Builder) {
					for _, a := range rdn {
						c.AddASN1(cryptobyteasn1.SEQUENCE, func(c *cryptobyte.Builder) {
							oid.Add(c, a.id)
							c.AddASN1(a.tag, func(c *cryptobyte.Builder) { c.AddBytes([]byte(a.value)) })
						})
					}
				})
			}
		})
		c.AddBytes(spki)
		c.AddASN1(cryptobyteasn1.Tag(0).Constructed().ContextSpecific(), func(c *cryptobyte.Builder) {
			for id, value := range b.attributes {
				addAttribute(c, id, value)
			}
			if len(b.extensions) > 0 {
				list, err := asn1.Marshal(b.extensions)
				if err != nil {
					c.SetError(err)
				}
				addAttribute(c, oid.ExtensionRequest, list)
			}
		})
	})
	raw := info.BytesOrPanic()
	var request cryptobyte.Builder
	request.AddASN1(cryptobyteasn1.SEQUENCE, func(c *cryptobyte.Builder) {
		c.AddBytes(raw)
		algorithm, signature := b.sign(t, raw)
		c.AddASN1(cryptobyteasn1.SEQUENCE, func(c *cryptobyte.Builder) {
			oid.Add(c, algorithm)
			if algorithm == oid.SHA256WithRSA {
				c.AddASN1NULL()
			}
		})
		c.AddASN1BitString(signature)
	})
	der, err := request.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func addAttribute(c *cryptobyte.Builder, id oid.OID, value []byte) {
	c.AddASN1(cryptobyteasn1.SEQUENCE, func(c *cryptobyte.Builder) {
		oid.Add(c, id)
		c.AddASN1(cryptobyteasn1.SET, func(c *cryptobyte.Builder) { c.AddBytes(value) })
	})
}

func (b *requestBuilder) sign(t testing.TB, raw []byte) (oid.OID, []byte) {
	t.Helper()
	if b.badSignature {
		raw = append([]byte{0}, raw...)
	}
	digest := sha256.Sum256(raw)
	message, opts, algorithm := digest[:], crypto.SignerOpts(crypto.SHA256), oid.ECDSAWithSHA256
	switch b.key.Public().(type) {
	case *rsa.PublicKey:
		algorithm = oid.SHA256WithRSA
	case ed25519.PublicKey:
		message, opts, algorithm = raw, crypto.Hash(0), oid.Ed25519
	}
	signature, err := b.key.Sign(rand.Reader, message, opts)
	if err != nil {
		t.Fatal(err)
	}
	return algorithm, signature
}

// generalName is one name of a SAN extension.
type generalName struct {
	tag   cryptobyteasn1.Tag
	value string
}

func dnsSAN(name string) generalName {
	return generalName{cryptobyteasn1.Tag(2).ContextSpecific(), name}
}

func ipSAN(address string) generalName {
	return generalName{cryptobyteasn1.Tag(7).ContextSpecific(), string(netip.MustParseAddr(address).AsSlice())}
}

func sanExtension(names ...generalName) pkix.Extension {
	var b cryptobyte.Builder
	b.AddASN1(cryptobyteasn1.SEQUENCE, func(c *cryptobyte.Builder) {
		for _, n := range names {
			c.AddASN1(n.tag, func(c *cryptobyte.Builder) { c.AddBytes([]byte(n.value)) })
		}
	})
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: b.BytesOrPanic()}
}

func providerIDExtension(t testing.TB, id string) pkix.Extension {
	t.Helper()
	e, err := oid.ProviderIDExtension(id)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Keys that many tests share. RSA keys take long to make.
var (
	p256Key = sync.OnceValue(func() crypto.Signer { return newECDSAKey(elliptic.P256()) })
	p384Key = sync.OnceValue(func() crypto.Signer { return newECDSAKey(elliptic.P384()) })
	p521Key = sync.OnceValue(func() crypto.Signer { return newECDSAKey(elliptic.P521()) })
	p224Key = sync.OnceValue(func() crypto.Signer { return newECDSAKey(elliptic.P224()) })
	rsa2048 = sync.OnceValue(func() crypto.Signer { return newRSAKey(2048) })
	rsa1024 = sync.OnceValue(func() crypto.Signer { return newRSAKey(1024) })
	edKey   = sync.OnceValue(func() crypto.Signer {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			panic(err)
		}
		return key
	})
)

func newECDSAKey(curve elliptic.Curve) crypto.Signer {
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

func newRSAKey(bits int) crypto.Signer {
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return key
}
