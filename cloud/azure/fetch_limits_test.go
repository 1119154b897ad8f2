package azure

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodeattest/nodeattest/cloud/internal/chain"
	"github.com/nodeattest/nodeattest/internal/dn"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// selfMade is a document that a stranger has signed, whose certificate names these
// places for its issuer.
func selfMade(b *bench, places ...string) []byte {
	template := b.leafTemplate(testTime)
	template.IssuingCertificateURL = places
	return testkit.Must(newParts(testContent(), testkit.Must(issue(template, anotherKey(), nil))).marshal())
}

// site is a host of certificates with a page at every other place. It counts the requests
// by path.
type site struct {
	certificates map[string][]byte // by path
	mu           sync.Mutex
	asked        map[string]int
}

func (s *site) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[r.URL.Path]++
	w := httptest.NewRecorder()
	if der := s.certificates[r.URL.Path]; der != nil {
		_, _ = w.Write(der)
	} else {
		_, _ = w.WriteString("<html>We are updating this site</html>")
	}
	return w.Result(), nil
}

func (b *bench) fetching(t *testing.T, f *HTTPFetcher) *Verifier {
	t.Helper()
	return newVerifier(t, VerifierConfig{Roots: []*x509.Certificate{b.root.Certificate}, FetchIssuer: f.FetchIssuer})
}

// A page in place of a certificate is a matter of trying again, and is forgotten once the
// host gives the certificate.
func TestFetchAfterAPage(t *testing.T) {
	b := testBench(t)
	leaf, give := chained(t, b, 1)
	der := testkit.Must(newParts(testContent(), leaf).marshal())
	synctest.Test(t, func(t *testing.T) {
		s := &site{map[string][]byte{}, sync.Mutex{}, map[string]int{}}
		v := b.fetching(t, NewHTTPFetcher(HTTPFetcherOptions{Transport: s}))
		for range 3 {
			if _, err := v.Verify(t.Context(), der, testTime); !errors.Is(err, refusal.ErrRetry) {
				t.Errorf("a page: %v, want a retry", err)
			}
		}
		if s.asked["/pkiops/certs/1.crt"] != 1 {
			t.Errorf("asked %v: a failure is not remembered", s.asked)
		}
		s.certificates["/pkiops/certs/1.crt"] = give[place(1)]
		time.Sleep(failedFor)
		for range 3 {
			if _, err := v.Verify(t.Context(), der, testTime); err != nil {
				t.Errorf("the host is back: %v", err)
			}
		}
		if s.asked["/pkiops/certs/1.crt"] != 2 {
			t.Errorf("asked %v: what verified is not remembered", s.asked)
		}
	})
}

// Places that strangers invent do not displace certificates fetched for a document that verified.
func TestFetchedIsKept(t *testing.T) {
	b := testBench(t)
	leaf, give := chained(t, b, 2)
	der := testkit.Must(newParts(testContent(), leaf).marshal())
	s := &site{map[string][]byte{"/pkiops/certs/1.crt": give[place(1)], "/pkiops/certs/2.crt": give[place(2)], "/real.crt": b.issuing.Certificate.Raw}, sync.Mutex{}, map[string]int{}}
	v := b.fetching(t, NewHTTPFetcher(HTTPFetcherOptions{Transport: s}))
	strangers := func(prefix string) {
		t.Helper()
		for n := range 20 {
			var places []string
			for m := range maxFetches {
				places = append(places, fmt.Sprintf("http://www.microsoft.com/%s?%d.%d", []string{prefix, "real.crt"}[m%2], n, m))
			}
			if _, err := v.Verify(t.Context(), selfMade(b, places...), testTime); err == nil {
				t.Fatal("a stranger's document")
			}
		}
	}
	strangers("before")
	for range 3 {
		if _, err := v.Verify(t.Context(), der, testTime); err != nil {
			t.Fatal(err)
		}
	}
	strangers("after")
	if _, err := v.Verify(t.Context(), der, testTime); err != nil {
		t.Fatal(err)
	}
	if s.asked["/pkiops/certs/1.crt"] != 1 || s.asked["/pkiops/certs/2.crt"] != 1 {
		t.Errorf("asked %v, want each certificate of the chain once", s.asked)
	}
	// It is fetched anew when it is old, and not used when it has ended.
	if _, err := v.Verify(t.Context(), testkit.Must(newParts(at(keptFor), leaf).marshal()), testTime.Add(keptFor)); err != nil || s.asked["/pkiops/certs/1.crt"] != 2 {
		t.Errorf("after a day: %v, asked %v", err, s.asked)
	}
}

// The number of kept certificates is bounded; the oldest goes first.
func TestFetchedIsBounded(t *testing.T) {
	b := testBench(t)
	v := newVerifier(t, VerifierConfig{Roots: []*x509.Certificate{b.root.Certificate}, FetchIssuer: (&fetcher{}).FetchIssuer})
	oldest := testkit.Must(issue(caTemplate("CA 0", testTime.Add(-year), testTime.Add(year)), anotherKey(), b.root)).Certificate
	v.fetched.keep([]*x509.Certificate{oldest}, testTime)
	for n := range maxKept {
		c := testkit.Must(issue(caTemplate(fmt.Sprint("CA ", n+1), testTime.Add(-year), testTime.Add(year)), anotherKey(), b.root)).Certificate
		v.fetched.keep([]*x509.Certificate{c, c}, testTime.Add(time.Minute))
	}
	if pool := v.fetched.pool(testTime.Add(time.Minute)); len(pool) != maxKept || pool[dn.Key(oldest.RawSubject)] != nil {
		t.Errorf("%d are kept", len(pool))
	}
	if pool := v.fetched.pool(testTime.Add(-keptFor)); len(pool) != 0 {
		t.Errorf("before they were fetched: %d", len(pool))
	}
}

// While a host does not answer, few documents wait for it, and each of them once: the others
// are put off at once.
func TestFewFetchesAtOnce(t *testing.T) {
	b := testBench(t)
	const documents = 30
	list := make([][]byte, documents)
	for n := range list {
		list[n] = selfMade(b, place(4*n), place(4*n+1), place(4*n+2), place(4*n+3))
	}
	synctest.Test(t, func(t *testing.T) {
		var waiting, most, returned atomic.Int32
		f := NewHTTPFetcher(HTTPFetcherOptions{Transport: tripper(func(r *http.Request) (*http.Response, error) {
			most.Store(max(most.Load(), waiting.Add(1)))
			defer waiting.Add(-1)
			<-r.Context().Done()
			return nil, r.Context().Err()
		})})
		v := b.fetching(t, f)
		began := time.Now()
		var done sync.WaitGroup
		for _, der := range list {
			done.Go(func() {
				if _, err := v.Verify(t.Context(), der, testTime); !errors.Is(err, refusal.ErrRetry) {
					t.Errorf("%v, want a retry", err)
				}
				returned.Add(1)
			})
		}
		synctest.Wait()
		if waiting.Load() != maxFetching || returned.Load() != documents-maxFetching {
			t.Errorf("%d documents wait and %d are put off, want %d and %d", waiting.Load(), returned.Load(), maxFetching, documents-maxFetching)
		}
		done.Wait()
		if took := time.Since(began); took != documentTimeout || most.Load() != maxFetching {
			t.Errorf("they took %s, at most %d at once, want %s and %d", took, most.Load(), documentTimeout, maxFetching)
		}
		if _, err := v.Verify(t.Context(), list[0], testTime); !errors.Is(err, refusal.ErrRetry) || errors.Is(err, errBusy) {
			t.Errorf("afterwards: %v", err)
		}
	})
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// All fetches for one document have one deadline.
func TestOneDeadline(t *testing.T) {
	b := testBench(t)
	leaf, give := chained(t, b, 4)
	var deadlines []time.Time
	v := newVerifier(t, VerifierConfig{Roots: []*x509.Certificate{b.root.Certificate}, FetchIssuer: func(ctx context.Context, url string) ([]byte, error) {
		deadline, _ := ctx.Deadline()
		deadlines = append(deadlines, deadline)
		return give[url], nil
	}})
	if _, err := v.Verify(t.Context(), testkit.Must(newParts(testContent(), leaf).marshal()), testTime); err != nil {
		t.Fatal(err)
	}
	if len(deadlines) != 4 || deadlines[0].IsZero() || slices.ContainsFunc(deadlines, func(d time.Time) bool { return !d.Equal(deadlines[0]) }) {
		t.Errorf("deadlines %v", deadlines)
	}
}

// One request is made for all who ask for a place at once. Who leaves does not take the answer
// from the others.
func TestOneFlight(t *testing.T) {
	b := testBench(t)
	want := b.issuing.Certificate.Raw
	synctest.Test(t, func(t *testing.T) {
		answer, asked := make(chan struct{}), atomic.Int32{}
		f := NewHTTPFetcher(HTTPFetcherOptions{Transport: tripper(func(r *http.Request) (*http.Response, error) {
			asked.Add(1)
			select {
			case <-answer:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
			w := httptest.NewRecorder()
			_, _ = w.Write(want)
			return w.Result(), nil
		})})
		first, leave := context.WithCancel(t.Context())
		var done sync.WaitGroup
		ask := func(ctx context.Context, good bool) {
			done.Go(func() {
				if der, err := f.FetchIssuer(ctx, place(1)); good != (err == nil && len(der) == len(want)) {
					t.Errorf("%d bytes, %v, want some: %t", len(der), err, good)
				}
			})
			synctest.Wait()
		}
		ask(first, false)
		second, leaveToo := context.WithCancel(t.Context())
		ask(second, false)
		ask(t.Context(), true)
		ask(t.Context(), true)
		if asked.Load() != 1 {
			t.Errorf("%d requests, want 1", asked.Load())
		}
		leaveToo()
		leave()
		synctest.Wait()
		if asked.Load() != 2 { // one of the waiting callers asks again
			t.Errorf("%d requests, want 2", asked.Load())
		}
		close(answer)
		done.Wait()
		if asked.Load() != 2 {
			t.Errorf("%d requests in the end, want 2", asked.Load())
		}
	})
}

// A panic of the transport is a failed request for all who wait for it, of which nothing is decided.
func TestFetcherTransportPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		f := NewHTTPFetcher(HTTPFetcherOptions{Transport: tripper(func(*http.Request) (*http.Response, error) {
			<-answer
			panic("a bug of the transport")
		})})
		var done sync.WaitGroup
		for range 3 {
			done.Go(func() {
				if der, err := f.FetchIssuer(t.Context(), place(1)); der != nil || err == nil {
					t.Errorf("%d bytes, %v, want an error", len(der), err)
				}
			})
		}
		synctest.Wait()
		close(answer)
		done.Wait()
		if der, err := f.FetchIssuer(t.Context(), place(1)); der != nil || err == nil {
			t.Errorf("a moment later: %d bytes, %v, want an error", len(der), err)
		}
		time.Sleep(limits.Timeout) // what net/http started ends
	})
}

// A host whose certificate has no known issuer, as in an image without roots, is a matter of
// trying again, and the check says so before any node asks.
func TestFetcherWithoutRoots(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer server.Close()
	b := testBench(t)
	redirect := func(inner http.RoundTripper) http.RoundTripper {
		return tripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.URL.Host = server.Listener.Addr().String()
			return inner.RoundTrip(r)
		})
	}
	f := NewHTTPFetcher(HTTPFetcherOptions{HTTPS: true, Transport: redirect(&http.Transport{})})
	if _, err := b.fetching(t, f).Verify(t.Context(), selfMade(b, place(1)), testTime); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("%v, want a retry", err)
	}
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](f.Check(t.Context())); !unknown {
		t.Errorf("check: %v", f.Check(t.Context()))
	}
	for _, host := range issuerHosts() {
		if err := f.Check(t.Context()); !strings.Contains(err.Error(), host+": ") {
			t.Errorf("%v does not name %s", err, host)
		}
	}
	trusting := redirect(server.Client().Transport)
	f = NewHTTPFetcher(HTTPFetcherOptions{HTTPS: true, Transport: tripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Host != issuerHosts()[1] {
			return nil, errors.New("no route")
		}
		return trusting.RoundTrip(r)
	})})
	if err := f.Check(t.Context()); err != nil {
		t.Errorf("with roots, one host and an answer of any kind: %v", err)
	}
	if err := (*HTTPFetcher)(nil).Check(t.Context()); err == nil {
		t.Error("no fetcher")
	}
}

// A document of a stranger, once everything was found out, is refused for good.
func TestFetchedForStrangers(t *testing.T) {
	b := testBench(t)
	s := &site{map[string][]byte{"/real.crt": b.issuing.Certificate.Raw}, sync.Mutex{}, map[string]int{}}
	v := b.fetching(t, NewHTTPFetcher(HTTPFetcherOptions{Transport: s}))
	if _, err := v.Verify(t.Context(), selfMade(b, "http://www.microsoft.com/real.crt"), testTime); !errors.Is(err, chain.CheckChain) || errors.Is(err, refusal.ErrRetry) {
		t.Errorf("another CA's certificate: %v", err)
	}
	if n := len(v.fetched.pool(testTime)); n != 0 {
		t.Errorf("%d certificates are kept for a document that did not verify", n)
	}
}
