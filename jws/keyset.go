package jws

import "context"

// KeySet finds the public keys that may have signed a token. Its methods are safe for
// concurrent use.
type KeySet interface {
	// Keys returns the keys whose ID is keyID, and all keys if keyID is empty, since a
	// token need not name its key. An unknown ID is no error: it has no keys. An error
	// means that the question could not be answered; it should be one in which
	// errors.Is finds [ErrRetry]. Callers do not change the slice.
	Keys(ctx context.Context, keyID string) ([]*Key, error)
}
