package azure

import (
	"cmp"
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
)

// issuerHosts are the hosts that the certificates of the service's signers name as the sources
// of their issuers, and those of DigiCert, which certified the roots above them.
func issuerHosts() []string {
	return []string{"www.microsoft.com", "caissuers.microsoft.com", "cacerts.digicert.com"}
}

// HTTPFetcherOptions say how an [HTTPFetcher] asks. The zero value works.
type HTTPFetcherOptions struct {
	// Hosts are the only hosts asked; nil means www.microsoft.com,
	// caissuers.microsoft.com and cacerts.digicert.com.
	Hosts []string
	// Transport makes the requests; nil means one without a proxy.
	Transport http.RoundTripper
	// Timeout bounds one request; zero means 10 seconds.
	Timeout time.Duration
}

// HTTPFetcher fetches issuers' certificates for a [VerifierConfig] over HTTPS: it fetches an
// http URL over https instead. It follows no redirects, reads at most 16 KiB, and remembers up
// to 64 certificates. It is safe for concurrent use.
type HTTPFetcher struct {
	hosts  []string
	client *http.Client

	mu    sync.Mutex
	known map[string][]byte // by URL
}

const maxKnown = 64

// NewHTTPFetcher makes a fetcher.
func NewHTTPFetcher(opts HTTPFetcherOptions) *HTTPFetcher {
	hosts := opts.Hosts
	if hosts == nil {
		hosts = issuerHosts()
	}
	transport := opts.Transport
	if transport == nil {
		transport = &http.Transport{DisableCompression: true, MaxResponseHeaderBytes: 16 << 10, IdleConnTimeout: time.Minute}
	}
	return &HTTPFetcher{hosts: slices.Clone(hosts), known: map[string][]byte{},
		client: &http.Client{Transport: transport, Timeout: cmp.Or(opts.Timeout, 10*time.Second),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// FetchIssuer returns what is at a URL of one of the hosts, and nil for other URLs.
func (f *HTTPFetcher) FetchIssuer(ctx context.Context, from string) ([]byte, error) {
	if f == nil {
		return nil, errors.New("no fetcher")
	}
	u, err := url.Parse(from)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Port() != "" ||
		!slices.Contains(f.hosts, strings.ToLower(u.Hostname())) {
		return nil, nil
	}
	u.Scheme, u.Fragment = "https", ""
	at := u.String()
	f.mu.Lock()
	der := f.known[at]
	f.mu.Unlock()
	if der != nil {
		return der, nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, nil
	}
	response, err := f.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxFetchedSize+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) == 0:
		return nil, errors.New("an empty answer")
	case len(body) > maxFetchedSize:
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.known) < maxKnown {
		f.known[at] = body
	}
	return body, nil
}
