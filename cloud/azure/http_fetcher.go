package azure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/recovered"
)

// issuerHosts are the hosts that the certificates of the service's signers name as the sources
// of their issuers, and those of DigiCert, which certified the roots above them and, for China,
// the signers.
func issuerHosts() []string {
	return []string{"www.microsoft.com", "caissuers.microsoft.com", "cacerts.digicert.com", "cacerts.digicert.cn"}
}

// HTTPFetcherOptions say how an [HTTPFetcher] asks. The zero value works.
type HTTPFetcherOptions struct {
	// Hosts are the only hosts asked; nil means www.microsoft.com, caissuers.microsoft.com,
	// cacerts.digicert.com and, for Azure in China, cacerts.digicert.cn.
	Hosts []string
	// HTTPS fetches http URLs over https, for a network that lets nothing else out. No CA
	// promises that its host answers there.
	HTTPS bool
	// Transport makes the requests; nil means one with the system's roots and the proxy that
	// the environment names (net/http.ProxyFromEnvironment).
	Transport http.RoundTripper
}

// HTTPFetcher fetches issuers' certificates for a [VerifierConfig] from the URLs that certificates
// name, on port 80 of http and 443 of https and no other. Most are http: what is fetched is signed,
// and counts only in a chain to a root. It follows no redirects and reads at most 16 KiB. One request
// is made for all who ask for a URL at once, and one that failed is not repeated for half a
// minute. It is safe for concurrent use.
type HTTPFetcher struct {
	hosts  []string
	https  bool
	client *http.Client

	mu      sync.Mutex
	flights map[string]*flight // by URL: the requests under way
	failed  map[string]failure // by URL
}

// flight is one request. der and err are set before done is closed.
type flight struct {
	done chan struct{}
	der  []byte
	err  error
	left bool // who made it has left before it ended
}

// failure is a request that brought nothing.
type failure struct {
	err   error // nil: there is none
	until time.Time
}

const (
	requestTimeout = 5 * time.Second
	failedFor      = 30 * time.Second
	maxFailed      = 256 // of which all are forgotten if there are more
)

// NewHTTPFetcher makes a fetcher.
func NewHTTPFetcher(opts HTTPFetcherOptions) *HTTPFetcher {
	hosts := opts.Hosts
	if hosts == nil {
		hosts = issuerHosts()
	}
	transport := opts.Transport
	if transport == nil {
		transport = &http.Transport{Proxy: http.ProxyFromEnvironment, DisableCompression: true, MaxResponseHeaderBytes: 16 << 10, IdleConnTimeout: time.Minute}
	}
	return &HTTPFetcher{hosts: slices.Clone(hosts), https: opts.HTTPS, flights: map[string]*flight{}, failed: map[string]failure{},
		client: &http.Client{Transport: transport, Timeout: requestTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

var (
	errNoFetcher = errors.New("no fetcher")
	errNoHost    = errors.New("no host of issuers answers")
)

// FetchIssuer returns what stands at a URL of one of the hosts, if that has a certificate, and
// nil for other URLs and where there is nothing.
func (f *HTTPFetcher) FetchIssuer(ctx context.Context, from string) ([]byte, error) {
	if f == nil {
		return nil, errNoFetcher
	}
	u := f.place(from)
	if u == nil {
		return nil, nil
	}
	for {
		w, ours := f.board(u.String())
		if ours {
			return f.fly(ctx, u, w)
		}
		select {
		case <-w.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !w.left {
			return w.der, w.err
		}
	}
}

// place is where a certificate is fetched from, nil if not from one of the hosts.
func (f *HTTPFetcher) place(from string) *url.URL {
	u, err := url.Parse(from)
	if err != nil || u.User != nil || !slices.Contains(f.hosts, strings.ToLower(u.Hostname())) {
		return nil
	}
	usual := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	u.Host, u.Fragment = strings.TrimSuffix(u.Host, usual), ""
	if usual == "" || u.Port() != "" {
		return nil
	}
	if f.https {
		u.Scheme = "https"
	}
	return u
}

// board returns the request for a URL that is under way or has failed just now, or a new one
// that is the caller's to make.
func (f *HTTPFetcher) board(at string) (w *flight, ours bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.flights[at]; w != nil {
		return w, false
	}
	w = &flight{done: make(chan struct{})}
	if old, ok := f.failed[at]; ok && time.Now().Before(old.until) {
		w.err = old.err
		close(w.done)
		return w, false
	}
	f.flights[at] = w
	return w, true
}

// fly makes the request that others wait for. A panic of the transport is its error.
func (f *HTTPFetcher) fly(ctx context.Context, u *url.URL, w *flight) (der []byte, err error) {
	defer func() { f.land(u.String(), w, der, err, ctx.Err() != nil) }()
	err = recovered.Call(func() (err error) {
		der, err = f.request(ctx, u)
		return err
	})
	return der, err
}

// land ends a request.
func (f *HTTPFetcher) land(at string, w *flight, der []byte, err error, left bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.flights, at)
	delete(f.failed, at)
	if der == nil && !left { // who left has not waited for the answer
		if len(f.failed) == maxFailed {
			clear(f.failed)
		}
		f.failed[at] = failure{err, time.Now().Add(failedFor)}
	}
	w.der, w.err, w.left = der, err, left
	close(w.done)
}

// request gets a certificate.
func (f *HTTPFetcher) request(ctx context.Context, u *url.URL) ([]byte, error) {
	response, err := f.get(ctx, http.MethodGet, u)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusGone {
		return nil, nil
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: status %d", u.Hostname(), response.StatusCode)
	}
	der, err := io.ReadAll(io.LimitReader(response.Body, maxFetchedSize+1))
	if err == nil {
		_, err = parseFetched(der)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.Hostname(), err)
	}
	return der, nil
}

// get makes a request. An error names the host, and not the URL, which is a stranger's.
func (f *HTTPFetcher) get(ctx context.Context, method string, u *url.URL) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("%s: a URL that cannot be asked for", u.Hostname())
	}
	response, err := f.client.Do(request)
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.Hostname(), err)
	}
	return response, nil
}

// Check asks the hosts for their first page until one answers, and returns an error that says
// why none did. Any answer will do: it shows that the network, the proxy and, over https, the roots
// let this fetcher through, before a node depends on it.
func (f *HTTPFetcher) Check(ctx context.Context) error {
	if f == nil || len(f.hosts) == 0 {
		return errNoFetcher
	}
	failed, scheme := errNoHost, "http"
	if f.https {
		scheme = "https"
	}
	for _, host := range f.hosts {
		response, err := f.get(ctx, http.MethodHead, &url.URL{Scheme: scheme, Host: host, Path: "/"})
		if err == nil {
			return response.Body.Close()
		}
		failed = fmt.Errorf("%w; %w", failed, err)
	}
	return failed
}
