package extsigner

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nodeattest/nodeattest/internal/typednil"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	// defaultMaxKeyStaleness is how long a [Client] serves keys beyond their refresh hint
	// while they cannot be fetched.
	defaultMaxKeyStaleness = time.Hour
	// maxRefreshHint is the longest time for which fetched keys are fresh; a longer
	// refresh hint counts as this.
	maxRefreshHint = 24 * time.Hour
	// minRefetch is the minimum time between two fetches, so that tokens with invented
	// key IDs do not each cause a request to the signer.
	minRefetch = time.Second
)

// ClientOptions are the choices for [NewClient]. Each zero field is a sensible default.
type ClientOptions struct {
	// MaxStale is how long keys are served beyond their refresh hint while they cannot
	// be fetched; 0 means an hour. No key is served later than
	// 24 hours plus MaxStale after it was fetched. It must not be negative.
	MaxStale time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Client is the client side of an external signer, the role of kube-apiserver: a
// [jws.Signer], the [jws.KeySet] of its keys, and an apiserver.KeySource. Every answer is
// checked, and every signature is verified before it is passed on. It is safe for
// concurrent use.
//
// The keys are kept as in a [jws.RemoteKeySet]: they are fetched when they are requested and
// the refresh hint has passed or the key ID is unknown, at most once a second. A fetch
// belongs to the client, not to its caller: it continues when the caller leaves, and ends
// after 10 seconds or with Close. A request for a key that is held never
// waits for a fetch: held keys are served until MaxStale has passed.
type Client struct {
	signer      Signer
	now         func() time.Time
	maxLifetime time.Duration
	keys        *jws.RemoteKeySet
	published   atomic.Pointer[[]PublishedKey] // of the last good fetch, never older than keys
}

// NewClient asks the signer for its keys and its metadata, as kube-apiserver does when it
// starts, and checks both. Close the client when it is no longer used. The errors are
// [refusal.CheckConfig], "signer-keys", "signer-metadata" and [refusal.ErrRetry].
func NewClient(ctx context.Context, signer Signer, opts ClientOptions) (*Client, error) {
	if ctx == nil || typednil.Is(signer) {
		return nil, refusal.Config("signer or context", "", "an external signer")
	}
	c := &Client{signer: signer, now: opts.Now}
	if c.now == nil {
		c.now = time.Now
	}
	var err error
	c.keys, err = jws.NewRemoteKeySet(jws.RemoteConfig{
		Fetch: c.fetch, MinRefetch: minRefetch, NegativeTTL: minRefetch,
		MaxAge: maxRefreshHint, MaxStale: cmp.Or(opts.MaxStale, defaultMaxKeyStaleness), HeldAtOnce: true, MaxKeys: maxKeys, Now: c.now,
	})
	if err != nil {
		return nil, &Error{Check: refusal.CheckConfig, Err: err}
	}
	if err := c.start(ctx); err != nil {
		_ = c.Close() // always nil
		return nil, err
	}
	return c, nil
}

// start fetches keys and metadata.
func (c *Client) start(ctx context.Context) error {
	if _, err := c.Keys(ctx, ""); err != nil {
		if own, ok := errors.AsType[*Error](c.keys.Status().Err); ok && own.Check == checkSignerKeys {
			return own
		}
		return err
	}
	metadata, err := c.signer.Metadata(ctx)
	if err != nil {
		return &Error{Check: refusal.ErrRetry, Err: err}
	}
	c.maxLifetime, err = metadata.Check()
	return err
}

// Close ends the fetch under way, if there is one, and waits for it. Afterwards the keys are
// no longer available ([jws.ErrClosed]). The error is always nil.
func (c *Client) Close() error {
	if !c.ready() {
		return nil
	}
	return c.keys.Close()
}

// ready reports whether NewClient made the client.
func (c *Client) ready() bool { return c != nil && c.keys != nil }

func clientConfigError() error {
	return refusal.Config("Client", "that NewClient did not make", "one that it made")
}

// fetch is the fetch of c.keys.
func (c *Client) fetch(ctx context.Context) ([]*jws.Key, time.Duration, error) {
	answer, err := c.signer.FetchKeys(ctx)
	if err != nil {
		return nil, 0, err
	}
	published, err := answer.Check()
	if err != nil {
		return nil, 0, err
	}
	keys := make([]*jws.Key, len(published))
	for i, k := range published {
		keys[i] = k.Key
	}
	c.published.Store(&published)
	hint := min(answer.RefreshHintSeconds, int64(maxRefreshHint/time.Second))
	return keys, time.Duration(hint) * time.Second, nil
}

// MaxTokenLifetime is the longest lifetime that the signer signs, for
// apiserver.Policy.LimitTo.
func (c *Client) MaxTokenLifetime() time.Duration { return c.maxLifetime }

// Sign has the payload signed and checks the answer as [Signature.Check] does, with the same
// errors. [refusal.ErrRetry] means that there was no answer; a signer in this process that
// refuses the payload does so with its own error, such as "signer-claims".
func (c *Client) Sign(ctx context.Context, payload []byte) (*jws.Signature, error) {
	if !c.ready() {
		return nil, clientConfigError()
	}
	segment := base64.RawURLEncoding.EncodeToString(payload)
	answer, err := c.signer.Sign(ctx, segment)
	if err != nil {
		return nil, unlessRefused(err)
	}
	if answer == nil {
		return nil, &Error{Check: checkSignerHeader, Got: "no answer", Want: "a header and a signature"}
	}
	header, err := readHeader(answer.Header)
	if err != nil {
		return nil, err
	}
	if _, err := c.Keys(ctx, header.keyID); err != nil {
		return nil, err
	}
	return answer.Check(segment, *c.published.Load())
}

// Keys returns the keys with that ID, including excluded ones, or all keys if keyID is "". The
// caller must not change the slice. [refusal.ErrRetry] means that the ID is unknown, or the
// keys are too old, and they could not be fetched.
func (c *Client) Keys(ctx context.Context, keyID string) ([]*jws.Key, error) {
	if !c.ready() {
		return nil, clientConfigError()
	}
	return c.keys.Keys(ctx, keyID)
}

// unlessRefused turns an error into refusal.ErrRetry unless it is a refusal by a signer in this
// process.
func unlessRefused(err error) error {
	if _, refused := errors.AsType[*Error](err); refused && !errors.Is(err, refusal.ErrRetry) {
		return err
	}
	return &Error{Check: refusal.ErrRetry, Err: err}
}

// DiscoveryKeys returns the keys that are not excluded from discovery, and the time after
// which they should be fetched again.
func (c *Client) DiscoveryKeys(ctx context.Context) ([]*jws.Key, time.Duration, error) {
	if _, err := c.Keys(ctx, ""); err != nil {
		return nil, 0, err
	}
	var keys []*jws.Key
	for _, k := range *c.published.Load() {
		if !k.ExcludeFromOIDCDiscovery {
			keys = append(keys, k.Key)
		}
	}
	return keys, max(c.keys.Status().FreshUntil.Sub(c.now()), 0), nil
}
