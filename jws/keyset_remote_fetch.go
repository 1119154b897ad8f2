package jws

import (
	"context"
	"fmt"
	"github.com/nodeattest/nodeattest/refusal"
	"io"
	"net/http"
	"net/url"
	"time"
)

// The checks of a [RemoteKeySet].
const (
	// CheckRemote: a RemoteConfig that cannot be used.
	CheckRemote Check = "remote-config"
	// CheckFetch: a request that failed, or a response that is none: another status
	// than 200, too long, a redirect to another scheme than https.
	CheckFetch Check = "fetch"
	// CheckDiscovery: no document of OpenID Connect Discovery 1.0, section 3, or one
	// whose jwks_uri is no https URL.
	CheckDiscovery Check = "discovery"
	// CheckIssuer: the document names another issuer than the one it was fetched for.
	CheckIssuer Check = "issuer"
	// CheckClosed: the set was closed.
	CheckClosed Check = "closed"
)

// maxRedirects is how many redirects one request follows.
const maxRedirects = 5

// A keySource fetches a key set.
type keySource struct {
	client  *http.Client
	issuer  string // empty: keySet is the URL
	keySet  string
	maxSize int
	maxKeys int
	other   func(context.Context) ([]*Key, time.Duration, error) // in place of HTTPS; nil for none
}

// newKeySource takes what it needs from a complete configuration. The caller's client
// is copied, so that its redirects can be restricted without changing it.
func newKeySource(config *RemoteConfig) keySource {
	if config.Fetch != nil {
		return keySource{other: config.Fetch, maxKeys: config.MaxKeys}
	}
	client := *config.Client
	callers := client.CheckRedirect
	client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		if err := checkURL(CheckFetch, "a redirect to", next.URL.String()); err != nil {
			return err
		}
		if len(via) > maxRedirects {
			return &Error{Check: CheckFetch, Got: "more redirects", Want: fmt.Sprintf("at most %d", maxRedirects)}
		}
		if callers != nil {
			return callers(next, via)
		}
		return nil
	}
	return keySource{
		client: &client, issuer: config.Issuer, keySet: config.JWKSURL,
		maxSize: config.MaxSize, maxKeys: config.MaxKeys,
	}
}

// fetch gets the keys and for how long they may be kept.
func (s *keySource) fetch(ctx context.Context) (*StaticKeySet, time.Duration, error) {
	get := s.other
	if get == nil {
		get = s.download
	}
	keys, age, err := get(ctx)
	if err != nil {
		return nil, 0, err
	}
	if len(keys) > s.maxKeys {
		return nil, 0, &Error{Check: CheckKeySet, Got: fmt.Sprintf("%d keys", len(keys)), Want: fmt.Sprintf("at most %d", s.maxKeys)}
	}
	set, err := NewStaticKeySet(keys...)
	if err != nil {
		return nil, 0, err
	}
	return set, age, nil
}

// download gets the keys over HTTPS.
func (s *keySource) download(ctx context.Context) ([]*Key, time.Duration, error) {
	from := s.keySet
	if s.issuer != "" {
		data, _, err := s.get(ctx, discoveryURL(s.issuer), MaxDiscoverySize)
		if err != nil {
			return nil, 0, err
		}
		if from, err = parseDiscovery(data, s.issuer); err != nil {
			return nil, 0, err
		}
	}
	data, header, err := s.get(ctx, from, s.maxSize)
	if err != nil {
		return nil, 0, err
	}
	keys, err := ParseJWKS(data)
	if err != nil {
		return nil, 0, err
	}
	return keys, maxAge(header), nil
}

// get returns the body, at most limit bytes, and the header of a response.
func (s *keySource) get(ctx context.Context, from string, limit int) ([]byte, http.Header, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, nil, &Error{Check: CheckFetch, Err: err}
	}
	request.Header.Set("Accept", "application/json, application/jwk-set+json")
	response, err := s.client.Do(request)
	if err != nil {
		return nil, nil, &Error{Check: CheckFetch, Err: err}
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, nil, &Error{Check: CheckFetch, Got: "status " + response.Status + " from " + from, Want: "200"}
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, int64(limit)+1))
	if err != nil {
		return nil, nil, &Error{Check: CheckFetch, Err: err}
	}
	if len(body) > limit {
		return nil, nil, &Error{Check: CheckFetch, Got: "a longer response from " + from, Want: "at most " + bytesText(limit)}
	}
	return body, response.Header, nil
}

// checkURL checks that keys may be fetched from a URL: absolute, https, with a host,
// without a password and a fragment.
func checkURL(check Check, what, text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return &Error{Check: check, Got: what + " that is no URL", Want: "an https URL"}
	}
	if u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return &Error{Check: check, Got: what + " " + refusal.Text(u.Redacted()), Want: "an https URL with a host, without user and fragment"}
	}
	return nil
}
