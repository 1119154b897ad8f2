package chain

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	goasn1 "encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

var now = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

type authority struct {
	*x509.Certificate
	key crypto.Signer
}

func newKey() crypto.Signer { return testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

// issue makes a certificate; issuer nil is itself.
func issue(name string, issuer *authority, key crypto.Signer, change func(*x509.Certificate)) *authority {
	template := &x509.Certificate{SerialNumber: testkit.Must(rand.Int(rand.Reader, big.NewInt(1<<60))), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), BasicConstraintsValid: true, IsCA: name != "leaf", MaxPathLen: -1}
	if name != "leaf" {
		template.KeyUsage = x509.KeyUsageCertSign
	}
	if change != nil {
		change(template)
	}
	if issuer == nil {
		issuer = &authority{template, key}
	}
	return &authority{testkit.Must(x509.ParseCertificate(testkit.Must(x509.CreateCertificate(rand.Reader, template, issuer.Certificate, key.Public(), issuer.key)))), key}
}

// tower is a root, so many CAs and a leaf, leaf first.
func tower(intermediates int) []*authority {
	root := issue("root", nil, newKey(), nil)
	all, above := []*authority{root}, root
	for n := range intermediates {
		above = issue(fmt.Sprintf("ca %d", n), above, newKey(), nil)
		all = append([]*authority{above}, all...)
	}
	return append([]*authority{issue("leaf", above, newKey(), nil)}, all...)
}

func certificates(list ...*authority) []*x509.Certificate {
	out := make([]*x509.Certificate, len(list))
	for n, a := range list {
		out[n] = a.Certificate
	}
	return out
}

func verify(path []*x509.Certificate, at time.Time, budget int) error {
	return Verify(context.Background(), path, at, x509.ExtKeyUsageAny, attest.NewBudget(budget))
}

func TestVerify(t *testing.T) {
	good := certificates(tower(2)...)
	if err := verify(good, now, 3); err != nil {
		t.Fatal(err)
	}
	if err := verify(good, now, 2); !errors.Is(err, attest.CheckBudget) {
		t.Errorf("over the budget: %v", err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Verify(ended, good, now, x509.ExtKeyUsageAny, attest.NewBudget(9)); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("a context that has ended: %v", err)
	}
	root, other := issue("root", nil, newKey(), nil), issue("root", nil, newKey(), nil)
	leaf := func(change func(*x509.Certificate)) *authority { return issue("leaf", root, newKey(), change) }
	below := func(change func(*x509.Certificate)) []*x509.Certificate {
		ca := issue("ca", root, newKey(), change)
		return certificates(issue("leaf", ca, newKey(), nil), ca, root)
	}
	weak := testkit.Must(rsa.GenerateKey(rand.Reader, 1024))
	_, ed, _ := ed25519.GenerateKey(rand.Reader)
	for name, c := range map[string]struct {
		path []*x509.Certificate
		at   time.Duration
		want refusal.Check
	}{
		"good":                   {certificates(leaf(nil), root), 0, ""},
		"its first second":       {certificates(leaf(nil), root), -time.Hour, ""},
		"its last second":        {certificates(leaf(nil), root), time.Hour, ""},
		"a second before":        {certificates(leaf(nil), root), -time.Hour - time.Second, CheckNotYetValid},
		"a second after":         {certificates(leaf(nil), root), time.Hour + time.Second, CheckExpired},
		"nothing":                {nil, 0, CheckChain},
		"a root alone":           {certificates(root), 0, CheckChain},
		"five links":             {certificates(tower(4)...), 0, ""},
		"six links":              {certificates(tower(5)...), 0, CheckChain},
		"another root":           {certificates(leaf(nil), other), 0, CheckChain},
		"an expired CA":          {below(func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Second) }), 0, CheckExpired},
		"a CA of tomorrow":       {below(func(c *x509.Certificate) { c.NotBefore = now.Add(time.Second) }), 0, CheckNotYetValid},
		"a CA without CA:true":   {below(func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature }), 0, CheckChain},
		"a CA that signs no CAs": {below(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }), 0, CheckChain},
		"a name that is barred":  {below(func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"example.com"} }), 0, ""}, // of a leaf without names
		"RSA of 1024 bits":       {certificates(issue("leaf", root, weak, nil), root), 0, CheckChain},
		"Ed25519":                {certificates(issue("leaf", root, ed, nil), root), 0, CheckChain},
		"a critical extension": {certificates(leaf(func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3}, Critical: true, Value: []byte{5, 0}}}
		}), root), 0, CheckChain},
	} {
		t.Run(name, func(t *testing.T) {
			err := verify(c.path, now.Add(c.at), MaxLinks)
			if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// crypto/x509 tries every certificate that has an issuer's name. Four of one name and key would be
// 64 signatures, and each of one name and another key is one more.
func TestOneNameTwice(t *testing.T) {
	root, key := issue("root", nil, newKey(), nil), newKey()
	top := issue("ca", root, key, nil)
	leaf := issue("leaf", top, newKey(), nil)
	many := []*authority{leaf}
	for n := range 3 {
		many = append(many, issue("ca", top, key, func(c *x509.Certificate) { c.DNSNames = []string{fmt.Sprint(n, ".example")} }))
	}
	for name, path := range map[string][]*x509.Certificate{
		"four CAs": certificates(append(many, top, root)...),
		"two CAs":  certificates(leaf, many[1], top, root),
		"the root": certificates(leaf, issue("root", root, root.key, nil), root),
	} {
		if err := verify(path, now, 0); !errors.Is(err, CheckChain) { // before a signature is counted
			t.Errorf("%s: %v", name, err)
		}
	}
	next := issue("ca", top, newKey(), nil)
	path := certificates(issue("leaf", next, newKey(), nil), next, top, root)
	if err := verify(path, now, 5); err != nil {
		t.Errorf("a CA's next key: %v", err)
	}
	if err := verify(path, now, 4); !errors.Is(err, attest.CheckBudget) { // for two of three there are two of the name
		t.Errorf("a CA's next key over the budget: %v", err)
	}
}

// names are the subjects of chains, each as leaf<ca<root.
func names(paths [][]*x509.Certificate) (out []string) {
	for _, p := range paths {
		s := ""
		for n, c := range p {
			if n > 0 {
				s += "<"
			}
			s += c.Subject.CommonName
		}
		out = append(out, s)
	}
	return out
}

func TestPaths(t *testing.T) {
	all := tower(2) // leaf, ca 1, ca 0, root
	leaf, lower, upper, root := all[0], all[1], all[2], all[3]
	cross := issue("other root", nil, newKey(), nil)
	crossed := issue("ca 0", cross, upper.key, func(c *x509.Certificate) { c.SubjectKeyId = upper.SubjectKeyId })
	old := issue("ca 0", root, upper.key, func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Second); c.SubjectKeyId = upper.SubjectKeyId })
	renewed := issue("ca 0", root, newKey(), nil) // another key
	for name, c := range map[string]struct {
		roots, intermediates []*authority
		want                 string
		missing              string
	}{
		"one chain":             {[]*authority{root}, []*authority{lower, upper}, "[leaf<ca 1<ca 0<root]", ""},
		"two roots":             {[]*authority{root, cross}, []*authority{lower, upper, crossed}, "[leaf<ca 1<ca 0<root leaf<ca 1<ca 0<other root]", ""},
		"the old one last":      {[]*authority{root, cross}, []*authority{lower, old, crossed}, "[leaf<ca 1<ca 0<other root leaf<ca 1<ca 0<root]", ""},
		"a CA as a root":        {[]*authority{upper}, []*authority{lower}, "[leaf<ca 1<ca 0]", ""},
		"another key":           {[]*authority{root}, []*authority{lower, renewed}, "[]", "ca 1"},
		"no root":               {nil, []*authority{lower, upper}, "[]", "ca 0"},
		"no issuer":             {[]*authority{root}, []*authority{upper}, "[]", "leaf"},
		"nothing":               {nil, nil, "[]", "leaf"},
		"the root as a CA, too": {[]*authority{root}, []*authority{lower, upper, root}, "[leaf<ca 1<ca 0<root]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			paths, missing := Paths(leaf.Certificate, NewPool(certificates(c.roots...)), now, NewPool(certificates(c.intermediates...)))
			if got := fmt.Sprint(names(paths)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if c.missing != "" && missing.Subject.CommonName != c.missing {
				t.Errorf("missing is the issuer of %s, want of %s", missing.Subject.CommonName, c.missing)
			}
		})
	}
	t.Run("no CA", func(t *testing.T) {
		none := issue("ca 1", upper, lower.key, func(c *x509.Certificate) { c.IsCA, c.KeyUsage, c.SubjectKeyId = false, 0, lower.SubjectKeyId })
		if paths, _ := Paths(leaf.Certificate, NewPool(certificates(root)), now, NewPool(certificates(none, upper))); len(paths) > 0 {
			t.Errorf("got %v", names(paths))
		}
	})
}

// A chain is found and verified however each certificate spells its issuer's name (RFC 5280,
// 7.1), and not where it means another name.
func TestOtherSpellings(t *testing.T) {
	spelled := func(a *authority, as string) *authority {
		c := *a.Certificate
		c.RawSubject = testkit.Must(goasn1.Marshal(pkix.RDNSequence{{{Type: []int{2, 5, 4, 3}, Value: goasn1.RawValue{Tag: goasn1.TagUTF8String, Bytes: []byte(as)}}}}))
		return &authority{&c, a.key}
	}
	for name, c := range map[string]struct {
		root, ca string // as those below them spell them
		want     string
	}{
		"as they are":       {"root", "ca", "[leaf<ca<root]"},
		"in capitals":       {"ROOT", "CA", "[leaf<ca<root]"},
		"with spaces":       {" root", "ca  ", "[leaf<ca<root]"},
		"another root":      {"roots", "ca", "[]"},
		"another CA":        {"root", "c a", "[]"},
		"one that looks so": {"root", "c\u0430", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			root := issue("root", nil, newKey(), nil)
			ca := issue("ca", spelled(root, c.root), newKey(), nil)
			leaf := issue("leaf", spelled(ca, c.ca), newKey(), nil)
			roots, intermediates := NewPool(certificates(root)), NewPool(certificates(ca))
			paths, missing := Paths(leaf.Certificate, roots, now, intermediates)
			if got := fmt.Sprint(names(paths)); got != c.want || missing == nil {
				t.Fatalf("got %s, want %s", got, c.want)
			}
			whole := certificates(leaf, ca, root)
			if err := verify(whole, now, 2); (err == nil) != (len(paths) > 0) || err != nil && !errors.Is(err, CheckChain) {
				t.Error(err)
			}
			if len(paths) > 0 {
				if in := intermediates.In(paths[0]); len(in) != 1 || paths[0][1] != ca.Certificate || paths[0][2] != root.Certificate {
					t.Errorf("%d of the chain in the pool, or other certificates", len(in))
				}
			}
			twice := certificates(leaf, ca, spelled(ca, "CA"), root)
			if err := verify(twice, now, 9); !errors.Is(err, CheckChain) {
				t.Errorf("a CA twice: %v", err)
			}
		})
	}
}

// Many certificates of one name end the search, and so do certificates that certify each other.
func TestPathsAreBounded(t *testing.T) {
	key := newKey()
	var many []*authority
	for range 40 {
		many = append(many, issue("a", issue("b", nil, key, nil), newKey(), func(c *x509.Certificate) { c.SubjectKeyId = []byte{1} }),
			issue("b", issue("a", nil, key, func(c *x509.Certificate) { c.SubjectKeyId = []byte{1} }), newKey(), func(c *x509.Certificate) { c.SubjectKeyId = []byte{1} }))
	}
	leaf := issue("leaf", many[0], newKey(), nil)
	s := &search{intermediates: []Pool{NewPool(certificates(many...))}, at: now}
	s.extend([]*x509.Certificate{leaf.Certificate}, true)
	if s.steps != maxSteps || len(s.valid) > 0 {
		t.Errorf("%d steps", s.steps)
	}
	root := issue("root", nil, key, nil)
	var roots []*authority
	for range 10 {
		roots = append(roots, issue("root", nil, key, nil))
	}
	leaf = issue("leaf", root, newKey(), nil)
	if paths, _ := Paths(leaf.Certificate, NewPool(certificates(roots...)), now); len(paths) != maxPaths {
		t.Errorf("%d chains", len(paths))
	}
	s = &search{roots: []Pool{NewPool(certificates(roots...))}, at: now}
	s.extend([]*x509.Certificate{leaf.Certificate}, true)
	if len(s.valid) != maxPaths || s.steps != maxPaths {
		t.Errorf("%d chains after %d steps", len(s.valid), s.steps)
	}
}

// Which keys count, at their limits.
func TestSoundKey(t *testing.T) {
	rsaOf := func(bits uint) crypto.PublicKey {
		return &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), bits-1), E: 65537}
	}
	for name, c := range map[string]struct {
		key  crypto.PublicKey
		want bool
	}{
		"RSA-2047": {rsaOf(2047), false}, "RSA-2048": {rsaOf(2048), true}, "RSA-8192": {rsaOf(8192), true}, "RSA-8193": {rsaOf(8193), false},
		"P-224": {&ecdsa.PublicKey{Curve: elliptic.P224()}, false}, "P-256": {&ecdsa.PublicKey{Curve: elliptic.P256()}, true},
		"P-384": {&ecdsa.PublicKey{Curve: elliptic.P384()}, true}, "P-521": {&ecdsa.PublicKey{Curve: elliptic.P521()}, true},
		"Ed25519": {ed25519.PublicKey{}, false}, "none": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := soundKey(&x509.Certificate{PublicKey: c.key}); got != c.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// An issuer is a CA of the name, and of the key identifier where both state one.
func TestIssued(t *testing.T) {
	for name, c := range map[string]struct {
		change func(c, issuer *x509.Certificate)
		want   bool
	}{
		"as it is":                       {func(_, _ *x509.Certificate) {}, true},
		"no identifier of the issuer":    {func(c, _ *x509.Certificate) { c.AuthorityKeyId = nil }, true},
		"the issuer has no identifier":   {func(_, i *x509.Certificate) { i.SubjectKeyId = nil }, true},
		"an identifier of one byte":      {func(c, _ *x509.Certificate) { c.AuthorityKeyId = []byte{1} }, false},
		"an issuer of one byte":          {func(_, i *x509.Certificate) { i.SubjectKeyId = []byte{1} }, false},
		"another name":                   {func(_, i *x509.Certificate) { i.RawSubject = []byte("y") }, false},
		"no CA":                          {func(_, i *x509.Certificate) { i.IsCA = false }, false},
		"a CA without basic constraints": {func(_, i *x509.Certificate) { i.BasicConstraintsValid = false }, false},
	} {
		t.Run(name, func(t *testing.T) {
			below := &x509.Certificate{RawIssuer: []byte("x"), AuthorityKeyId: []byte{1, 2}}
			issuer := &x509.Certificate{RawSubject: []byte("x"), SubjectKeyId: []byte{1, 2}, IsCA: true, BasicConstraintsValid: true}
			c.change(below, issuer)
			if got := Issued(below, issuer); got != c.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// The longest chain has MaxLinks links; a longer one is not looked for.
func TestLongestPath(t *testing.T) {
	for intermediates, want := range map[int]int{MaxLinks - 1: 1, MaxLinks: 0} {
		all := certificates(tower(intermediates)...)
		last := len(all) - 1
		if paths, _ := Paths(all[0], NewPool(all[last:]), now, NewPool(all[1:last])); len(paths) != want {
			t.Errorf("%d intermediates: %d chains", intermediates, len(paths))
		}
	}
}

// One CA is its name and its key: a key under another name is another one, and a name with another key.
func TestWithin(t *testing.T) {
	known := &x509.Certificate{RawSubject: []byte("x"), RawSubjectPublicKeyInfo: []byte("k")}
	for name, c := range map[string]struct {
		subject, key string
		want         bool
	}{"the same": {"x", "k", true}, "another name": {"y", "k", false}, "another key": {"x", "l", false}} {
		t.Run(name, func(t *testing.T) {
			if got := within([]*x509.Certificate{known}, &x509.Certificate{RawSubject: []byte(c.subject), RawSubjectPublicKeyInfo: []byte(c.key)}); got != c.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// A certificate has three elements, and nothing stands behind them.
func TestParse(t *testing.T) {
	c := issue("leaf", nil, newKey(), nil)
	var body cryptobyte.String
	if in := cryptobyte.String(c.Raw); !in.ReadASN1(&body, asn1.SEQUENCE) {
		t.Fatal("no SEQUENCE")
	}
	whole := func(parts ...[]byte) []byte {
		var b cryptobyte.Builder
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) { b.AddBytes(slices.Concat(parts...)) })
		return b.BytesOrPanic()
	}
	for name, row := range map[string]struct {
		der  []byte
		good bool
	}{
		"as it is":                   {whole(body), true},
		"nothing":                    {nil, false},
		"bytes behind it":            {append(slices.Clone(c.Raw), 0), false},
		"bytes behind the signature": {whole(body, []byte{5, 0}), false},
		"an empty one":               {whole(), false},
		"two elements":               {whole(body[:len(body)-8]), false},
		"three others":               {whole([]byte{0x30, 0, 0x30, 0, 3, 1, 0}), false},
	} {
		if got, err := Parse(row.der); (err == nil) != row.good || row.good && !got.Equal(c.Certificate) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A name is shown up to a length, since a stranger writes it.
func TestName(t *testing.T) {
	name := func(length int) []byte {
		return testkit.Must(goasn1.Marshal(pkix.Name{CommonName: strings.Repeat("a", length)}.ToRDNSequence()))
	}
	more := maxName - len(name(900))
	for raw, want := range map[string]string{
		string(name(3)): "CN=aaa", string(name(900 + more)): "CN=aaaa", string(name(901 + more)): "with a name of 1025 bytes",
		"": "cannot be read", string(name(3)) + "\x05\x00": "cannot be read", string(name(3))[:9]: "cannot be read",
	} {
		if got := Name([]byte(raw)); !strings.Contains(got, want) || len(got) > 300 {
			t.Errorf("%d bytes: %q, want %q", len(raw), got, want)
		}
	}
}

func TestAllCAs(t *testing.T) {
	list := certificates(tower(1)...)
	if !AllCAs(nil) || !AllCAs(list[1:]) || AllCAs(list) || AllCAs([]*x509.Certificate{nil}) {
		t.Error("not only CAs")
	}
	pool := NewPool(list[:2])
	if in := pool.In(list); len(in) != 2 || in[0] != list[0] || in[1] != list[1] || len(Pool(nil).In(list)) != 0 {
		t.Errorf("%d of them", len(in))
	}
}
