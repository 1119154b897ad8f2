package apiserver

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// KeySource gives the keys that an issuer publishes. Implementations are safe for
// concurrent use.
type KeySource interface {
	// DiscoveryKeys returns the keys that sign and those that signed the tokens that are
	// still good, and for how long the answer may be kept: a key must be among them for
	// that long before it signs. A key that only verifies, such as one of legacy tokens,
	// is left out.
	DiscoveryKeys(ctx context.Context) (keys []*jws.Key, maxAge time.Duration, err error)
}

// DefaultMaxAge is the time for which kube-apiserver lets its documents be kept, where
// its keys come from files.
const DefaultMaxAge = time.Hour

// KeySetSource publishes the keys of a key set, such as a [jws.RotatingSigner].
type KeySetSource struct {
	// Keys are the keys that sign. It is required.
	Keys jws.KeySet
	// MaxAge is for how long the answer may be kept; 0 means DefaultMaxAge. It must not
	// be longer than the time for which a new key is published before it signs.
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
	return keys, cmp.Or(s.MaxAge, DefaultMaxAge), nil
}

// OIDCHandler serves the two documents at [OIDCConfigurationPath] and [OIDCKeySetPath] as
// kube-apiserver does, with the media types and the Cache-Control of it. Anything else is
// not found, and methods other than GET and HEAD are not allowed. It is public, as the
// documents are.
type OIDCHandler struct {
	config OIDCConfig
	source KeySource
}

// NewOIDCHandler checks the configuration and makes a handler. The error is
// [refusal.CheckConfig].
func NewOIDCHandler(source KeySource, config OIDCConfig) (*OIDCHandler, error) {
	if source == nil {
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

// ServeHTTP answers one request. Where the keys cannot be had, the answer is 503 and not
// to be kept; it does not say why.
func (h *OIDCHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != OIDCConfigurationPath && r.URL.Path != OIDCKeySetPath {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	documents, maxAge, err := h.documents(r.Context())
	if err != nil {
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
		return
	}
	body, mediaType := documents.Configuration, OIDCConfigurationType
	if r.URL.Path == OIDCKeySetPath {
		body, mediaType = documents.KeySet, OIDCKeySetType
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Cache-Control", "public, max-age="+strconv.Itoa(int(max(maxAge, 0)/time.Second)))
	_, _ = w.Write(body) // a client that has gone is nobody's concern
}
