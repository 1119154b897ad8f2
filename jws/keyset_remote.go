package jws

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/internal/wallclock"
	"github.com/nodeattest/nodeattest/refusal"
)

// The defaults of [RemoteConfig].
const (
	// defaultMaxAge is the longest time for which a fetched key set is fresh. It is the max-age
	// that kube-apiserver gives its key set (pkg/serviceaccount/jwt.go, GetCacheAgeMaxSeconds).
	defaultMaxAge = time.Hour
	// defaultMaxStale is how long keys are served beyond that while fetches fail.
	defaultMaxStale = 24 * time.Hour
)

// The limits of a [RemoteKeySet].
const (
	// minRefetch is the shortest time between the beginnings of two fetches.
	minRefetch = 10 * time.Second
	// negativeTTL is how long a key ID that the issuer did not have stays unknown.
	negativeTTL = time.Minute
	// fetchTimeout is the time that one fetch may take, with all its requests.
	fetchTimeout = 10 * time.Second
	// maxFetchedSize is the maximum length in bytes of a key set.
	maxFetchedSize = 64 << 10
	// maxHeadersSize is the maximum length in bytes of a response's headers.
	maxHeadersSize = 64 << 10
	// maxFetchedKeys is the maximum number of usable keys in a fetched key set.
	maxFetchedKeys = 100
	// maxWaiting is the maximum number of calls that wait for a fetch at a time, each for no
	// longer than fetchTimeout: an issuer that hangs holds up no more, however many key IDs are
	// invented.
	maxWaiting = 1024
)

// maxUnknown is how many key IDs are remembered as unknown. If there are more, all are
// forgotten: that costs at most one fetch, because the interval between fetches holds whatever
// key IDs are asked for.
const maxUnknown = 1024

// RemoteConfig says where a [RemoteKeySet] gets its keys and how long they are good. One of
// Issuer, JWKSURL and Fetch is required, and Client with the first two. Zero durations have
// the default named; negative ones are refused.
type RemoteConfig struct {
	// Client makes the requests: it determines which roots are trusted, which proxy is used and
	// how the requests are authenticated, if they are. A cluster's own issuer needs both: in a
	// pod, the CA bundle ca.crt and the bearer token next to it; see the example "InCluster". A
	// transport that adds a token also adds it to redirected requests, which go only to the
	// configured hosts. The Client must end a request when the request's context ends. It is
	// copied; its CheckRedirect, if it has one, is called after the checks of this package. An
	// *http.Transport, or none, that bounds no headers of a response (MaxResponseHeaderBytes) is
	// copied too, and the copy bounds them to 64 KiB: a change of the original after this does nothing.
	// Any other transport must bound them itself.
	Client *http.Client
	// Issuer is the issuer's https URL, without query or fragment, byte for byte as in its
	// tokens. The key set's URL is the jwks_uri of the document at Issuer +
	// "/.well-known/openid-configuration", which must name the same issuer (OpenID Connect
	// Discovery 1.0, sections 4.1 and 4.3). The document is fetched again with each fetch of the
	// key set.
	Issuer string
	// JWKSURL is the https URL of the key set (RFC 7517, section 5), for issuers
	// without that document.
	JWKSURL string
	// Hosts are additional hosts, each "name" or "name:port" without wildcards, to which a
	// jwks_uri or a redirect may lead. The host of Issuer or JWKSURL, with its port, is always
	// allowed, and no other is: the issuer's server must not choose which of the hosts
	// that this process can reach it asks. The Client resolves the names.
	Hosts []string
	// Fetch gets the keys if they do not come over HTTPS, such as from a signer at a socket,
	// and says how long they may be kept. It must return when ctx ends. A panic is a failed fetch.
	// Client must then be nil.
	Fetch func(ctx context.Context) (keys []*Key, maxAge time.Duration, err error)
	// MaxAge is the longest time for which a fetched key set is fresh: no fetch is needed to
	// answer for the keys in it, so a key that the issuer has withdrawn may serve that long. The
	// response's max-age can make it shorter, but not shorter than 10 seconds. At least 10
	// seconds. Zero: an hour.
	MaxAge time.Duration
	// MaxStale is how long beyond that the keys are served while fetches fail. No key is served
	// later than MaxAge + MaxStale after it was fetched. Zero: 24 hours.
	MaxStale time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// RemoteKeySet is a [KeySet] that is fetched over HTTPS and kept. It is safe for
// concurrent use.
//
// Keys are fetched when a caller asks: nothing runs in between. However many callers ask
// at once, one fetch is made for all of them, in a goroutine that ends after 10 seconds at the
// latest, and no more than one in 10 seconds. A caller that is waiting may leave by ending
// its context; the fetch continues for the others. At most 1,024 calls wait at a time: further
// ones fail at once with "busy" and [refusal.ErrRetry]; those for held keys do not wait. A set has
// at most 64 KiB and 100 usable keys.
//
// A held key is returned at once while the set is fresh. A stale set is fetched again;
// meanwhile, and while that fails, the held keys are returned at once until MaxStale has
// passed: a slow or dead server delays no verification. (Only if no caller has asked since the
// set went stale, for 20 seconds, do the first callers wait for the outcome, so that
// a set that was forgotten for a day is not believed without a try.) Tokens whose header names
// no key get all held keys and cause no fetch of a fresh set. A response without a single usable
// key is a failed fetch: an issuer that signs has a key.
//
// For a key ID that is not held, a fetch is made if the interval and the memory of unknown IDs
// allow it. If it fails, and as long as the last fetch is one that failed, errors.Is finds
// [refusal.ErrRetry] in the error: it is not known whether the key exists. Otherwise the answer
// is that the issuer has no such key, which may be a minute old: an issuer publishes a key
// before it signs with it. If an issuer gives the ID of one key to another, that is noticed
// when the set is stale; a signature that does not verify causes no fetch.
//
// [NewRemoteKeySet] makes one, which holds nothing but memory once its last fetch has ended. Every
// call on the zero value fails with [refusal.CheckConfig].
type RemoteKeySet struct {
	config  RemoteConfig
	hosts   hosts
	waiting chan struct{} // holds one element for each call that waits

	mu      sync.Mutex
	held    *StaticKeySet        // nil before the first success
	flight  *flight              // the fetch under way, or nil
	unknown map[string]time.Time // key IDs that the issuer did not have, and until when that is believed
	status  RemoteStatus
	ended   time.Time // when the last fetch ended; zero: none has
}

// A flight is one fetch.
type flight struct {
	done chan struct{} // closed when err is set
	err  error
}

// RemoteStatus says how fresh a [RemoteKeySet] is, for metrics and readiness checks.
type RemoteStatus struct {
	// Keys is how many keys are held.
	Keys int
	// Unfit says why other keys of the same set are left out, of the first 8; see [ParseJWKS].
	// It is nil if no key was left out, or if Fetch brought the keys.
	Unfit error
	// Fetched is when the fetch that brought them began; zero if none ever did.
	Fetched time.Time
	// FreshUntil is when they stop being returned without another fetch, and ServedUntil when
	// they stop being served at all if every fetch fails.
	FreshUntil, ServedUntil time.Time
	// Started is when the last fetch began; zero if none did.
	Started time.Time
	// Err is why the last completed fetch failed; nil if it did not.
	Err error
	// Failures is how many fetches have failed since the last success.
	Failures int
}

// NewRemoteKeySet returns a key set that holds no key yet. It makes no request. The error is
// [refusal.CheckConfig] and names the wrong field of the configuration.
func NewRemoteKeySet(config RemoteConfig) (*RemoteKeySet, error) {
	switch {
	case (config.Client == nil) == (config.Fetch == nil):
		return nil, refusal.Config("Client", "and Fetch, or neither", "one of them")
	case config.Fetch == nil && (config.Issuer == "") == (config.JWKSURL == "") || config.Fetch != nil && config.Issuer+config.JWKSURL != "":
		return nil, refusal.Config("Issuer", "with JWKSURL or Fetch, or none of the three", "one of them")
	case strings.Contains(config.Issuer, "?"):
		return nil, refusal.Config("Issuer", "with a query", "none")
	case config.MaxAge != 0 && config.MaxAge < minRefetch:
		return nil, refusal.Config("MaxAge", config.MaxAge.String(), "0, or "+minRefetch.String()+" or more")
	case config.MaxStale < 0:
		return nil, refusal.Config("MaxStale", config.MaxStale.String(), "0 or more")
	}
	config.MaxAge = cmp.Or(config.MaxAge, defaultMaxAge)
	config.MaxStale = cmp.Or(config.MaxStale, defaultMaxStale)
	config.Now = wallclock.Or(config.Now)
	allowed, err := allowedHosts(&config)
	if err != nil {
		return nil, err
	}
	if config.Client != nil {
		config.Client = allowed.restrict(config.Client)
	}
	return &RemoteKeySet{config: config, hosts: allowed, unknown: make(map[string]time.Time), waiting: make(chan struct{}, maxWaiting)}, nil
}

// made refuses a set that NewRemoteKeySet did not make.
func (s *RemoteKeySet) made() error {
	if s == nil || s.waiting == nil {
		return refusal.Config("key set", "", "one that NewRemoteKeySet made")
	}
	return nil
}

// Issuer returns the Issuer of the configuration: the keys are meant for its tokens, and no
// others. It is "" if the keys come from elsewhere. The validators of package claims compare it
// with the issuer that they accept.
func (s *RemoteKeySet) Issuer() string { return s.config.Issuer }

// Status reports the set's age and how its last fetch ended. It makes no request.
func (s *RemoteKeySet) Status() RemoteStatus {
	if err := s.made(); err != nil {
		return RemoteStatus{Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}
