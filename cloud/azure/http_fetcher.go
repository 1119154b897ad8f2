package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/nodeattest/nodeattest/internal/fetch"
	"github.com/nodeattest/nodeattest/recovered"
)

// issuerHosts are the hosts that the certificates of the service's signers name as the sources
// of their issuers, and DigiCert's, which certified the roots above them and, for China,
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
// name, on port 80 of http and 443 of https and no other. Most are http: certificates are signed,
// and count only in a chain to a root. It follows no redirects and reads at most 16 KiB. One request
// is made for all who ask for a URL at once, and one that failed is not repeated for half a
// minute. It is safe for concurrent use.
type HTTPFetcher struct {
	hosts  []string
	https  bool
	client *http.Client

	requests singleflight.Group // by URL

	mu     sync.Mutex
	failed map[string]failure // by URL
}

// failure is a request that got no certificate.
type failure struct {
	err   error // nil: the host has no certificate there
	until time.Time
}

const (
	failedFor = 30 * time.Second
	maxFailed = 256 // of which all are forgotten if there are more
)

// limits bound one request.
var limits = fetch.Limits{Timeout: 5 * time.Second, Header: 16 << 10, Idle: time.Minute}

// NewHTTPFetcher makes a fetcher.
func NewHTTPFetcher(opts HTTPFetcherOptions) *HTTPFetcher {
	hosts := opts.Hosts
	if hosts == nil {
		hosts = issuerHosts()
	}
	transport := opts.Transport
	if transport == nil {
		transport = limits.Transport(http.ProxyFromEnvironment)
	}
	return &HTTPFetcher{hosts: slices.Clone(hosts), https: opts.HTTPS, failed: map[string]failure{}, client: limits.Client(transport)}
}

var (
	errNoFetcher = errors.New("no fetcher")
	errNoHost    = errors.New("no host of issuers answers")
	// errCanceled ends a request whose caller's context ended: a caller that still waits repeats it.
	errCanceled = errors.New("canceled: the context of the request's caller ended")
)

// FetchIssuer returns the body at a URL of one of the hosts, if that has a certificate, and
// nil for other URLs and if the host answers 404 or 410.
func (f *HTTPFetcher) FetchIssuer(ctx context.Context, from string) ([]byte, error) {
	if f == nil {
		return nil, errNoFetcher
	}
	u := f.place(from)
	if u == nil {
		return nil, nil
	}
	for {
		shared := f.requests.DoChan(u.String(), func() (any, error) { //goroutine: calls the transport through package recovered
			var body []byte
			err := <-recovered.Go(func() (err error) {
				body, err = f.requestOnce(ctx, u)
				return err
			})
			return body, err
		})
		select {
		case reply := <-shared:
			if errors.Is(reply.Err, errCanceled) && ctx.Err() == nil {
				continue
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			der, _ := reply.Val.([]byte)
			return der, reply.Err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// place returns the URL to fetch from, nil if it is not on one of the hosts.
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

// requestOnce makes a request unless one has just failed, and remembers a failure. An error names the
// host, and not the URL, which comes from an unverified certificate.
func (f *HTTPFetcher) requestOnce(ctx context.Context, u *url.URL) ([]byte, error) {
	at := u.String()
	f.mu.Lock()
	old, ok := f.failed[at]
	f.mu.Unlock()
	if ok && time.Now().Before(old.until) {
		return nil, old.err
	}
	var der []byte
	err := recovered.Call(func() (err error) {
		der, err = f.request(ctx, u)
		return err
	})
	if ctx.Err() != nil {
		return nil, errCanceled
	}
	if err != nil {
		der, err = nil, fmt.Errorf("%s: %w", u.Hostname(), err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.failed, at)
	if der == nil {
		if len(f.failed) == maxFailed {
			clear(f.failed)
		}
		f.failed[at] = failure{err, time.Now().Add(failedFor)}
	}
	return der, err
}

// request gets a certificate.
func (f *HTTPFetcher) request(ctx context.Context, u *url.URL) ([]byte, error) {
	response, err := fetch.Do(ctx, f.client, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusGone {
		return nil, nil
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", response.StatusCode)
	}
	der, _, err := fetch.Body(response, maxFetchedSize)
	if err == nil {
		_, err = parseFetched(der)
	}
	return der, err
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
		response, err := fetch.Do(ctx, f.client, http.MethodHead, scheme+"://"+host+"/", nil)
		if err == nil {
			return response.Body.Close()
		}
		failed = fmt.Errorf("%w; %s: %w", failed, host, err)
	}
	return failed
}
