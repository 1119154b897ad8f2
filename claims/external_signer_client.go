package claims

import (
	"context"
	"encoding/base64"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nodeattest/nodeattest/jws"
)

// minRefetch is the least time between two fetches that an unknown key ID causes, so that
// tokens with invented key IDs do not become requests to the signer.
const minRefetch = time.Second

// afterFailure is how long old keys are served after a fetch that failed, before the next
// one (fallbackRefreshDuration in k8s.io/kubernetes).
const afterFailure = 10 * time.Second

// ExternalClient is the asking side of an external signer, as kube-apiserver is one: a
// [jws.Signer], the [jws.KeySet] of its keys, and a [KeySource]. Every answer is checked,
// and every signature verified before it is handed on. Keys are fetched when they are
// asked for and the refresh hint has passed, or the key ID is not known; while a fetch
// fails, the old ones are served. It is safe for concurrent use.
type ExternalClient struct {
	signer      ExternalSigner
	now         func() time.Time
	maxLifetime time.Duration
	fetching    chan struct{} // holds one element while keys are fetched
	keys        atomic.Pointer[fetchedKeys]
}

// fetchedKeys are the keys of one fetch. They never change.
type fetchedKeys struct {
	keys        []PublishedKey
	fetched     time.Time
	refreshFrom time.Time
	failed      error // why the last fetch brought no keys, nil if it did
}

// NewExternalClient asks the signer for its keys and its metadata, as kube-apiserver does
// at its start (which allows 60 seconds and 10 seconds), and checks both. now is the
// clock; nil for time.Now. The errors are [CheckConfig], [CheckSignerKeys],
// [CheckSignerMetadata] and [ErrRetry].
func NewExternalClient(ctx context.Context, signer ExternalSigner, now func() time.Time) (*ExternalClient, error) {
	if signer == nil {
		return nil, configError("no external signer", "one")
	}
	c := &ExternalClient{signer: signer, now: clock(now), fetching: make(chan struct{}, 1)}
	if _, err := c.fetch(ctx, nil); err != nil {
		return nil, err
	}
	metadata, err := signer.Metadata(ctx)
	if err != nil {
		return nil, &Error{Check: ErrRetry, Err: err}
	}
	if c.maxLifetime, err = metadata.Check(); err != nil {
		return nil, err
	}
	return c, nil
}

// MaxTokenLifetime is the longest lifetime that the signer signs, for [Policy.LimitTo].
func (c *ExternalClient) MaxTokenLifetime() time.Duration { return c.maxLifetime }

// Sign has the payload signed and checks the answer as [ExternalSignature.Check] does,
// with its errors. [ErrRetry] means that there was no answer; a signer in this process
// that refuses the payload does so with its own error, such as [CheckSignerClaims].
func (c *ExternalClient) Sign(ctx context.Context, payload []byte) (*jws.Signature, error) {
	claims := base64.RawURLEncoding.EncodeToString(payload)
	answer, err := c.signer.Sign(ctx, claims)
	if err != nil {
		return nil, unlessRefused(err)
	}
	if answer == nil {
		return nil, &Error{Check: CheckSignerHeader, Got: "no answer", Want: "a header and a signature"}
	}
	header, err := readExternalHeader(answer.Header)
	if err != nil {
		return nil, err
	}
	keys, err := c.published(ctx, header.keyID)
	if err != nil {
		return nil, err
	}
	return answer.Check(claims, keys.keys)
}

// Keys returns the keys with that ID, excluded ones among them, and all keys where keyID
// is "". [ErrRetry] means that the ID is not known and the keys could not be fetched.
func (c *ExternalClient) Keys(ctx context.Context, keyID string) ([]*jws.Key, error) {
	published, err := c.published(ctx, keyID)
	if err != nil {
		return nil, err
	}
	var keys []*jws.Key
	for _, k := range published.keys {
		if keyID == "" || k.Key.KeyID() == keyID {
			keys = append(keys, k.Key)
		}
	}
	return keys, nil
}

// unlessRefused makes ErrRetry of an error that is no refusal of a signer in this
// process.
func unlessRefused(err error) error {
	var ours *Error
	var signers *jws.Error
	refused := (errors.As(err, &ours) || errors.As(err, &signers)) &&
		!errors.Is(err, ErrRetry) && !errors.Is(err, jws.ErrRetry)
	if refused {
		return err
	}
	return &Error{Check: ErrRetry, Err: err}
}

// PublishedKeys returns all keys, and the time until they are to be fetched again.
func (c *ExternalClient) PublishedKeys(ctx context.Context) ([]PublishedKey, time.Duration, error) {
	published, err := c.published(ctx, "")
	if err != nil {
		return nil, 0, err
	}
	return published.keys, max(published.refreshFrom.Sub(c.now()), 0), nil
}

// published returns the keys, fetched again where they are due or lack the key ID.
func (c *ExternalClient) published(ctx context.Context, keyID string) (*fetchedKeys, error) {
	have := c.keys.Load()
	now, failed := c.now(), have.failed
	switch {
	case !have.has(keyID) && now.Sub(have.fetched) >= minRefetch:
		return c.fetch(ctx, have)
	case !now.Before(have.refreshFrom):
		fresh, err := c.fetch(ctx, have)
		if err == nil {
			return fresh, nil
		}
		failed = err
	}
	if failed != nil && !have.has(keyID) {
		return nil, &Error{Check: ErrRetry, Err: failed}
	}
	return have, nil
}

func (f *fetchedKeys) has(keyID string) bool {
	for _, k := range f.keys {
		if keyID == "" || k.Key.KeyID() == keyID {
			return true
		}
	}
	return false
}

// fetch replaces the keys that the caller has. Of several callers one asks the signer and
// the others take what it got.
func (c *ExternalClient) fetch(ctx context.Context, have *fetchedKeys) (*fetchedKeys, error) {
	select {
	case c.fetching <- struct{}{}:
		defer func() { <-c.fetching }()
	case <-ctx.Done():
		return nil, &Error{Check: ErrRetry, Err: ctx.Err()}
	}
	if other := c.keys.Load(); other != have {
		return other, nil
	}
	answer, err := c.signer.FetchKeys(ctx)
	now := c.now()
	if err != nil {
		c.postpone(have, now, err)
		return nil, &Error{Check: ErrRetry, Err: err}
	}
	keys, err := answer.Check()
	if err != nil {
		c.postpone(have, now, err)
		return nil, err
	}
	// Half a year is as good as any longer hint, and does not overflow.
	hint := time.Duration(min(answer.RefreshHintSeconds, 182*24*3600)) * time.Second
	fresh := &fetchedKeys{keys: keys, fetched: now, refreshFrom: now.Add(hint)}
	c.keys.Store(fresh)
	return fresh, nil
}

// postpone keeps the keys that are there for a while longer. Of a key that is not among
// them nobody can say for that long whether the signer has it.
func (c *ExternalClient) postpone(have *fetchedKeys, now time.Time, failed error) {
	if have == nil {
		return
	}
	late := *have
	late.fetched, late.failed = now, failed
	if !now.Before(have.refreshFrom) {
		late.refreshFrom = now.Add(afterFailure)
	}
	c.keys.Store(&late)
}
