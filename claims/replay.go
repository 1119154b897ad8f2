package claims

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/internal/wallclock"
	"github.com/nodeattest/nodeattest/refusal"
)

// The checks that a [ReplayCache] makes.
const (
	// checkReplay: a token with this ID was presented before.
	checkReplay Check = "token-replay"
	// checkReplayFull: the cache is full of live entries, so it cannot be known whether
	// the token was presented before. It comes with [refusal.ErrRetry].
	checkReplayFull Check = "replay-cache-full"
)

// ReplayCache remembers the IDs of tokens that were presented, so that a [Validator] accepts
// each token only once. A token is refused for the rest of its life.
//
// Of several calls with the same issuer and ID, concurrent or in sequence, in this process or
// in another that shares the store, exactly one returns nil until the entry's end has passed.
// An implementation that cannot say whether it has seen an ID before (because its store does
// not answer, or is full) returns an error that wraps [refusal.ErrRetry]. It must never make
// room by dropping an entry whose end has not passed.
type ReplayCache interface {
	// Use records that the token with this "iss" and "jti" was presented. It keeps the
	// entry through the whole second of until, the last in which the token can be valid.
	// With "token-replay" it refuses an ID that it already keeps, and also one whose until
	// has passed: it may have been kept and dropped. Neither string is empty.
	Use(ctx context.Context, issuer, id string, until time.Time) error
}

// defaultMaxReplayEntries is the default maximum number of entries in a
// [MemoryReplayCache].
const defaultMaxReplayEntries = 1_000_000

// replayKey is the first half of a SHA-256 digest. An issuer would have to sign 2^64 tokens
// before two of them collide.
type replayKey [16]byte

// MemoryReplayCache is a [ReplayCache] in the memory of one process. It forgets
// everything when the process ends, and knows nothing about other replicas: if there are
// several, or if a restart must not open a window, use a shared store instead.
//
// It holds at most the configured number of entries, of at most 64 bytes each (24 bytes plus
// the slack of Go's maps; the length of a token's ID makes no difference). If they are all live
// it refuses new ones with "replay-cache-full" and [refusal.ErrRetry]: it never drops a live
// entry. It is safe for concurrent use.
//
// A clock that is set forward and back again opens no window: if a token ends no later than
// an entry that was dropped, it may have been presented before, so it is refused.
type MemoryReplayCache struct {
	most int
	now  func() time.Time

	mu      sync.Mutex
	entries map[replayKey]int64 // the Unix second through which the entry lives
	dropped int64               // the latest such second of an entry that was dropped
	swept   int64               // the Unix second of the last sweep
}

// MemoryReplayOptions are the choices for [NewMemoryReplayCache]. Each zero field is a
// sensible default.
type MemoryReplayOptions struct {
	// MaxEntries is the maximum number of entries held at one time; 0 means
	// 1,000,000. It must not be negative. Allow for the number of tokens
	// presented within one token's life.
	MaxEntries int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// NewMemoryReplayCache returns an empty cache. The error for a negative MaxEntries is
// [refusal.CheckConfig].
func NewMemoryReplayCache(opts MemoryReplayOptions) (*MemoryReplayCache, error) {
	if opts.MaxEntries < 0 {
		return nil, refusal.Config("MaxEntries", strconv.Itoa(opts.MaxEntries), "a positive number, or 0 for the default")
	}
	return &MemoryReplayCache{
		most: cmp.Or(opts.MaxEntries, defaultMaxReplayEntries), now: wallclock.Or(opts.Now),
		entries: make(map[replayKey]int64), dropped: math.MinInt64, swept: math.MinInt64,
	}, nil
}

// Use implements [ReplayCache]. An empty issuer or ID is refused with "token-replay", since
// it could not be told apart from another; so is an end that has passed. A context that is
// done gives [refusal.ErrRetry].
func (c *MemoryReplayCache) Use(ctx context.Context, issuer, id string, until time.Time) error {
	if c == nil || c.now == nil {
		return refusal.Config("MemoryReplayCache", "that NewMemoryReplayCache did not make", "one that it made")
	}
	if err := ctx.Err(); err != nil {
		return &Error{Check: refusal.ErrRetry, Err: err}
	}
	if issuer == "" || id == "" {
		return &Error{Check: checkReplay, Got: "a token without issuer or ID", Want: "both"}
	}
	now := c.now().Unix()
	if until.Unix() < now {
		return &Error{Check: checkReplay, Got: "ID " + refusal.Text(id) + ", whose end has passed", Want: "a token that is still good"}
	}
	key := makeReplayKey(issuer, id)
	c.mu.Lock()
	defer c.mu.Unlock()
	last, found := c.entries[key]
	if !found && len(c.entries) >= c.most {
		c.sweep(now)
	}
	switch {
	case found && last >= now, !found && until.Unix() <= c.dropped:
		return &Error{Check: checkReplay, Got: "ID " + refusal.Text(id) + ", presented before or dropped since", Want: "a token that was not presented before"}
	case !found && len(c.entries) >= c.most:
		return &Error{Check: checkReplayFull, Got: strconv.Itoa(c.most) + " live entries", Want: "room for one more", Err: refusal.ErrRetry}
	}
	c.entries[key] = until.Unix()
	return nil
}

// sweep drops the entries whose end has passed. Ends are whole seconds, so another sweep
// within the same second would find nothing.
func (c *MemoryReplayCache) sweep(now int64) {
	if c.swept == now {
		return
	}
	c.swept = now
	for key, last := range c.entries {
		if last < now {
			c.dropped = max(c.dropped, last)
			delete(c.entries, key)
		}
	}
}

// makeReplayKey digests both strings, prefixed with the length of the first so that they
// cannot be confused.
func makeReplayKey(issuer, id string) replayKey {
	var buf [512]byte // the strings of a typical token fit: no allocation
	b := binary.BigEndian.AppendUint64(buf[:0], uint64(len(issuer)))
	b = append(b, issuer...)
	b = append(b, id...)
	sum := sha256.Sum256(b)
	return replayKey(sum[:16])
}
