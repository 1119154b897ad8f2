package claims

import (
	"context"
	"time"
)

// The reasons for which a [ReplayCache] refuses.
const (
	// CheckReplay: a token with this ID was presented before.
	CheckReplay Check = "token-replay"
	// CheckReplayFull: the cache holds as many live entries as it may, so that nobody can
	// say whether the token was presented before. It comes with [ErrRetry].
	CheckReplayFull Check = "replay-cache-full"
)

// ReplayCache remembers the IDs of tokens that were presented, so that a
// [StrictValidator] takes each token once. The window in which a token is refused is all
// that is left of its life.
//
// Of several calls with one issuer and ID, at the same time or one after the other, in
// this process or in another that shares the store, exactly one returns nil until the
// entry's end has passed. An implementation that cannot say whether it saw an ID before
// (its store does not answer, or is full) returns an error that errors.Is finds
// [ErrRetry] in, and it must never make room by dropping an entry whose end has not
// passed.
type ReplayCache interface {
	// Use records that the token with this "iss" and "jti" was presented. It keeps the
	// entry through the whole second of until, the last at which the token can be valid.
	// It refuses an ID that it keeps already with CheckReplay, and so one whose until has
	// passed: it may have kept and dropped it. Neither string is empty.
	Use(ctx context.Context, issuer, id string, until time.Time) error
}
