package tpmcert

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/caissuers"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// sha1Chain is an old vendor's chain: root, intermediate, EK certificate, all RSA and
// all signed over SHA-1.
type sha1Chain struct {
	root, middle *tpmlab.CA
	leaf         *x509.Certificate
}

func newSHA1Chain(t *testing.T, editMiddle func(*x509.Certificate)) *sha1Chain {
	keys := rsaTestKeys()
	c := &sha1Chain{root: rsaCA(t, nil, "old root", keys[0], nil)}
	c.root.Cert = sha1Signed(t, c.root.Cert, keys[0])
	c.middle = rsaCA(t, c.root, "old middle", keys[1], editMiddle)
	c.middle.Cert = sha1Signed(t, c.middle.Cert, keys[0])
	c.leaf = sha1Signed(t, tpmlab.EKCertificate(t, c.middle, tpmlab.NewP256(t).Public(), nil), keys[1])
	return c
}

func allowingSHA1() EKProfile {
	p := EKProfileTCG()
	p.InsecureAllowSHA1Links = true
	return p
}

// Links over SHA-1 pass with their tolerance alone, and are verified then as any other.
func TestSHA1Links(t *testing.T) {
	c := newSHA1Chain(t, nil)
	_, err := verifyAt(ekVerifierOf(t, trusting(EKProfileTCG(), c.root)), tpmlab.Time, c.leaf, c.middle.Cert)
	wantEKCheck(t, "without the tolerance", err, checkCertificateSHA1, "InsecureAllowSHA1Links")

	allowing := ekVerifierOf(t, trusting(allowingSHA1(), c.root))
	facts, err := verifyAt(allowing, tpmlab.Time, c.leaf, c.middle.Cert)
	if err != nil || len(facts.Chain) != 3 || !slices.Equal(facts.Tolerances, []string{"InsecureAllowSHA1Links"}) {
		t.Fatalf("with the tolerance: %+v, %v", facts, err)
	}
	_, err = verifyAt(allowing, tpmlab.Time, c.leaf)
	wantEKCheck(t, "no intermediate", err, CheckCertificateChain, "ends at issuer CN=old middle")
	_, err = verifyAt(allowing, tpmlab.Time.Add(25*time.Hour), c.leaf, c.middle.Cert)
	wantEKCheck(t, "expired", err, checkCertificateExpired, "")

	// Every octet of the signature counts, and every signed one.
	for n := range 8 {
		der := bytes.Clone(c.leaf.Raw)
		der[len(der)-1-n*32] ^= 1
		_, err := verifyEKOf(t.Context(), allowing, &sentEK{Certificates: [][]byte{der, c.middle.Cert.Raw}}, nil, tpmlab.Time)
		wantEKCheck(t, "changed signature", err, CheckCertificateChain, "does not verify")
	}
	serial := bytes.Index(c.leaf.Raw, []byte{2, 1, 77})
	der := bytes.Clone(c.leaf.Raw)
	der[serial+2]++
	_, err = verifyEKOf(t.Context(), allowing, &sentEK{Certificates: [][]byte{der, c.middle.Cert.Raw}}, nil, tpmlab.Time)
	wantEKCheck(t, "changed serial", err, CheckCertificateChain, "does not verify")
}

// A root that is itself signed over SHA-1 needs no tolerance: its own signature says
// nothing.
func TestSHA1Root(t *testing.T) {
	keys := rsaTestKeys()
	root := rsaCA(t, nil, "old root", keys[0], nil)
	root.Cert = sha1Signed(t, root.Cert, keys[0])
	leaf := tpmlab.EKCertificate(t, root, tpmlab.NewP256(t).Public(), nil)
	facts, err := verifyAt(ekVerifierOf(t, trusting(EKProfileTCG(), root)), tpmlab.Time, leaf)
	if err != nil || facts.Tolerances != nil {
		t.Errorf("%+v, %v", facts, err)
	}
}

// The tolerance lets SHA-1 through and nothing else: intermediates must still be CAs.
func TestSHA1LinksNeedCAs(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*x509.Certificate)
		want refusal.Check
	}{
		"no CA":            {func(c *x509.Certificate) { c.IsCA = false }, CheckCertificateChain},
		"no constraints":   {func(c *x509.Certificate) { c.BasicConstraintsValid = false; c.IsCA = false }, CheckCertificateChain},
		"key usage":        {func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }, CheckCertificateChain},
		"expired":          {func(c *x509.Certificate) { c.NotAfter = tpmlab.Time.Add(-time.Second) }, checkCertificateExpired},
		"not yet valid":    {func(c *x509.Certificate) { c.NotBefore = tpmlab.Time.Add(time.Second) }, checkCertificateNotYetValid},
		"name constraints": {func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"a.example"} }, CheckCertificateChain},
		"IP constraints": {func(c *x509.Certificate) {
			c.ExcludedIPRanges = []*net.IPNet{{IP: net.IP{1, 2, 3, 4}, Mask: net.IPMask{255, 0, 0, 0}}}
		}, CheckCertificateChain},
		"unknown extension": {func(c *x509.Certificate) { c.ExtraExtensions = append(c.ExtraExtensions, criticalExtension()) }, CheckCertificateChain},
	} {
		t.Run(name, func(t *testing.T) {
			chain := newSHA1Chain(t, c.edit)
			_, err := verifyAt(ekVerifierOf(t, trusting(allowingSHA1(), chain.root)), tpmlab.Time, chain.leaf, chain.middle.Cert)
			wantEKCheck(t, name, err, c.want, "CN=old middle")
		})
	}
}

// A root's path length counts the intermediates below it.
func TestSHA1PathLength(t *testing.T) {
	keys := rsaTestKeys()
	for length, ok := range map[int]bool{0: false, 1: true} {
		root := rsaCA(t, nil, "root", keys[0], func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = length, length == 0 })
		middle := rsaCA(t, root, "middle", keys[1], nil)
		leaf := sha1Signed(t, tpmlab.EKCertificate(t, middle, tpmlab.NewP256(t).Public(), nil), keys[1])
		_, err := verifyAt(ekVerifierOf(t, trusting(allowingSHA1(), root)), tpmlab.Time, leaf, middle.Cert)
		if (err == nil) != ok {
			t.Errorf("path length %d: %v", length, err)
		}
	}
}

// Whatever is thrown at the search, it ends: a ring of CAs, many of one name, a chain
// that is too long.
func TestChainSearchEnds(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	v := ekVerifierOf(t, trusting(allowingSHA1(), root))
	a := tpmlab.Sign(t, nil, "A", nil)
	b := tpmlab.Sign(t, a, "B", nil)
	ring := tpmlab.Sign(t, b, "A", nil)
	leaf := tpmlab.EKCertificate(t, b, tpmlab.NewP256(t).Public(), nil)
	_, err := verifyAt(v, tpmlab.Time, leaf, b.Cert, ring.Cert)
	wantEKCheck(t, "ring", err, CheckCertificateChain, "")

	i := EKIssuer{Roots: []*x509.Certificate{root.Cert}, Profile: allowingSHA1()}
	for range 4 * 10 {
		i.Intermediates = append(i.Intermediates, tpmlab.Sign(t, root, "B", func(c *x509.Certificate) { c.SubjectKeyId = []byte{1} }).Cert)
	}
	leaf = tpmlab.EKCertificate(t, b, tpmlab.NewP256(t).Public(), func(c *x509.Certificate) { c.AuthorityKeyId = []byte{1} })
	_, err = verifyAt(ekVerifierOf(t, EKVerifierConfig{Issuers: []EKIssuer{i}}), tpmlab.Time, leaf)
	wantEKCheck(t, "many of one name", err, CheckCertificateChain, "")

	top := root
	i.Intermediates = nil
	for n := range 5 {
		top = tpmlab.Sign(t, top, fmt.Sprint("level ", n), nil)
		i.Intermediates = append(i.Intermediates, top.Cert)
	}
	keys := rsaTestKeys()
	last := rsaCA(t, top, "last", keys[0], nil)
	i.Intermediates = append(i.Intermediates, last.Cert)
	leaf = sha1Signed(t, tpmlab.EKCertificate(t, last, tpmlab.NewP256(t).Public(), nil), keys[0])
	_, err = verifyAt(ekVerifierOf(t, EKVerifierConfig{Issuers: []EKIssuer{i}}), tpmlab.Time, leaf)
	wantEKCheck(t, "too long", err, CheckCertificateChain, "")
}

// The error is of the issuer that came furthest, in whatever order they stand.
func TestEKErrorOfTheNearestIssuer(t *testing.T) {
	ours, others := tpmlab.Sign(t, nil, "ours", nil), tpmlab.Sign(t, nil, "others", nil)
	leaf := tpmlab.EKCertificate(t, ours, tpmlab.NewP256(t).Public(), func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature })
	expired := tpmlab.EKCertificate(t, ours, tpmlab.NewP256(t).Public(), func(c *x509.Certificate) { c.NotAfter = tpmlab.Time.Add(-time.Second) })
	good, bad := trusting(EKProfileTCG(), ours).Issuers[0], trusting(EKProfileGoogle(), others).Issuers[0]
	for _, issuers := range [][]EKIssuer{{good, bad}, {bad, good}} {
		v := ekVerifierOf(t, EKVerifierConfig{Issuers: issuers})
		_, err := verifyAt(v, tpmlab.Time, leaf)
		wantEKCheck(t, "profile", err, checkCertificateKeyUsage, "TCG EK")
		_, err = verifyAt(v, tpmlab.Time, expired)
		wantEKCheck(t, "expired", err, checkCertificateExpired, "")
	}
}

// An expired EK certificate that is let through must have been valid at its end, with
// its chain.
func TestExpiredEKAndItsChain(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	middle := tpmlab.Sign(t, root, "middle", func(c *x509.Certificate) { c.NotAfter = tpmlab.Time.Add(-2 * time.Hour) })
	p := EKProfileTCG()
	p.InsecureAllowExpiredEK = true
	v := ekVerifierOf(t, trusting(p, root))
	for before, ok := range map[time.Duration]bool{3 * time.Hour: true, time.Hour: false} {
		leaf := tpmlab.EKCertificate(t, middle, tpmlab.NewP256(t).Public(), func(c *x509.Certificate) { c.NotAfter = tpmlab.Time.Add(-before) })
		if _, err := verifyAt(v, tpmlab.Time, leaf, middle.Cert); (err == nil) != ok {
			t.Errorf("end %s ago: %v", before, err)
		}
	}
}

// fetcherFunc is an IssuerFetcher made of a function.
type fetcherFunc func(url string) ([]byte, error)

func (f fetcherFunc) FetchIssuer(_ context.Context, url string) ([]byte, error) { return f(url) }

// A fetcher fills gaps in the chain, its certificates must hold, and it is called no more often
// than documented.
func TestIssuerFetcher(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	upper := tpmlab.Sign(t, root, "upper", nil)
	lower := tpmlab.Sign(t, upper, "lower", func(c *x509.Certificate) { c.IssuingCertificateURL = []string{"http://ca.example/upper"} })
	leaf := tpmlab.EKCertificate(t, lower, tpmlab.NewP256(t).Public(), func(c *x509.Certificate) {
		c.IssuingCertificateURL = []string{"http://evil.example/", "http://ca.example/lower"}
	})
	served := map[string][]byte{"http://ca.example/lower": lower.Cert.Raw, "http://ca.example/upper": upper.Cert.Raw}
	var asked []string
	fail := false
	c := trusting(EKProfileTCG(), root)
	c.Issuers[0].Fetcher = fetcherFunc(func(url string) ([]byte, error) {
		asked = append(asked, url)
		if fail {
			return nil, errors.New("no route")
		}
		return served[url], nil
	})
	v := ekVerifierOf(t, c)
	facts, err := verifyAt(v, tpmlab.Time, leaf)
	if err != nil || len(facts.Chain) != 4 || facts.Tolerances != nil || len(asked) != 3 {
		t.Fatalf("%+v, %v, asked %v", facts, err, asked)
	}
	if facts, err := verifyAt(v, tpmlab.Time, leaf, lower.Cert); err != nil || len(facts.Chain) != 4 {
		t.Errorf("a part sent: %+v, %v", facts, err)
	}
	served["http://ca.example/upper"] = root.Cert.Raw // another certificate than its issuer
	_, err = verifyAt(v, tpmlab.Time, leaf)
	wantEKCheck(t, "another certificate", err, CheckCertificateChain, "ends at issuer CN=upper")
	served["http://ca.example/upper"] = tpmlab.Sign(t, tpmlab.Sign(t, nil, "root", nil), "upper", nil).Cert.Raw // of the same names
	if _, err = verifyAt(v, tpmlab.Time, leaf); !errors.Is(err, CheckCertificateChain) {
		t.Errorf("a forged one: %v", err)
	}
	served["http://ca.example/upper"] = make([]byte, caissuers.MaxSize+1)
	if _, err = verifyAt(v, tpmlab.Time, leaf); !errors.Is(err, CheckCertificateChain) {
		t.Errorf("a large one: %v", err)
	}
	fail = true
	if _, err := verifyAt(v, tpmlab.Time, leaf); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("unreachable: %v", err)
	}
	if _, err := verifyAt(ekVerifierOf(t, trusting(EKProfileTCG(), root)), tpmlab.Time, leaf); !errors.Is(err, CheckCertificateChain) {
		t.Errorf("without a fetcher: %v", err)
	}
}

// An endless chain of fetched issuers ends.
func TestIssuerFetcherEnds(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	url := []string{"a", "b", "c", "d", "e", "f"}
	top := tpmlab.Sign(t, nil, "level 0", nil)
	calls := 0
	byIssuer := map[string][]byte{}
	for n := range 20 {
		at := fmt.Sprint("http://ca.example/", n)
		byIssuer[at] = top.Cert.Raw
		top = tpmlab.Sign(t, top, fmt.Sprint("level ", n+1), func(c *x509.Certificate) { c.IssuingCertificateURL = append(url, at)[2:] })
	}
	c := trusting(EKProfileTCG(), root)
	c.Issuers[0].Fetcher = fetcherFunc(func(url string) ([]byte, error) { calls++; return byIssuer[url], nil })
	_, err := verifyAt(ekVerifierOf(t, c), tpmlab.Time, tpmlab.EKCertificate(t, top, tpmlab.NewP256(t).Public(), func(c *x509.Certificate) {
		c.IssuingCertificateURL = []string{"http://ca.example/20", "x", "y", "z", "w", "v"}
	}))
	if !errors.Is(err, CheckCertificateChain) || calls > maxFetched*maxIssuerURLs {
		t.Errorf("%v after %d calls", err, calls)
	}
}

func TestChainAbove(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	upper := tpmlab.Sign(t, root, "upper", nil)
	lower := tpmlab.Sign(t, upper, "lower", nil)
	other := tpmlab.Sign(t, root, "other", nil)
	leaf := tpmlab.EKCertificate(t, lower, tpmlab.NewP256(t).Public(), nil)
	above := ChainAbove(leaf, []*x509.Certificate{other.Cert, root.Cert, upper.Cert, lower.Cert})
	if len(above) != 2 || !bytes.Equal(above[0], lower.Cert.Raw) || !bytes.Equal(above[1], upper.Cert.Raw) {
		t.Errorf("%d certificates", len(above))
	}
	if above := ChainAbove(leaf, nil); above != nil {
		t.Errorf("%d certificates out of none", len(above))
	}
}

// The chain in NV: one index or many, each padded or a certificate over two of them.
func TestParseEKChain(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	a, b := tpmlab.Sign(t, root, "a", nil).Cert, tpmlab.Sign(t, root, "b", nil).Cert
	both := append(bytes.Clone(a.Raw), b.Raw...)
	pad := bytes.Repeat([]byte{0xff}, 9)
	for name, indexes := range map[string][][]byte{
		"one index":      {both},
		"padded":         {append(bytes.Clone(both), 0, 0)},
		"one each":       {a.Raw, b.Raw},
		"padded each":    {append(bytes.Clone(a.Raw), pad...), append(bytes.Clone(b.Raw), pad...)},
		"over two":       {both[:100], both[100:]},
		"over three":     {both[:len(a.Raw)+3], both[len(a.Raw)+3 : len(a.Raw)+9], append(bytes.Clone(both[len(a.Raw)+9:]), pad...)},
		"an empty index": {nil, both, {}},
	} {
		t.Run(name, func(t *testing.T) {
			certs, err := ParseEKChain(indexes)
			if err != nil || len(certs) != 2 || !certs[0].Equal(a) || !certs[1].Equal(b) {
				t.Errorf("%s: %d certificates, %v", name, len(certs), err)
			}
		})
	}
	for name, indexes := range map[string][][]byte{
		"cut":             {both[:len(both)-1]},
		"text":            {[]byte("none")},
		"something after": {append(bytes.Clone(both), 0, 1)},
		"no certificate":  {{0x30, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseEKChain(indexes); !errors.Is(err, checkEKChainEncoding) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	if _, err := ParseEKChain([][]byte{make([]byte, der.MaxNVChain), {0}}); !errors.Is(err, der.CheckSize) {
		t.Errorf("size: %v", err)
	}
	if certs, err := ParseEKChain([][]byte{make([]byte, der.MaxNVChain-1), {0}}); err != nil || certs != nil {
		t.Errorf("padding of the largest size: %d, %v", len(certs), err)
	}
	if certs, err := ParseEKChain(nil); err != nil || certs != nil {
		t.Errorf("nothing: %d, %v", len(certs), err)
	}
}
