package tpmcert

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/caissuers"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// fetchLab is a lab with one EK issuer and a leaf whose issuer, "middle", only a
// fetcher has.
type fetchLab struct {
	root, middle *tpmlab.Cert
	good         []byte // the certificate of middle
	calls        []string
	served       map[string][]byte
}

func newFetchLab(t testing.TB) *fetchLab {
	t.Helper()
	f := &fetchLab{root: tpmlab.CACert("root", "root", rsaTestKeys()[0]), served: map[string][]byte{}}
	f.middle = tpmlab.CACert("middle", "root", tpmlab.NewP256(t))
	f.middle.Algorithm = tpmlab.AlgorithmOf(f.root.Key.Public())
	f.good = f.middle.Sign(t, f.root.Key)
	return f
}

// verify has one issuer for each of fetchers, and returns the request's cost.
func (f *fetchLab) verify(t testing.TB, ctx context.Context, leaf []byte, fetchers ...IssuerFetcher) (*links, *EKFacts, error) {
	t.Helper()
	var c EKVerifierConfig
	for _, fetcher := range fetchers {
		root := tpmlab.Parsed(t, f.root.Sign(t, f.root.Key))
		c.Issuers = append(c.Issuers, EKIssuer{Roots: []*x509.Certificate{root}, Profile: EKProfileTCG(), Fetcher: fetcher})
	}
	p, err := ParseEKPresented([][]byte{leaf}, nil)
	testkit.NoError(t, err)
	w := newTestLinks(5 + 4)
	facts, err := ekVerifierOf(t, c).verifyEK(ctx, w, p, nil, tpmlab.Time)
	return w, facts, err
}

func (f *fetchLab) leaf(t testing.TB, urls ...string) []byte {
	t.Helper()
	return tpmlab.EKCertificate(t, &tpmlab.CA{Cert: tpmlab.Parsed(t, f.good), Key: f.middle.Key}, tpmlab.NewP256(t).Public(), func(c *x509.Certificate) {
		c.IssuingCertificateURL = urls
	}).Raw
}

// FetchIssuer serves what f has.
func (f *fetchLab) FetchIssuer(_ context.Context, url string) ([]byte, error) {
	f.calls = append(f.calls, url)
	return f.served[url], nil
}

// another is a fetcher that is not the same.
func (f *fetchLab) another() IssuerFetcher {
	return fetcherFunc(func(url string) ([]byte, error) { return f.FetchIssuer(context.Background(), url) })
}

// padded is the certificate of middle with an extension that makes it so long.
func (f *fetchLab) padded(t testing.TB, size int) []byte {
	t.Helper()
	again := *f.middle
	pad := 0
	for range 9 {
		again.Extensions = []pkix.Extension{tpmlab.IsCA, {Id: criticalExtension().Id, Value: make([]byte, pad)}}
		pad += size - len(again.Sign(t, f.root.Key))
	}
	der := again.Sign(t, f.root.Key)
	if len(der) != size {
		t.Fatalf("%d bytes, want %d", len(der), size)
	}
	return der
}

// A fetcher returns the certificate of that issuer, of limited size, or nothing: then the next URL
// is asked.
func TestFetchedCertificates(t *testing.T) {
	f := newFetchLab(t)
	other := tpmlab.CACert("other", "root", tpmlab.NewP256(t))
	other.Algorithm = f.middle.Algorithm
	own := tpmlab.CACert("middle", "middle", tpmlab.NewP256(t)) // a root that is not trusted
	changed := bytes.Clone(f.good)
	changed[len(changed)-1] ^= 1
	for name, c := range map[string]struct {
		first []byte
		want  int // calls until the chain holds; 0: refused
		kept  int // certificates, without the issuer's
	}{
		"the issuer":                    {f.good, 1, 0},
		"nothing":                       {nil, 2, 0},
		"no bytes":                      {[]byte{}, 2, 0},
		"garbage":                       {[]byte("<html>"), 2, 0},
		"PEM of garbage":                {[]byte("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"), 2, 0},
		"PEM":                           {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.good}), 1, 0},
		"a line feed more":              {append(bytes.Clone(f.good), '\n'), 1, 0},
		"PKCS#7, behind another":        {tpmlab.CertsOnly(other.Sign(t, f.root.Key), f.good), 1, 0},
		"PKCS#7, and garbage":           {tpmlab.CertsOnly([]byte{0x30, 0}, f.good), 1, 0},
		"PKCS#7 of two of that name":    {tpmlab.CertsOnly(own.Sign(t, own.Key), f.good), 1, 1},
		"PKCS#7 of another issuer":      {tpmlab.CertsOnly(other.Sign(t, f.root.Key)), 2, 0},
		"cut":                           {f.good[:len(f.good)-1], 2, 0},
		"a byte more":                   {append(bytes.Clone(f.good), 0), 2, 0},
		"two certificates":              {slices.Concat(f.good, f.good), 2, 0},
		"another issuer":                {other.Sign(t, f.root.Key), 2, 0},
		"as large as may be":            {f.padded(t, caissuers.MaxSize), 1, 0},
		"a byte larger":                 {f.padded(t, caissuers.MaxSize+1), 2, 0},
		"the issuer, wrongly certified": {changed, 0, 0},
		"a root of that name":           {own.Sign(t, own.Key), 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f.calls, f.served = nil, map[string][]byte{"1": c.first, "2": f.good}
			w, facts, err := f.verify(t, t.Context(), f.leaf(t, "1", "2", "3"), f)
			if c.want == 0 {
				tpmlab.ExpectCheck(t, err, CheckCertificateChain)
				return
			}
			if err != nil || len(facts.Chain) != 3 || len(f.calls) != c.want || len(w.fetched) != 1+c.kept {
				t.Errorf("%v after %d calls, want %d", err, len(f.calls), c.want)
			}
		})
	}
}

// A refusal names the useless fetched certificates, and their place.
func TestFetchedInVain(t *testing.T) {
	f := newFetchLab(t)
	f.middle.Extensions = append(f.middle.Extensions, keyID(1, 2)...)
	f.good = f.middle.Sign(t, f.root.Key)
	other := tpmlab.CACert("other", "root", tpmlab.NewP256(t))
	other.Algorithm = f.middle.Algorithm
	otherKey := *f.middle
	otherKey.Extensions = append([]pkix.Extension{tpmlab.IsCA}, keyID(3, 4)...)
	leaf := f.leaf(t, "a", "b", "c")
	for name, c := range map[string]struct {
		served map[string][]byte
		want   []string
		not    string
	}{
		"a page":           {map[string][]byte{"b": []byte("<html>")}, []string{"fetched in vain: of CN=middle, from place 2: ", "a web page"}, "place 1"},
		"another's":        {map[string][]byte{"a": other.Sign(t, f.root.Key)}, []string{"place 1", "CN=other"}, "place 2"},
		"another key's":    {map[string][]byte{"a": otherKey.Sign(t, f.root.Key)}, []string{"place 1", "CN=middle", "key identifier"}, "place 2"},
		"three":            {map[string][]byte{"a": {}, "b": []byte("x"), "c": tpmlab.CertsOnly()}, []string{"place 1", "nothing", "place 2", "place 3", "no certificate"}, ""},
		"not asked at all": {nil, nil, "in vain"},
		"a huge one":       {map[string][]byte{"c": make([]byte, caissuers.MaxSize+1)}, []string{"place 3", "65537 bytes"}, "place 2"},
	} {
		t.Run(name, func(t *testing.T) {
			f.calls, f.served = nil, c.served
			_, _, err := f.verify(t, t.Context(), leaf, f)
			tpmlab.ExpectCheck(t, err, CheckCertificateChain)
			text := fmt.Sprint(err)
			if !strings.Contains(text, "issuer CN=middle") || slices.ContainsFunc(c.want, func(s string) bool { return !strings.Contains(text, s) }) ||
				c.not != "" && strings.Contains(text, c.not) {
				t.Errorf("%q, want %q in it, and not %q", text, c.want, c.not)
			}
		})
	}
}

// Each limit of fetching, at its end and one above.
func TestLimitsOfFetches(t *testing.T) {
	f := newFetchLab(t)
	url := func(size int) string { return "http://ca.example/" + strings.Repeat("x", size-18) }
	repeat := func(n int) (all []IssuerFetcher) {
		for range n {
			all = append(all, f.another())
		}
		return all
	}
	for name, c := range map[string]struct {
		urls     []string
		fetchers []IssuerFetcher
		served   string
		want     refusal.Check
		calls    int
	}{
		"the last URL that counts":          {[]string{"a", "b", "c", "d", "e"}, repeat(1), "d", "", 4},
		"the one after":                     {[]string{"a", "b", "c", "d", "e"}, repeat(1), "e", CheckCertificateChain, 4},
		"a URL as long as may be":           {[]string{url(maxURLSize)}, repeat(1), url(maxURLSize), "", 1},
		"a URL that is longer":              {[]string{url(maxURLSize + 1)}, repeat(1), url(maxURLSize + 1), CheckCertificateChain, 0},
		"a URL after one that is too long":  {[]string{url(maxURLSize + 1), "b"}, repeat(1), "b", "", 1},
		"a URL twice":                       {[]string{"a", "a", "b"}, repeat(1), "b", "", 2},
		"as many calls as may be":           {[]string{"a", "b", "c", "d"}, repeat(4), "", CheckCertificateChain, maxIssuerFetches},
		"one more":                          {[]string{"a", "b", "c", "d"}, repeat(5), "", attest.CheckBudget, maxIssuerFetches},
		"one fetcher for many issuers":      {[]string{"a", "b", "c", "d"}, slices.Repeat([]IssuerFetcher{f}, 5), "", CheckCertificateChain, 4},
		"none":                              {[]string{"a"}, []IssuerFetcher{nil}, "a", CheckCertificateChain, 0},
		"the second issuer's":               {[]string{"a"}, []IssuerFetcher{nil, f}, "a", "", 1},
		"two, of which one can be compared": {[]string{"a"}, []IssuerFetcher{f.another(), f, f}, "", CheckCertificateChain, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f.calls, f.served = nil, map[string][]byte{c.served: f.good}
			w, _, err := f.verify(t, t.Context(), f.leaf(t, c.urls...), c.fetchers...)
			tpmlab.ExpectCheck(t, err, c.want)
			if errors.Is(err, refusal.ErrRetry) || len(f.calls) != c.calls || len(w.asked) != c.calls {
				t.Errorf("%v after %d calls, %d counted, want %d", err, len(f.calls), len(w.asked), c.calls)
			}
		})
	}
}

// A chain of fetched certificates is at most maxFetched long, and none is taken twice.
func TestNumberOfFetchedCertificates(t *testing.T) {
	f := newFetchLab(t)
	key := f.middle.Key
	ladder := func(top string) { // middle is below level 1, and so on
		f.calls, f.served = nil, map[string][]byte{}
		above := []string{"middle", "level 1", "level 2", "level 3", "level 4", "level 5"}
		for n, name := range above[:5] {
			issuer := above[n+1]
			if name == top {
				issuer = "root"
			}
			ca := tpmlab.CACert(name, issuer, key)
			ca.Extensions = append(ca.Extensions, issuerURL(fmt.Sprint("http://ca.example/", n+1)))
			signer := key
			if name == top {
				signer, ca.Algorithm = f.root.Key, tpmlab.AlgorithmOf(f.root.Key.Public())
			}
			f.served[fmt.Sprint("http://ca.example/", n)] = ca.Sign(t, signer)
		}
	}
	leaf := f.leaf(t, "http://ca.example/0")
	ladder("level 3")
	if w, facts, err := f.verify(t, t.Context(), leaf, f); err != nil || len(facts.Chain) != maxFetched+2 || len(f.calls) != maxFetched || len(w.fetched) != maxFetched {
		t.Errorf("%v after %d calls", err, len(f.calls))
	}
	ladder("level 5")
	if w, _, err := f.verify(t, t.Context(), leaf, f); !errors.Is(err, CheckCertificateChain) || len(f.calls) != maxFetched || w.Signatures() != 0 {
		t.Errorf("a longer one: %v after %d calls and %d signatures", err, len(f.calls), w.Signatures())
	}
	loop := tpmlab.CACert("middle", "absent", key)
	f.calls, f.served = nil, map[string][]byte{}
	for _, url := range []string{"a", "b", "c"} {
		f.served[url] = loop.Sign(t, nil)
	}
	if w, _, err := f.verify(t, t.Context(), f.leaf(t, "a", "b", "c"), f, f.another(), f.another()); !errors.Is(err, CheckCertificateChain) || len(w.fetched) != 1 {
		t.Errorf("one certificate three times: %v with %d fetched", err, len(w.fetched))
	}
}

// A certificate that was fetched for one is no issuer of another.
func TestFetchedForAnother(t *testing.T) {
	f := newFetchLab(t)
	stranger, above := tpmlab.CACert("middle", "above", tpmlab.NewP256(t)), tpmlab.CACert("above", "root", tpmlab.NewP256(t))
	stranger.Extensions = append(stranger.Extensions, issuerURL("b"))
	above.Algorithm = tpmlab.AlgorithmOf(f.root.Key.Public())
	f.served = map[string][]byte{"a": stranger.Sign(t, nil), "b": above.Sign(t, f.root.Key)}
	w, _, err := f.verify(t, t.Context(), f.leaf(t, "a"), f)
	tpmlab.ExpectCheck(t, err, CheckCertificateChain)
	if len(w.fetched) != 2 || len(w.failed) != 1 || w.Signatures() != 2 {
		t.Errorf("%d fetched, %d signatures, %d of them wrong", len(w.fetched), w.Signatures(), len(w.failed))
	}
}

// After the caller's context ends no further URL is asked, and a fetcher's failure is retried.
func TestFetchesThatEnd(t *testing.T) {
	f := newFetchLab(t)
	leaf := f.leaf(t, "a", "b")
	ctx, cancel := context.WithCancel(t.Context())
	leaving := fetcherFunc(func(url string) ([]byte, error) {
		f.calls = append(f.calls, url)
		cancel()
		return nil, nil
	})
	if _, _, err := f.verify(t, ctx, leaf, leaving); !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, context.Canceled) || len(f.calls) != 1 {
		t.Errorf("a caller who has gone: %v after %d calls", err, len(f.calls))
	}
	down := errors.New("no route")
	failing := fetcherFunc(func(string) ([]byte, error) { return f.good, down })
	if _, _, err := f.verify(t, t.Context(), leaf, failing); !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, down) {
		t.Errorf("a fetcher that fails: %v", err)
	}
}
