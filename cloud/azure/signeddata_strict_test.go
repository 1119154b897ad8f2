package azure

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	goasn1 "encoding/asn1"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// node is one element of a DER document; certificates are not taken apart.
type node struct {
	tag      asn1.Tag
	content  []byte // of a primitive one
	children []*node
}

func takeApart(t *testing.T, der []byte, certificate []byte) *node {
	t.Helper()
	s := cryptobyte.String(der)
	var content cryptobyte.String
	n := &node{}
	if !s.ReadAnyASN1(&content, &n.tag) || !s.Empty() {
		t.Fatalf("%x", der)
	}
	if n.tag&0x20 == 0 || bytes.Equal(der, certificate) {
		n.content = content
		return n
	}
	for !content.Empty() {
		var element cryptobyte.String
		var tag asn1.Tag
		if !content.ReadAnyASN1Element(&element, &tag) {
			t.Fatalf("%x", der)
		}
		n.children = append(n.children, takeApart(t, element, certificate))
	}
	return n
}

func (n *node) marshal() []byte {
	if n.content != nil {
		return tlv(n.tag, n.content)
	}
	parts := make([][]byte, len(n.children))
	for i, c := range n.children {
		parts[i] = c.marshal()
	}
	return tlv(n.tag, parts...)
}

// each calls f with every element, the outer ones first.
func (n *node) each(path string, f func(path string, n *node)) {
	f(path, n)
	for i, c := range n.children {
		c.each(path+"."+string(rune('0'+i)), f)
	}
}

// TestShape changes every element of the PKCS#7, none of which is under the signature but
// the content: with another tag, without one of its elements, with one more at its end or its
// beginning, or with one doubled, a document is refused.
func TestShape(t *testing.T) {
	b := testBench(t)
	v := newVerifier(t, b.config())
	der := testkit.Must(b.good().marshal())
	tree := takeApart(t, der, b.leaf.Certificate.Raw)
	if !bytes.Equal(tree.marshal(), der) {
		t.Fatal("not put together again")
	}
	tried := 0
	refused := func(path, what string) {
		t.Helper()
		tried++
		_, err := v.Verify(context.Background(), tree.marshal(), testTime)
		if _, ok := errors.AsType[*refusal.Error](err); !ok || errors.Is(err, checkSignature) {
			t.Errorf("element %s %s: %v", path, what, err)
		}
	}
	tree.each("0", func(path string, n *node) {
		tag, children := n.tag, n.children
		for _, other := range []asn1.Tag{tag ^ 1, tag ^ 0x20, tag ^ 0x80} {
			n.tag = other
			refused(path, "with another tag")
		}
		n.tag = tag
		if children == nil {
			return
		}
		more := &node{tag: asn1.NULL, content: []byte{}}
		n.children = append(slices.Clip(children), more)
		refused(path, "with more at its end")
		n.children = append([]*node{more}, children...)
		refused(path, "with more at its beginning")
		for i := range children {
			n.children = append(children[:i:i], children[i+1:]...)
			refused(path, "without an element")
			n.children = append(children[:i+1:i+1], children[i:]...)
			refused(path, "with an element twice")
		}
		n.children = children
	})
	if tried < 150 {
		t.Errorf("%d changes", tried)
	}
}

// Sizes at their limits and over them.
func TestLimits(t *testing.T) {
	b := testBench(t)
	for name, change := range map[string]func(n int) (old, replacement string){
		"vmId":           func(n int) (string, string) { return testVM, strings.Repeat("a", n) },
		"subscriptionId": func(n int) (string, string) { return testSubscription, strings.Repeat("a", n) },
		"nonce":          func(n int) (string, string) { return testNonce, strings.Repeat("a", n) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{0, 64, 65} {
				p := b.good()
				old, replacement := change(n)
				withContent(old, replacement)(b, p)
				if _, err := parseInsecure(testkit.Must(p.marshal())); (err == nil) != (n < 65) || err != nil && !errors.Is(err, checkEncoding) {
					t.Errorf("%s of %d: %v", name, n, err)
				}
			}
		})
	}
	for n, want := range map[int]bool{63: true, 64: false} {
		c := b.config()
		c.Domains = []string{"metadata." + strings.Repeat("a", n) + ".example"}
		if _, err := NewVerifier(c); (err == nil) != want {
			t.Errorf("a label of %d: %v", n, err)
		}
	}
	p := b.good()
	signedBy(func(c *x509.Certificate) { c.KeyUsage = 0 })(b, p)
	if _, err := newVerifier(t, b.config()).Verify(context.Background(), testkit.Must(p.marshal()), testTime); err != nil {
		t.Errorf("a certificate without a key usage: %v", err)
	}
	key := func(bits uint, e int) *x509.Certificate {
		return &x509.Certificate{PublicKey: &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), bits-1), E: e}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	}
	for name, c := range map[string]struct {
		leaf *x509.Certificate
		good bool
	}{
		"2047 bits": {key(2047, 3), false}, "2048 bits": {key(2048, 3), true}, "4096 bits": {key(4096, 3), true}, "4097 bits": {key(4097, 3), false},
		"the largest exponent": {key(2048, 1<<31-1), true}, "a larger exponent": {key(2048, 1<<31), false}, "no RSA": {&x509.Certificate{PublicKey: &ecdsa.PublicKey{}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkLeaf(c.leaf); (err == nil) != c.good {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// An element of another type is refused wherever it stands.
func TestElements(t *testing.T) {
	b := testBench(t)
	number := testkit.Must(goasn1.Marshal(b.leaf.Certificate.SerialNumber))
	signer := func(digest []byte, id ...[]byte) func(*parts) {
		return func(p *parts) {
			p.Signers[0].Content = slices.Concat([]byte{2, 1, 1}, tlv(0x30, id...), digest, rsaEncryption(), tlv(4, make([]byte, 256)))
		}
	}
	nulls := tlv(0x30, tlv(6, oidSHA256WithRSA), []byte{5, 1, 0})
	for name, c := range map[string]struct {
		change func(*parts)
		want   refusal.Check
	}{
		"a good one, without a signature": {signer(sha256WithRSA(), b.leaf.Certificate.RawIssuer, number), checkSignature},
		"a digest algorithm alone":        {func(p *parts) { p.Digests = [][]byte{{5, 0}} }, checkSigners},
		"a NULL that is not empty":        {func(p *parts) { p.Digests = [][]byte{nulls}; signer(nulls, b.leaf.Certificate.RawIssuer, number)(p) }, checkAlgorithm},
		"an issuer in a SET":              {signer(sha256WithRSA(), []byte{0x31, 0}, number), checkEncoding},
		"a serial number in bytes":        {signer(sha256WithRSA(), b.leaf.Certificate.RawIssuer, []byte{4, 1, 1}), checkEncoding},
	} {
		t.Run(name, func(t *testing.T) {
			p := b.good()
			c.change(p)
			if _, err := newVerifier(t, b.config()).Verify(context.Background(), testkit.Must(p.marshal()), testTime); !errors.Is(err, c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// What cannot be read is said to be that, also where a join reads it first.
func TestReadRefuses(t *testing.T) {
	p := &platform{verifier: &Verifier{}, subscriptions: []string{testSubscription}}
	if claims, err := p.Read([]byte("x")); !errors.Is(err, checkEncoding) || claims != nil {
		t.Errorf("%v, %v", claims, err)
	}
}

// One spelling for one time.
func TestReadTime(t *testing.T) {
	if at, err := readTime("11/22/26 09:00:00 -0000"); err != nil || !at.Equal(testTime) {
		t.Errorf("%s, %v", at, err)
	}
	for _, s := range []string{"", "11/22/26 09:00:00.5 -0000", "11/22/26 9:00:00 -0000", "11/22/26 09:00:00 +0000", "11/22/26 09:00:00 -0000 ", "13/22/26 09:00:00 -0000", "11/31/26 09:00:00 -0000"} {
		t.Run(s, func(t *testing.T) {
			if at, err := readTime(s); !errors.Is(err, checkEncoding) || !at.IsZero() {
				t.Errorf("%s, %v", at, err)
			}
		})
	}
}

// A document is as large as the limit at most, and so is its content.
func TestSize(t *testing.T) {
	b := testBench(t)
	good := testkit.Must(b.good().marshal())
	for name, c := range map[string]struct {
		most int
		make func(size int) []byte
	}{
		"content": {maxContentSize, func(size int) []byte {
			p := b.good()
			p.Content = append(p.Content, bytes.Repeat([]byte(" "), size-len(p.Content))...)
			return testkit.Must(p.marshal())
		}},
		"document": {maxDocumentSize, func(size int) []byte { // with bytes in place of a certificate
			p := b.good()
			p.Certificates[0] = tlv(0x30, make([]byte, len(p.Certificates[0])-4+size-len(good)))
			if der := testkit.Must(p.marshal()); len(der) != size {
				t.Fatalf("%d bytes, want %d", len(der), size)
			}
			return testkit.Must(p.marshal())
		}},
	} {
		if _, err := parseInsecure(c.make(c.most)); err != nil {
			t.Errorf("the largest %s: %v", name, err)
		}
		if _, err := parseInsecure(c.make(c.most + 1)); !errors.Is(err, checkEncoding) {
			t.Errorf("a %s of a byte more: %v", name, err)
		}
	}
}
