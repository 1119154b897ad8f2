package azure

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/internal/chain"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

// fetcher gives certificates by URL and counts.
type fetcher struct {
	give  map[string][]byte
	fails map[string]error
	asked []string
}

func (f *fetcher) FetchIssuer(_ context.Context, url string) ([]byte, error) {
	f.asked = append(f.asked, url)
	return f.give[url], f.fails[url]
}

// chained are certificates below a root, each naming where its issuer is, at places n..1
// above the leaf.
func chained(t *testing.T, b *bench, length int) (leaf *authority, give map[string][]byte) {
	t.Helper()
	give = map[string][]byte{}
	above := b.root
	for n := length; n > 0; n-- {
		template := caTemplate(fmt.Sprintf("Fetched %d", n), testTime.Add(-year), testTime.Add(year))
		if n < length {
			template.IssuingCertificateURL = []string{place(n + 1)}
		}
		above = testkit.Must(issue(template, anotherKey(), above))
		give[place(n)] = above.Certificate.Raw
	}
	template := b.leafTemplate(testTime)
	template.IssuingCertificateURL = []string{place(1)}
	return testkit.Must(issue(template, anotherKey(), above)), give
}

func place(n int) string { return fmt.Sprintf("http://www.microsoft.com/pkiops/certs/%d.crt", n) }

func TestFetch(t *testing.T) {
	b := testBench(t)
	errDown := errors.New("down")
	longest := place(1) + strings.Repeat("a", maxURLSize-len(place(1)))
	for name, c := range map[string]struct {
		length int
		urls   []string // of the leaf, in place of its own
		change func(*fetcher)
		want   refusal.Check
		asked  int
	}{
		"one":               {1, nil, nil, "", 1},
		"two":               {2, nil, nil, "", 2},
		"four":              {4, nil, nil, "", 4},
		"more than a chain": {5, nil, nil, chain.CheckChain, 4},
		"none there":        {1, nil, func(f *fetcher) { f.give = nil }, chain.CheckChain, 1},
		"no place":          {1, []string{}, nil, chain.CheckChain, 0},
		"the second place":  {1, []string{"http://attacker.example/", place(1)}, nil, "", 2},
		"only long places":  {1, []string{place(1) + strings.Repeat("a", maxURLSize)}, nil, chain.CheckChain, 0},
		"the longest place": {1, []string{longest}, func(f *fetcher) { f.give[longest] = f.give[place(1)] }, "", 1},
		"a longer place":    {1, []string{longest + "a"}, func(f *fetcher) { f.give[longest+"a"] = f.give[place(1)] }, chain.CheckChain, 0},
		"six places":        {1, []string{"http://a/1", "http://a/2", "http://a/3", "http://a/4", "http://a/5", place(1)}, nil, chain.CheckChain, 4},
		"down":              {1, nil, func(f *fetcher) { f.fails[place(1)] = errDown }, refusal.ErrRetry, 1},
		"the first is down": {1, []string{"http://a/1", place(1)}, func(f *fetcher) { f.fails["http://a/1"] = errDown }, "", 2},
		"PEM":               {1, nil, func(f *fetcher) { f.give[place(1)] = inPEM(f.give[place(1)]) }, "", 1},
		"a line feed more":  {1, nil, func(f *fetcher) { f.give[place(1)] = append(slices.Clone(f.give[place(1)]), '\n') }, "", 1},
		"PKCS#7":            {1, nil, func(f *fetcher) { f.give[place(1)] = tpmlab.CertsOnly(b.issuing.Certificate.Raw, f.give[place(1)]) }, "", 1},
		"PKCS#7, twice": {2, nil, func(f *fetcher) {
			f.give[place(1)], f.give[place(2)] = tpmlab.CertsOnly(f.give[place(1)]), inPEM(f.give[place(2)])
		}, "", 2},
		"PKCS#7 of others":   {1, nil, func(f *fetcher) { f.give[place(1)] = tpmlab.CertsOnly(b.issuing.Certificate.Raw) }, chain.CheckChain, 1},
		"an empty PKCS#7":    {1, nil, func(f *fetcher) { f.give[place(1)] = tpmlab.CertsOnly() }, refusal.ErrRetry, 1},
		"garbage in PKCS#7":  {1, nil, func(f *fetcher) { f.give[place(1)] = tpmlab.CertsOnly([]byte{0x30, 0}) }, refusal.ErrRetry, 1},
		"no certificate":     {1, nil, func(f *fetcher) { f.give[place(1)] = []byte("<html>") }, refusal.ErrRetry, 1},
		"a huge one":         {1, nil, func(f *fetcher) { f.give[place(1)] = make([]byte, maxFetchedSize+1) }, refusal.ErrRetry, 1},
		"another issuer's":   {1, nil, func(f *fetcher) { f.give[place(1)] = b.issuing.Certificate.Raw }, chain.CheckChain, 1},
		"the leaf itself":    {1, nil, func(f *fetcher) { f.give[place(1)] = b.leaf.Certificate.Raw }, chain.CheckChain, 1},
		"one of that name":   {1, nil, func(f *fetcher) { f.give[place(1)] = fakeIssuer("Fetched 1") }, chain.CheckChain, 1},
		"the same for ever":  {2, nil, func(f *fetcher) { f.give[place(2)] = f.give[place(1)] }, chain.CheckChain, 2},
		"an issuer's circle": {1, nil, func(f *fetcher) { f.give[place(1)] = circle() }, chain.CheckChain, 2},
	} {
		t.Run(name, func(t *testing.T) {
			leaf, give := chained(t, b, c.length)
			if c.urls != nil {
				template := b.leafTemplate(testTime)
				template.IssuingCertificateURL = c.urls
				issuer := testkit.Must(x509.ParseCertificate(give[place(1)]))
				key := anotherKey()
				give[place(1)] = testkit.Must(issue(caTemplate(issuer.Subject.CommonName, testTime.Add(-year), testTime.Add(year)), key, b.root)).Certificate.Raw
				leaf = testkit.Must(issue(template, anotherKey(), &authority{testkit.Must(x509.ParseCertificate(give[place(1)])), key}))
			}
			f := &fetcher{give, map[string]error{}, nil}
			if c.change != nil {
				c.change(f)
			}
			v := newVerifier(t, VerifierConfig{Roots: []*x509.Certificate{b.root.Certificate}, FetchIssuer: f.FetchIssuer})
			_, err := v.Verify(context.Background(), testkit.Must(newParts(testContent(), leaf).marshal()), testTime)
			if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) || errors.Is(err, refusal.ErrRetry) != (c.want == refusal.ErrRetry) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if len(f.asked) != c.asked {
				t.Errorf("asked %q", f.asked)
			}
		})
	}
	t.Run("by a nil pointer: nothing could be found out", func(t *testing.T) {
		template := b.leafTemplate(testTime)
		template.IssuingCertificateURL = []string{"http://www.microsoft.com/issuer.crt"}
		leaf := testkit.Must(issue(template, anotherKey(), b.issuing))
		v := newVerifier(t, VerifierConfig{Roots: []*x509.Certificate{b.root.Certificate}, FetchIssuer: (*HTTPFetcher)(nil).FetchIssuer})
		if _, err := v.Verify(context.Background(), testkit.Must(newParts(testContent(), leaf).marshal()), testTime); !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("got %v, want a retry", err)
		}
	})
	t.Run("not for another name", func(t *testing.T) {
		f := &fetcher{}
		v := newVerifier(t, VerifierConfig{Roots: []*x509.Certificate{b.root.Certificate}, FetchIssuer: f.FetchIssuer})
		_, err := v.Verify(context.Background(), testkit.Must(newParts(testContent(), b.web).marshal()), testTime)
		if !errors.Is(err, checkName) || len(f.asked) != 0 {
			t.Errorf("%v, asked %q", err, f.asked)
		}
	})
	t.Run("not for one that has ended", func(t *testing.T) {
		f := &fetcher{}
		v := newVerifier(t, VerifierConfig{Roots: []*x509.Certificate{b.root.Certificate}, FetchIssuer: f.FetchIssuer})
		p := b.good()
		signedBy(func(c *x509.Certificate) { c.NotAfter = testTime.Add(-time.Second) })(b, p)
		_, err := v.Verify(context.Background(), testkit.Must(p.marshal()), testTime)
		if !errors.Is(err, chain.CheckExpired) || len(f.asked) != 0 {
			t.Errorf("%v, asked %q", err, f.asked)
		}
	})
	t.Run("not two of one name", func(t *testing.T) { // though the chain would hold
		above := testkit.Must(issue(caTemplate("Twice", testTime.Add(-year), testTime.Add(year)), anotherKey(), b.root))
		template := caTemplate("Twice", testTime.Add(-year), testTime.Add(year))
		template.IssuingCertificateURL = []string{place(2)}
		issuer := testkit.Must(issue(template, testkit.Must(rsa.GenerateKey(rand.Reader, 2048)), above))
		template = b.leafTemplate(testTime)
		template.IssuingCertificateURL = []string{place(1)}
		leaf := testkit.Must(issue(template, anotherKey(), issuer))
		f := &fetcher{give: map[string][]byte{place(1): issuer.Certificate.Raw, place(2): above.Certificate.Raw}}
		der := testkit.Must(newParts(testContent(), leaf).marshal())
		roots := []*x509.Certificate{b.root.Certificate}
		if _, err := newVerifier(t, VerifierConfig{Roots: roots, FetchIssuer: f.FetchIssuer}).Verify(context.Background(), der, testTime); !errors.Is(err, chain.CheckChain) || len(f.asked) != 2 {
			t.Errorf("%v, asked %q", err, f.asked)
		}
		known := []*x509.Certificate{issuer.Certificate, above.Certificate}
		if _, err := newVerifier(t, VerifierConfig{Roots: roots, Intermediates: known}).Verify(context.Background(), der, testTime); err != nil {
			t.Errorf("known beforehand: %v", err)
		}
	})
	t.Run("sizes", func(t *testing.T) {
		leaf, give := chained(t, b, 1)
		der := testkit.Must(newParts(testContent(), leaf).marshal())
		for size, want := range map[int]refusal.Check{maxFetchedSize: "", maxFetchedSize + 1: refusal.ErrRetry} {
			v := newVerifier(t, VerifierConfig{Roots: []*x509.Certificate{b.root.Certificate}, FetchIssuer: (&fetcher{give: give}).FetchIssuer})
			give[place(1)] = padded(t, b, "Fetched 1", size)
			if _, err := v.Verify(context.Background(), der, testTime); want == "" && err != nil || want != "" && !errors.Is(err, want) {
				t.Errorf("%d bytes: %v, want %q", size, err, want)
			}
		}
	})
	t.Run("not after the end", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		leaf, give := chained(t, b, 1)
		f := &fetcher{give: give}
		v := newVerifier(t, VerifierConfig{Roots: []*x509.Certificate{b.root.Certificate}, FetchIssuer: f.FetchIssuer})
		if _, err := v.Verify(ctx, testkit.Must(newParts(testContent(), leaf).marshal()), testTime); !errors.Is(err, refusal.ErrRetry) || len(f.asked) != 0 {
			t.Errorf("%v, asked %q", err, f.asked)
		}
	})
}

func inPEM(der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}) }

// A refusal, or the error that asks to try again, names the fetched certificates that were not usable.
func TestFetchInVain(t *testing.T) {
	b := testBench(t)
	leaf, give := chained(t, b, 1)
	der := testkit.Must(newParts(testContent(), leaf).marshal())
	for name, c := range map[string]struct {
		found []byte
		want  string
		retry bool
	}{
		"another issuer's": {b.issuing.Certificate.Raw, "URL 1 has the certificate of " + chain.Name(b.issuing.Certificate.RawSubject), false},
		"no CA's":          {b.leaf.Certificate.Raw, "which is not a CA", false},
		"a page":           {[]byte("<html>"), "a web page", true},
		"an empty PKCS#7":  {tpmlab.CertsOnly(), "no certificate in the PEM or PKCS#7", true},
		"garbage":          {[]byte{0x30, 0}, "neither a certificate", true},
	} {
		t.Run(name, func(t *testing.T) {
			give[place(1)] = c.found
			v := newVerifier(t, VerifierConfig{Roots: []*x509.Certificate{b.root.Certificate}, FetchIssuer: (&fetcher{give: give}).FetchIssuer})
			_, err := v.Verify(t.Context(), der, testTime)
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, refusal.ErrRetry) != c.retry || strings.Contains(err.Error(), "http") {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// An intermediate that is fetched may spell the root's name, and the leaf its own, in other
// ways.
func TestFetchInAnotherSpelling(t *testing.T) {
	b := testBench(t)
	inCapitals := func(a *authority) *authority {
		c := *a.Certificate
		c.RawSubject = bytes.ToUpper(c.RawSubject)
		return &authority{&c, a.Key}
	}
	root := testkit.Must(issue(caTemplate("Root", testTime.Add(-year), testTime.Add(year)), anotherKey(), nil))
	middle := testkit.Must(issue(caTemplate("Middle", testTime.Add(-year), testTime.Add(year)), anotherKey(), inCapitals(root)))
	template := b.leafTemplate(testTime)
	template.IssuingCertificateURL = []string{place(1)}
	der := testkit.Must(newParts(testContent(), testkit.Must(issue(template, anotherKey(), inCapitals(middle)))).marshal())
	f := &fetcher{give: map[string][]byte{place(1): middle.Certificate.Raw}}
	v := newVerifier(t, VerifierConfig{Roots: []*x509.Certificate{root.Certificate}, FetchIssuer: f.FetchIssuer})
	for range 2 { // the second time it is known
		if _, err := v.Verify(t.Context(), der, testTime); err != nil || len(f.asked) != 1 {
			t.Errorf("%v, asked %q", err, f.asked)
		}
	}
}

// padded is a CA's certificate of a size, for the key of all leaves.
func padded(t *testing.T, b *bench, name string, size int) []byte {
	t.Helper()
	var der []byte
	for more := 15 << 10; len(der) != size; more += size - len(der) {
		template := caTemplate(name, testTime.Add(-year), testTime.Add(year))
		template.SerialNumber = big.NewInt(1)
		template.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3}, Value: make([]byte, more)}}
		der = testkit.Must(issue(template, anotherKey(), b.root)).Certificate.Raw
	}
	return der
}

// fakeIssuer is a self-signed CA of that name.
func fakeIssuer(name string) []byte {
	template := caTemplate(name, testTime.Add(-year), testTime.Add(year))
	return testkit.Must(issue(template, anotherKey(), nil)).Certificate.Raw
}

// circle is a CA that names itself as the place of its issuer, another CA of its name.
func circle() []byte {
	other := testkit.Must(issue(caTemplate("Above", testTime.Add(-year), testTime.Add(year)), anotherKey(), nil))
	template := caTemplate("Fetched 1", testTime.Add(-year), testTime.Add(year))
	template.IssuingCertificateURL = []string{place(1)}
	return testkit.Must(issue(template, anotherKey(), other)).Certificate.Raw
}

// roundTrips gives answers in place of a network.
type roundTrips func(*http.Request) *http.Response

func (f roundTrips) RoundTrip(r *http.Request) (*http.Response, error) {
	if response := f(r); response != nil {
		return response, nil
	}
	return nil, errors.New("no route")
}

func TestHTTPFetcher(t *testing.T) {
	var asked []string
	good := string(testBench(t).issuing.Certificate.Raw)
	status, body := http.StatusOK, good
	f := NewHTTPFetcher(HTTPFetcherOptions{Transport: roundTrips(func(r *http.Request) *http.Response {
		asked = append(asked, r.URL.String())
		if status == 0 {
			return nil
		}
		w := httptest.NewRecorder()
		w.Header().Set("Location", "https://attacker.example/")
		w.WriteHeader(status)
		_, _ = w.WriteString(body)
		return w.Result()
	})})
	for n, c := range []struct {
		url    string
		status int
		body   string
		found  bool
		fails  bool
		asks   string
	}{
		{"http://www.microsoft.com/pki/a.crt", 200, good, true, false, "http://www.microsoft.com/pki/a.crt"},
		{"http://www.microsoft.com/pki/a.crt", 200, good, true, false, "http://www.microsoft.com/pki/a.crt"},
		{"http://caissuers.microsoft.com/b", 200, good, true, false, "http://caissuers.microsoft.com/b"},
		{"https://CACERTS.digicert.com/c#x", 200, good, true, false, "https://CACERTS.digicert.com/c"},
		{"http://www.microsoft.com/404", 404, "", false, false, "http://www.microsoft.com/404"},
		{"http://www.microsoft.com/404", 200, good, false, false, ""},
		{"http://www.microsoft.com/410", 410, "", false, false, "http://www.microsoft.com/410"},
		{"http://www.microsoft.com/403", 403, "", false, true, "http://www.microsoft.com/403"}, // a proxy's, perhaps
		{"http://www.microsoft.com/302", 302, good, false, true, "http://www.microsoft.com/302"},
		{"http://www.microsoft.com/500", 500, good, false, true, "http://www.microsoft.com/500"},
		{"http://www.microsoft.com/500", 200, good, false, true, ""},
		{"http://www.microsoft.com/0", 0, "", false, true, "http://www.microsoft.com/0"},
		{"http://www.microsoft.com/nothing", 200, "", false, true, "http://www.microsoft.com/nothing"},
		{"http://www.microsoft.com/page", 200, "<html>", false, true, "http://www.microsoft.com/page"},
		{"http://www.microsoft.com/more", 200, good + "x", false, true, "http://www.microsoft.com/more"},
		{"http://www.microsoft.com/large", 200, strings.Repeat("d", maxFetchedSize+1), false, true, "http://www.microsoft.com/large"},
		{"http://www.microsoft.com:80/d", 200, good, true, false, "http://www.microsoft.com/d"},
		{"https://www.microsoft.com:443/d", 200, good, true, false, "https://www.microsoft.com/d"},
		{"http://cacerts.digicert.cn/d", 200, good, true, false, "http://cacerts.digicert.cn/d"},
		{"http://www.microsoft.com:8080/e", 200, good, false, false, ""},
		{"http://www.microsoft.com:443/e", 200, good, false, false, ""},
		{"https://www.microsoft.com:80/e", 200, good, false, false, ""},
		{"http://www.microsoft.com:80:80/e", 200, good, false, false, ""},
		{"http://user@www.microsoft.com/e", 200, good, false, false, ""},
		{"http://169.254.169.254/metadata", 200, good, false, false, ""},
		{"http://www.microsoft.com@169.254.169.254/metadata", 200, good, false, false, ""},
		{"http://www.microsoft.com.attacker.example/e", 200, good, false, false, ""},
		{"http://www.microsoft.com./e", 200, good, false, false, ""},
		{"http:www.microsoft.com/e", 200, good, false, false, ""},
		{"//www.microsoft.com/e", 200, good, false, false, ""},
		{"file://www.microsoft.com/etc/passwd", 200, good, false, false, ""},
		{"ldap://www.microsoft.com/e", 200, good, false, false, ""},
		{"://", 200, good, false, false, ""},
		{"", 200, good, false, false, ""},
	} {
		asked, status, body = nil, c.status, c.body
		got, err := f.FetchIssuer(context.Background(), c.url)
		if (string(got) == good) != c.found || !c.found && got != nil || (err != nil) != c.fails || strings.Join(asked, " ") != c.asks {
			t.Errorf("%d, %s: %d bytes, %v, asked %q", n, c.url, len(got), err, asked)
		}
		if err != nil && strings.Contains(err.Error(), "/") {
			t.Errorf("%d, %s: the URL is in %v", n, c.url, err)
		}
	}
	status = http.StatusNotFound
	for n := range 2 * maxFailed {
		_, _ = f.FetchIssuer(context.Background(), fmt.Sprintf("http://www.microsoft.com/%d", n))
	}
	if len(f.failed) > maxFailed {
		t.Errorf("%d failures are remembered", len(f.failed))
	}
	if transport, ok := NewHTTPFetcher(HTTPFetcherOptions{}).client.Transport.(*http.Transport); !ok || transport.Proxy == nil {
		t.Error("the environment's proxy is not asked")
	}
	if got, err := NewHTTPFetcher(HTTPFetcherOptions{Hosts: []string{"a.example"}}).FetchIssuer(context.Background(), "http://www.microsoft.com/"); got != nil || err != nil {
		t.Errorf("another list of hosts: %q, %v", got, err)
	}
}

// The fetcher returns every form of a certificate as it is.
func TestHTTPFetcherForms(t *testing.T) {
	der := testBench(t).issuing.Certificate.Raw
	for name, body := range map[string][]byte{"PKCS#7": tpmlab.CertsOnly(der), "PEM": inPEM(der), "PKCS#7 in PEM": pem.EncodeToMemory(&pem.Block{Type: "PKCS7", Bytes: tpmlab.CertsOnly(der)})} {
		t.Run(name, func(t *testing.T) {
			f := NewHTTPFetcher(HTTPFetcherOptions{Transport: roundTrips(func(*http.Request) *http.Response {
				w := httptest.NewRecorder()
				_, _ = w.Write(body)
				return w.Result()
			})})
			if got, err := f.FetchIssuer(t.Context(), "http://www.microsoft.com/a"); err != nil || !bytes.Equal(got, body) || len(f.failed) != 0 {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
}

// A network that lets nothing out but https gets it on request, on its own port.
func TestHTTPFetcherOverHTTPS(t *testing.T) {
	good := testBench(t).issuing.Certificate.Raw
	for from, want := range map[string]string{
		"http://www.microsoft.com/a":      "https://www.microsoft.com/a",
		"http://www.microsoft.com:80/b":   "https://www.microsoft.com/b",
		"https://www.microsoft.com:443/c": "https://www.microsoft.com/c",
		"http://www.microsoft.com:8080/d": "",
	} {
		asked := ""
		f := NewHTTPFetcher(HTTPFetcherOptions{HTTPS: true, Transport: roundTrips(func(r *http.Request) *http.Response {
			asked = r.URL.String()
			w := httptest.NewRecorder()
			w.Write(good)
			return w.Result()
		})})
		if got, err := f.FetchIssuer(t.Context(), from); err != nil || asked != want || (got != nil) != (want != "") {
			t.Errorf("%s: asked %q, %v", from, asked, err)
		}
	}
}

// TestFetchSuccessor: a configured intermediate that has ended does not keep the one that was issued
// after it, with the same name and key, from being fetched.
func TestFetchSuccessor(t *testing.T) {
	b, key := testBench(t), anotherKey()
	ended := testkit.Must(issue(caTemplate("Issued anew", testTime.Add(-year), testTime.Add(-time.Hour)), key, b.root))
	next := testkit.Must(issue(caTemplate("Issued anew", testTime.Add(-2*time.Hour), testTime.Add(year)), key, b.root))
	template := b.leafTemplate(testTime)
	template.IssuingCertificateURL = []string{place(1)}
	der := testkit.Must(newParts(testContent(), testkit.Must(issue(template, anotherKey(), next))).marshal())
	f := &fetcher{give: map[string][]byte{place(1): next.Certificate.Raw}}
	config := VerifierConfig{Roots: []*x509.Certificate{b.root.Certificate}, Intermediates: []*x509.Certificate{ended.Certificate}}
	if _, err := newVerifier(t, config).Verify(t.Context(), der, testTime); !errors.Is(err, chain.CheckExpired) {
		t.Errorf("without a fetcher: got %v, want %s", err, chain.CheckExpired)
	}
	config.FetchIssuer = f.FetchIssuer
	if _, err := newVerifier(t, config).Verify(t.Context(), der, testTime); err != nil || len(f.asked) != 1 {
		t.Errorf("got %v after %d fetches", err, len(f.asked))
	}
}
