package authenticator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
)

// daemonName is held by the process that renews on its own clock.
const daemonName = "daemon"

// lastLook is the longest that the daemon sleeps: the clock may be set, and another process
// may have renewed.
const lastLook = 15 * time.Second

// attemptLimit bounds one attempt of the daemon. A challenge may take its 5 minutes; after it,
// the certificate may take as long as an answer may still be filed.
const attemptLimit = 15 * time.Minute

// Run keeps the certificates until ctx ends, and then returns nil. Each is renewed by
// attestation when it is due, a little before the plugin would do so. Run fails if another
// daemon runs on the folder (certstore.ErrLocked). A kubelet that is configured to get
// certificates in a way that bypasses this one is logged: the plugin refuses it.
func (a *Authenticator) Run(ctx context.Context) error {
	if !a.made() {
		return errNotMade
	}
	_, release, err := a.store.Hold(daemonName)
	if err != nil {
		return fmt.Errorf("authenticator: another daemon at %s: %w", a.c.Dir, err)
	}
	defer func() { _ = release() }() // at the latest when the process ends
	a.warnKubelet()
	ready := false
	for {
		wait := lastLook
		for _, i := range a.items {
			if i.purpose != csr.PurposeClient && !a.load(ClientFile).Usable(a.c.Now()) {
				break // the others are requested with the client certificate
			}
			at := a.due(i)
			if now := a.c.Now(); !at.After(now) {
				a.warnKubelet()
				a.keep(ctx, i)
				at = a.due(i)
			}
			wait = min(wait, max(at.Sub(a.c.Now()), lookPause))
		}
		if !ready && a.ready() {
			ready = true
			if a.c.Ready != nil {
				a.c.Ready()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// due is when to get a certificate next.
func (a *Authenticator) due(i *item) time.Time {
	next := a.readState()[i.file].Next
	p := a.load(i.file)
	if !p.Usable(a.c.Now()) {
		return next
	}
	if at := p.Renew.Add(-daemonLead(p)); at.After(next) {
		return at
	}
	return next
}

// keep makes one attempt. Its outcome is in the log and the state.
func (a *Authenticator) keep(ctx context.Context, i *item) {
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	l, err := a.store.Lock(ctx)
	if err != nil {
		a.c.Log.Error("no lock on the folder", "why", err.Error())
		return
	}
	if a.due(i).After(a.c.Now()) { // the plugin renewed it while this waited for the lock
		_ = l.Unlock() // nothing was written
		return
	}
	_, _ = a.attempt(ctx, l, i) // attempt logs and records the error
}

// ready reports whether a kubelet can start: the recovery certificate can wait.
func (a *Authenticator) ready() bool {
	for _, i := range a.items {
		if i.purpose != csr.PurposeRecovery && !a.load(i.file).Usable(a.c.Now()) {
			return false
		}
	}
	return true
}

// Rotate renews the client certificate now, as well as the serving certificate if one is
// configured, whatever is stored and whatever has failed before. It waits for an attempt that
// is under way.
func (a *Authenticator) Rotate(ctx context.Context) error {
	if !a.made() {
		return errNotMade
	}
	a.warnKubelet()
	var failed []error
	for _, i := range a.items {
		if i.purpose == csr.PurposeRecovery {
			continue
		}
		l, err := a.store.Lock(ctx)
		if errors.Is(err, certstore.ErrLocked) {
			return fmt.Errorf("another attempt is under way: %w", err)
		}
		if err == nil {
			_, err = a.attempt(ctx, l, i)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("authenticator: %s certificate: %w", i.purpose, err))
		}
	}
	return errors.Join(failed...)
}
