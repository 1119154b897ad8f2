package jws

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/internal/fetch"
	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/refusal"
)

// maxRedirects is how many redirects one request follows.
const maxRedirects = 5

// restrict returns a copy of the caller's client, which stays as it is. Redirects of the copy, at most
// maxRedirects, lead to these hosts alone, and its responses have headers of bounded size.
func (h hosts) restrict(given *http.Client) *http.Client {
	client := *given
	client.Transport = withBound(client.Transport)
	callers := client.CheckRedirect
	client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		if err := h.check(checkFetch, "a redirect to", next.URL.String()); err != nil {
			return err
		}
		if len(via) > maxRedirects {
			return &Error{Check: checkFetch, Got: "more redirects", Want: fmt.Sprintf("at most %d", maxRedirects)}
		}
		if callers != nil {
			return callers(next, via)
		}
		return nil
	}
	return &client
}

// withBound returns a copy of a transport of net/http that bounds no headers, with a bound on them and
// connections that do not outlive a fetch; and any other transport as it is.
func withBound(transport http.RoundTripper) http.RoundTripper {
	if transport == nil {
		transport = http.DefaultTransport
	}
	callers, ok := transport.(*http.Transport)
	if !ok || callers == nil || callers.MaxResponseHeaderBytes != 0 {
		return transport
	}
	own := callers.Clone()
	own.MaxResponseHeaderBytes, own.IdleConnTimeout = maxHeadersSize, fetchTimeout
	return own
}

// download gets the keys over HTTPS, why others of the set are unfit, and how long they may be kept.
func (s *RemoteKeySet) download(ctx context.Context) (keys []*Key, unfit error, age time.Duration, err error) {
	from := s.config.JWKSURL
	if s.config.Issuer != "" {
		// OpenID Connect Discovery 1.0, section 4.1.
		data, _, err := s.get(ctx, strings.TrimSuffix(s.config.Issuer, "/")+"/.well-known/openid-configuration", maxDiscoverySize)
		if err != nil {
			return nil, nil, 0, err
		}
		if from, err = parseDiscovery(data, s.config.Issuer, s.hosts); err != nil {
			return nil, nil, 0, err
		}
	}
	data, header, err := s.get(ctx, from, maxFetchedSize)
	if err != nil {
		return nil, nil, 0, err
	}
	keys, unfit, err = parseJWKS(data)
	return keys, unfit, maxAge(header), err
}

// get returns the body, at most limit bytes, and the header of a response.
func (s *RemoteKeySet) get(ctx context.Context, from string, limit int) ([]byte, http.Header, error) {
	response, err := fetch.Do(ctx, s.config.Client, http.MethodGet, from, map[string]string{"Accept": "application/json, application/jwk-set+json"})
	if err != nil {
		return nil, nil, &Error{Check: checkFetch, Got: "no response from " + from, Err: err}
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, nil, &Error{Check: checkFetch, Got: "status " + strconv.Itoa(response.StatusCode) + " from " + from, Want: wantOK(response.StatusCode)}
	}
	if coding := response.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, nil, &Error{Check: checkFetch, Got: "the content encoding " + refusal.Quote(coding) + " from " + from, Want: "none, or one that the Client decodes"}
	}
	body, more, err := fetch.Body(response, limit)
	if err != nil {
		return nil, nil, &Error{Check: checkFetch, Got: "half a response from " + from, Err: err}
	}
	if more {
		return nil, nil, &Error{Check: checkFetch, Got: "a longer response from " + from, Want: "at most " + bytesText(limit)}
	}
	return body, response.Header, nil
}

// wantOK names the missing right or URL where an issuer answers with a status other than 200.
func wantOK(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "200: of a cluster's own issuer, a Client that sends a service account's token, or the role system:service-account-issuer-discovery for all"
	case http.StatusNotFound:
		return "200: the URL of an issuer with a discovery document, or of a key set"
	}
	return "200"
}

// hosts are the hosts that a [RemoteKeySet] may ask, each as hostPort writes it.
type hosts map[string]bool

// allowedHosts returns the hosts that a configuration allows.
func allowedHosts(config *RemoteConfig) (hosts, error) {
	h := make(hosts)
	if origin := config.Issuer + config.JWKSURL; origin != "" { // one of them
		u, err := checkURL(refusal.CheckConfig, "Issuer or JWKSURL", origin)
		if err != nil {
			return nil, err
		}
		h[hostPort(u)] = true
	}
	for _, host := range config.Hosts {
		u, err := url.Parse("https://" + host)
		if err != nil || u.Host != host || u.Hostname() == "" || strings.Contains(host, "*") {
			return nil, refusal.Config("Hosts", host, "name or name:port")
		}
		h[hostPort(u)] = true
	}
	return h, nil
}

// hostPort returns the host of an https URL, in lowercase, and its port.
func hostPort(u *url.URL) string {
	return net.JoinHostPort(strings.ToLower(u.Hostname()), cmp.Or(u.Port(), "443"))
}

// check refuses a URL as checkURL does, and one with another host with "host".
func (h hosts) check(check Check, what, text string) error {
	u, err := checkURL(check, what, text)
	if err != nil {
		return err
	}
	if !h[hostPort(u)] {
		return &Error{Check: checkHost, Got: what + " " + u.Host, Want: "the host that is configured, or one of Hosts"}
	}
	return nil
}

// checkURL checks that keys may be fetched from a URL: absolute, https, with a host, without a
// user or fragment.
func checkURL(check Check, what, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, &Error{Check: check, Got: what + " that is no URL", Want: "an https URL"}
	}
	if u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return nil, &Error{Check: check, Got: what + " " + u.Redacted(), Want: "an https URL with a host, without user and fragment"}
	}
	return u, nil
}

// parseDiscovery returns the jwks_uri of an issuer's document, which must lead to one of the
// hosts. The document must name exactly this issuer, byte for byte (section 4.3): otherwise
// one issuer could pass its keys off as another's.
func parseDiscovery(data []byte, issuer string, allowed hosts) (keySet string, err error) {
	var named string
	members := strictjson.Fields{"issuer": strictjson.Into(&named), "jwks_uri": strictjson.Into(&keySet)}
	if err := members.Parse(data); err != nil {
		return "", refuse(checkDiscovery, err)
	}
	if named != issuer {
		return "", &Error{Check: checkIssuer, Got: named, Want: issuer}
	}
	if err := allowed.check(checkDiscovery, "jwks_uri", keySet); err != nil {
		return "", err
	}
	return keySet, nil
}

// unstatedAge is how long a response that does not say may be kept.
const unstatedAge = 5 * time.Minute

// maxAge returns how long a response may be kept: the max-age of Cache-Control less its Age
// (RFC 9111, sections 4.2 and 5.2.2.1). It is zero with no-store, no-cache or a max-age that
// cannot be read, and the shortest of several. Other directives and Expires are ignored.
func maxAge(header http.Header) time.Duration {
	const unstated = time.Duration(math.MaxInt64)
	lifetime := unstated
	for _, line := range header.Values("Cache-Control") {
		for directive := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
			switch strings.ToLower(name) {
			case "no-store", "no-cache":
				return 0
			case "max-age":
				lifetime = min(lifetime, seconds(strings.Trim(value, `"`)))
			}
		}
	}
	if lifetime == unstated {
		return unstatedAge
	}
	return max(lifetime-seconds(header.Get("Age")), 0)
}

// seconds reads delta-seconds (RFC 9111, section 1.2.2): 0 if it cannot be read, and 2^31 for
// more.
func seconds(text string) time.Duration {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil && n != math.MaxUint64 {
		return 0
	}
	return time.Duration(min(n, 1<<31)) * time.Second
}
