package authenticator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/nodeattest/nodeattest/csr"
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
func (a *Authenticator) loop(ctx context.Context, as role, enough func(s step, failed error) bool) error {
	items := a.items
	if as.plugin {
		items = items[:1]
	}
	for {
		pause := lastLook
		for _, i := range items {
			if i != items[0] && a.next(items[0], as).use == nil {
				break // the others are requested with the client certificate
			}
			s, err := a.take(ctx, i, as)
			if enough(s, err) {
				return nil
			}
			if end := (fatal{}); errors.As(err, &end) {
				return end.error
			}
			pause = min(pause, max(s.at.Sub(a.c.Now()), lookPause))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// take does what next says about one certificate, and returns what it says then.
func (a *Authenticator) take(ctx context.Context, i *item, as role) (step, error) {
	if err := as.showLife(); err != nil {
		return step{}, fatal{err}
	}
	s := a.next(i, as)
	if s.do == ask {
		a.check(ctx, i, s.use)
		s = a.next(i, as)
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
		if as.plugin || errors.Is(err, fs.ErrNotExist) {
			return s, fatal{err}
		}
		return a.next(i, as), errors.Join(err, a.begin(nil, i), a.end(nil, i, "", err))
	}
	if s = a.next(i, as); s.do != renew { // another process renewed it a moment ago
		return s, l.Unlock()
	}
	if as.daemon {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, attemptLimit)
		defer cancel()
	}
	p, err := a.attempt(ctx, l, i, as)
	if s = a.next(i, as); s.use == nil && p != nil {
		s.use, s.at = p, p.Renew // it could not be stored
	}
	return s, err
}

// next is what next says about a certificate now.
func (a *Authenticator) next(i *item, as role) step {
	return next(a.readState()[i.file], a.certificates(i, as), a.c.Now())
}

// certificates are what there is for one purpose.
func (a *Authenticator) certificates(i *item, as role) certificates {
	c := certificates{have: a.load(i, i.file), previous: a.load(i, i.previous), asked: i.asked(), password: a.password(), askable: i.purpose == csr.PurposeClient}
	if as.daemon { // so that the plugin, which keeps the kubelet waiting, has nothing to do
		c.lead = time.Minute
	}
	return c
}

// password identifies the password that the evidence would use now: it is another one once its
// file has changed, or in another process if it comes from no file.
func (a *Authenticator) password() string {
	if k, ok := a.c.Kind.(interface{ password() string }); ok {
		if id := k.password(); id != "" {
			return id
		}
	}
	return a.id
}
