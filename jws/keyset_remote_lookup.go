package jws

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

// Keys returns the keys with that ID, none if the issuer has none, and all if keyID is empty;
// the caller must not change the slice. See [RemoteKeySet] for when it fetches and when it
// waits. An error in which errors.Is finds [refusal.ErrRetry] means that nothing could be
// decided: a fetch failed (errors.As and Status tell more), ctx ended (its error is included),
// or "busy". The other is [refusal.CheckConfig].
func (s *RemoteKeySet) Keys(ctx context.Context, keyID string) ([]*Key, error) {
	if err := s.made(); err != nil {
		return nil, err
	}
	keys, wait, err := s.ask(keyID)
	if wait == nil {
		return keys, err
	}
	select {
	case s.waiting <- struct{}{}:
		defer func() { <-s.waiting }()
	default:
		return nil, &Error{Check: refusal.ErrRetry, Err: &Error{Check: checkBusy,
			Got: "one more call", Want: "at most " + strconv.Itoa(maxWaiting) + " that wait for keys"}}
	}
	select {
	case <-wait.done:
		return s.settle(keyID, wait)
	case <-ctx.Done():
		return nil, &Error{Check: refusal.ErrRetry, Err: ctx.Err()}
	}
}

// ask answers with the held keys, or returns the fetch to wait for. It starts a fetch if one is
// due.
func (s *RemoteKeySet) ask(keyID string) ([]*Key, *flight, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(keyID) > MaxKeyIDSize {
		return nil, nil, nil // no key has such an ID
	}
	now := s.config.Now()
	keys := s.lookup(keyID, now)
	known := len(keys) > 0
	// A clock that was set back to before the fetch makes the keys stale: their age is then unknown.
	fresh := !passed(now, s.status.FreshUntil) && !now.Before(s.status.Fetched)
	if fresh && (known || now.Before(s.unknown[keyID])) { // the issuer did not have it a short time ago
		return keys, nil, nil
	}
	wait := s.fetchIfDue(now)
	switch {
	case known && (wait == nil || s.tried(now)):
		return keys, nil, nil
	case wait != nil:
		return nil, wait, nil
	case s.status.Err != nil:
		return nil, nil, &Error{Check: refusal.ErrRetry, Err: s.status.Err}
	}
	return nil, nil, nil // asked for less than minRefetch ago
}

// settle answers after a fetch.
func (s *RemoteKeySet) settle(keyID string, f *flight) ([]*Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.config.Now()
	keys := s.lookup(keyID, now)
	switch {
	case len(keys) > 0:
		return keys, nil
	case f.err != nil:
		return nil, &Error{Check: refusal.ErrRetry, Err: f.err}
	}
	if len(s.unknown) >= maxUnknown {
		clear(s.unknown)
	}
	s.unknown[strings.Clone(keyID)] = now.Add(negativeTTL)
	return nil, nil
}

// lookup returns the held keys with that ID if they may still be served.
func (s *RemoteKeySet) lookup(keyID string, now time.Time) []*Key {
	if passed(now, s.status.ServedUntil) {
		return nil
	}
	keys, _ := s.held.Keys(context.Background(), keyID) // whose error is always nil
	return keys
}

// passed reports whether a time has passed by the wall clock or by the monotonic one, which
// stands still while a machine sleeps.
func passed(now, t time.Time) bool {
	return !now.Before(t) || !now.Round(0).Before(t.Round(0))
}

// tried reports whether a stale set is in use: since it went stale, or since the last fetch
// ended, no more time has passed than the next fetch may take to begin and end.
func (s *RemoteKeySet) tried(now time.Time) bool {
	since := s.status.FreshUntil
	if s.ended.After(since) {
		since = s.ended
	}
	return !passed(now, since.Add(minRefetch+fetchTimeout))
}

// fetchIfDue returns the fetch under way, or starts one if the interval has passed; otherwise
// it returns nil. A clock that was set back does not stop fetches.
func (s *RemoteKeySet) fetchIfDue(now time.Time) *flight {
	if s.flight != nil {
		return s.flight
	}
	last := s.status.Started
	if !last.IsZero() && !now.Before(last) && !passed(now, last.Add(minRefetch)) {
		return nil
	}
	s.status.Started = now
	f := &flight{done: make(chan struct{})}
	s.flight = f
	recovered.Go(func() error { return s.fetch(f, now) })
	return f
}

// fetch is the goroutine of one fetch, which began at the given time.
func (s *RemoteKeySet) fetch(f *flight, began time.Time) error {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	var set *StaticKeySet
	var unfit error
	var age time.Duration
	err := <-recovered.Go(func() (err error) {
		var keys []*Key
		if s.config.Fetch != nil {
			keys, age, err = s.config.Fetch(ctx)
		} else {
			keys, unfit, age, err = s.download(ctx)
		}
		switch {
		case err != nil:
			return err
		case len(keys) > maxFetchedKeys:
			return &Error{Check: checkKeySet, Got: strconv.Itoa(len(keys)) + " keys", Want: "at most " + strconv.Itoa(maxFetchedKeys)}
		}
		set, err = NewStaticKeySet(keys...)
		return err
	})

	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(f.done)
	s.flight = nil
	f.err, s.status.Err = err, err
	s.ended = s.config.Now()
	if err != nil {
		s.status.Failures++
	} else {
		s.held = set
		s.status.Failures = 0
		s.status.Keys, s.status.Unfit = len(set.all), unfit
		s.status.Fetched = began
		s.status.FreshUntil = began.Add(min(max(age, minRefetch), s.config.MaxAge))
		s.status.ServedUntil = s.status.FreshUntil.Add(s.config.MaxStale)
	}
	return err
}
