package authenticator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
)

// role is on whose behalf there is an attempt: the daemon's, the plugin's, or an operator's.
type role struct {
	daemon, plugin bool
	beat           func() error // shows others that the daemon is alive
}

// showLife is beat. The error says that the folder is gone: where the disk is read-only, the
// plugin cannot write either.
func (as role) showLife() error {
	if as.beat == nil {
		return nil
	}
	if err := as.beat(); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("authenticator: the folder was removed: %w", err)
	}
	return nil
}

// How long a loop sleeps, at least and at most: the clock may be set, and another process may
// have renewed.
const (
	lookPause = 100 * time.Millisecond
	lastLook  = 15 * time.Second
)

// fatal is an error that ends a loop.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// loop does what next says, about every certificate or, for the plugin, the client certificate.
// enough is told each time what next says then, and how an attempt has ended if there was one.
// The loop ends when enough returns true, with ctx, or if the folder cannot be used.
func (v *view) loop(ctx context.Context, enough func(s step, failed error) bool) error {
	items := v.a.items
	if v.as.plugin {
		items = items[:1]
	}
	for {
		pause := lastLook
		for _, i := range items {
			if i != items[0] && v.next(items[0]).use == nil {
				break // the others are requested with the client certificate
			}
			s, err := v.take(ctx, i)
			if enough(s, err) {
				return nil
			}
			if end := (fatal{}); errors.As(err, &end) {
				return end.error
			}
			pause = min(pause, max(s.at.Sub(v.a.c.Now()), lookPause))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		v.refresh()
	}
}

// take runs the due step for one certificate and returns the step after it.
func (v *view) take(ctx context.Context, i *item) (step, error) {
	a, as := v.a, v.as
	if err := as.showLife(); err != nil {
		return step{}, fatal{err}
	}
	s := v.next(i)
	if s.do == ask {
		a.check(ctx, i, s.use)
		s = v.refresh().next(i)
	}
	if s.do != renew || as.plugin && s.use != nil && a.store.Held(daemonName) {
		return s, nil
	}
	if as.daemon {
		a.warnKubelet()
	}
	l, err := a.store.TryLock()
	switch {
	case errors.Is(err, certstore.ErrLocked):
		s.at = a.c.Now().Add(firstPause)
		return s, nil
	case err != nil:
		a.c.Log.Error("no lock on the folder", "why", err.Error())
		if as.plugin && s.use == nil || errors.Is(err, fs.ErrNotExist) {
			return s, fatal{err}
		}
		err = errors.Join(err, a.begin(nil, i), a.end(nil, i, "", err)) // in memory
		return v.refresh().next(i), err
	}
	if s = v.refresh().next(i); s.do != renew { // another process renewed it a moment ago
		return s, l.Unlock()
	}
	if as.daemon {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, attemptLimit)
		defer cancel()
	}
	p, err := a.attempt(ctx, l, i, as)
	if s = v.refresh().next(i); s.use == nil && p != nil {
		s.use, s.at = p, p.Renew // it could not be stored
	}
	return s, err
}
