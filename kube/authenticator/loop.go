package authenticator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
)

// caller says who renews: the daemon, the plugin or, with neither, an operator ([Authenticator.Rotate]).
type caller struct {
	daemon, plugin bool
	beat           func() error // shows other processes that the daemon is alive
}

// showLife calls beat. It fails only if the folder was removed: on a read-only disk the plugin cannot
// write either, so the daemon goes on.
func (c caller) showLife() error {
	if c.beat == nil {
		return nil
	}
	if err := c.beat(); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("authenticator: the folder was removed: %w", err)
	}
	return nil
}

// How long a loop sleeps, at least and at most: the clock may be set, and another process may
// have renewed.
const (
	minSleep = 100 * time.Millisecond
	maxSleep = 15 * time.Second
)

// fatal is an error that ends a loop.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// loop runs the due steps of every certificate or, for the plugin, of the client certificate. It
// passes enough each certificate's next step, and the error of an attempt if there was one. The loop
// ends when enough returns true, with ctx, or if the folder cannot be used.
func (v *snapshot) loop(ctx context.Context, enough func(s step, failed error) bool) error {
	defer v.unfollow()
	slots := v.a.slots
	if v.by.plugin {
		slots = slots[:1]
	}
	for {
		pause := maxSleep
		for _, s := range slots {
			if s != slots[0] && v.next(slots[0]).use == nil {
				break // the others are requested with the client certificate
			}
			after, err := v.runStep(ctx, s)
			if s == slots[0] && v.by.daemon {
				v.follow(ctx, err)
			}
			if enough(after, err) {
				return nil
			}
			if end := (fatal{}); errors.As(err, &end) {
				return end.error
			}
			pause = min(pause, max(after.at.Sub(v.a.config.Now()), minSleep))
		}
		if err := v.sleep(ctx, pause); err != nil {
			return err
		}
		v.refresh()
	}
}

// runStep runs the due step for one certificate and returns the step after it.
func (v *snapshot) runStep(ctx context.Context, s *slot) (step, error) {
	a := v.a
	if err := v.by.showLife(); err != nil {
		return step{}, fatal{err}
	}
	due := v.next(s)
	if due.do == ask {
		a.checkAccepted(ctx, s, due.use)
		due = v.refresh().next(s)
	}
	if due.do != renew || v.by.plugin && due.use != nil && a.store.Held(daemonName) {
		return due, nil
	}
	if v.by.daemon {
		a.warnKubelet()
	}
	l, err := a.store.TryLock()
	switch {
	case errors.Is(err, certstore.ErrLocked):
		due.at = a.config.Now().Add(firstPause)
		return due, nil
	case err != nil:
		a.config.Log.Error("cannot lock the folder of the certificates; none is requested", "folder", a.store.Path(""), "why", err.Error())
		if v.by.plugin && due.use == nil || errors.Is(err, fs.ErrNotExist) {
			return due, fatal{err}
		}
		err = errors.Join(err, a.begin(nil, s), a.end(nil, s, "", err)) // in memory
		return v.refresh().next(s), err
	}
	if due = v.refresh().next(s); due.do != renew { // another process renewed it a moment ago
		return due, l.Unlock()
	}
	if v.by.daemon {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, renewalLimit)
		defer cancel()
	}
	p, err := a.renew(ctx, l, s, v.by)
	if due = v.refresh().next(s); due.use == nil && p != nil {
		due.use, due.at = p, p.Renew // it could not be stored
	}
	return due, err
}
