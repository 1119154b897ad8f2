package apiserver

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/internal/typednil"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// The paths at which kube-apiserver serves its discovery documents, and their media types
// (pkg/serviceaccount/openidmetadata.go and pkg/routes in k8s.io/kubernetes 1.36).
const (
	// oidcConfigurationPath is the path of the discovery document, below the issuer's URL
	// (OpenID Connect Discovery 1.0, section 4).
	oidcConfigurationPath = "/.well-known/openid-configuration"
	// oidcKeySetPath is the path at which kube-apiserver serves the key set.
	oidcKeySetPath = "/openid/v1/jwks"
	// oidcConfigurationType is the media type of the discovery document.
	oidcConfigurationType = "application/json"
	// oidcKeySetType is the media type of the key set (RFC 7517, section 8.5.1).
	oidcKeySetType = "application/jwk-set+json"
)

// maxURLSize is the maximum size in bytes of the URL of an issuer or of a key set.
const maxURLSize = 2048

// OIDCConfig says what goes into the discovery document of an issuer.
type OIDCConfig struct {
	// Issuer is the issuer's URL, as in "iss": https, without query and fragment. It is
	// required.
	Issuer string
	// KeySetURL is the https URL of the key set (--service-account-jwks-uri); "" means
	// /openid/v1/jwks at ExternalAddress.
	KeySetURL string
	// ExternalAddress is the host, with or without a port, at which the key set is
	// served. It is required if KeySetURL is "".
	ExternalAddress string
}

// OIDCDocuments holds the two documents, exactly as kube-apiserver serves them.
type OIDCDocuments struct {
	// Configuration is the discovery document.
	Configuration []byte
	// KeySet is the JWKS (RFC 7517, section 5).
	KeySet []byte
}

// oidcConfiguration is the discovery document, with the members that kube-apiserver
// writes, in its order.
type oidcConfiguration struct {
	Issuer        string          `json:"issuer"`
	KeySetURL     string          `json:"jwks_uri"`
	ResponseTypes []string        `json:"response_types_supported"`
	SubjectTypes  []string        `json:"subject_types_supported"`
	Algorithms    []jws.Algorithm `json:"id_token_signing_alg_values_supported"`
}

// Render writes the documents for the keys, in their order. A key whose algorithm is not
// RS256, ES256, ES384 or ES512 is refused, as is an empty list. The error is
// [refusal.CheckConfig].
func (config OIDCConfig) Render(keys []*jws.Key) (*OIDCDocuments, error) {
	keySetURL, err := config.check()
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, refusal.Config("keys", "", "at least one")
	}
	known := []jws.Algorithm{jws.RS256, jws.ES256, jws.ES384, jws.ES512} // to kube-apiserver
	var algorithms []jws.Algorithm
	for _, k := range keys {
		if k == nil || !slices.Contains(known, k.Algorithm()) {
			return nil, refusal.Config("keys", "with one of another kind", "RSA for RS256, or ECDSA")
		}
		algorithms = append(algorithms, k.Algorithm())
	}
	slices.Sort(algorithms)
	configuration, err := json.Marshal(oidcConfiguration{
		Issuer:        config.Issuer,
		KeySetURL:     keySetURL,
		ResponseTypes: []string{"id_token"},
		SubjectTypes:  []string{"public"},
		Algorithms:    slices.Compact(algorithms),
	})
	if err != nil {
		return nil, err
	}
	set, err := jws.MarshalJWKS(keys)
	if err != nil {
		return nil, err
	}
	return &OIDCDocuments{Configuration: configuration, KeySet: set}, nil
}

// check returns the URL of the key set.
func (config OIDCConfig) check() (string, error) {
	issuer, err := httpsURL("Issuer", config.Issuer)
	switch {
	case err != nil:
		return "", err
	case issuer.RawQuery != "" || issuer.Fragment != "":
		return "", refusal.Config("Issuer", strconv.Quote(config.Issuer), "a URL without query and fragment")
	case config.KeySetURL != "":
		_, err := httpsURL("KeySetURL", config.KeySetURL)
		return config.KeySetURL, err
	}
	made := "https://" + config.ExternalAddress + oidcKeySetPath
	if u, err := httpsURL("ExternalAddress", made); err != nil || u.Host != config.ExternalAddress || u.Path != oidcKeySetPath {
		return "", refusal.Config("ExternalAddress", strconv.Quote(refusal.Text(config.ExternalAddress)), "a host with a port or without, or the URL of the key set")
	}
	return made, nil
}

func httpsURL(field, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxURLSize:
		return nil, refusal.Config(field, "of "+strconv.Itoa(len(text))+" bytes", "at most "+strconv.Itoa(maxURLSize))
	case err != nil:
		return nil, &Error{Check: refusal.CheckConfig, Got: field, Want: "a URL", Err: err}
	case u.Scheme != "https" || u.Host == "":
		return nil, refusal.Config(field, strconv.Quote(text), "an https URL")
	}
	return u, nil
}

// KeySource provides the keys that an issuer publishes. Implementations must be safe for
// concurrent use.
type KeySource interface {
	// DiscoveryKeys returns the keys that sign and those that signed tokens that are still
	// valid, and for how long the answer may be kept: a key must be among them for that
	// long before it signs. A key that only verifies, such as one for legacy tokens, is
	// left out.
	DiscoveryKeys(ctx context.Context) (keys []*jws.Key, maxAge time.Duration, err error)
}

// defaultMaxAge is how long kube-apiserver allows its documents to be kept if its keys come
// from files.
const defaultMaxAge = time.Hour

// KeySetSource publishes the keys of a key set, such as a [jws.RotatingSigner].
type KeySetSource struct {
	// Keys are the keys that sign. It is required.
	Keys jws.KeySet
	// MaxAge is how long the answer may be kept; 0 means an hour. It must not be
	// longer than the time for which a new key is published before it signs.
	MaxAge time.Duration
}

// DiscoveryKeys returns the keys of the set.
func (s KeySetSource) DiscoveryKeys(ctx context.Context) ([]*jws.Key, time.Duration, error) {
	if s.Keys == nil {
		return nil, 0, refusal.Config("Keys", "", "a jws.KeySet")
	}
	keys, err := s.Keys.Keys(ctx, "")
	if err != nil {
		return nil, 0, refusal.Retry(err)
	}
	return keys, cmp.Or(s.MaxAge, defaultMaxAge), nil
}

// OIDCHandler serves the two documents at /.well-known/openid-configuration and /openid/v1/jwks
// as kube-apiserver does, with the same media types and Cache-Control. Anything else is not
// found, and methods other than GET and HEAD are not allowed. It needs no authentication, since
// the documents are public.
type OIDCHandler struct {
	config OIDCConfig
	source KeySource
}

// NewOIDCHandler checks the configuration and returns a handler. The error is
// [refusal.CheckConfig].
func NewOIDCHandler(source KeySource, config OIDCConfig) (*OIDCHandler, error) {
	if typednil.Is(source) {
		return nil, refusal.Config("source", "", "the keys to publish")
	}
	if _, err := config.check(); err != nil {
		return nil, err
	}
	return &OIDCHandler{config: config, source: source}, nil
}

// documents renders the keys as they are now.
func (h *OIDCHandler) documents(ctx context.Context) (*OIDCDocuments, time.Duration, error) {
	if h.source == nil {
		return nil, 0, refusal.Config("OIDCHandler", "that NewOIDCHandler did not make", "one that it made")
	}
	keys, maxAge, err := h.source.DiscoveryKeys(ctx)
	if err != nil {
		return nil, 0, err
	}
	documents, err := h.config.Render(keys)
	return documents, maxAge, err
}

// ServeHTTP answers one request. If the keys are not available, the answer is 503 and must
// not be stored; it does not say why.
func (h *OIDCHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fail := func(status int, header, value string) {
		w.Header().Set(header, value)
		http.Error(w, http.StatusText(status), status)
	}
	switch {
	case r.URL.Path != oidcConfigurationPath && r.URL.Path != oidcKeySetPath:
		http.NotFound(w, r)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		fail(http.StatusMethodNotAllowed, "Allow", "GET, HEAD")
		return
	}
	documents, maxAge, err := h.documents(r.Context())
	if err != nil {
		fail(http.StatusServiceUnavailable, "Cache-Control", "no-store")
		return
	}
	body, mediaType := documents.Configuration, oidcConfigurationType
	if r.URL.Path == oidcKeySetPath {
		body, mediaType = documents.KeySet, oidcKeySetType
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Cache-Control", "public, max-age="+strconv.Itoa(int(max(maxAge, 0)/time.Second)))
	_, _ = w.Write(body) // it does not matter if the client has gone
}
