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

// daemonName is held by the process that renews on its own clock.
const daemonName = "daemon"

// attemptLimit bounds one attempt of the daemon. A challenge may take its 5 minutes; after it,
// the certificate may take as long as an answer may still be filed.
const attemptLimit = 15 * time.Minute

// Run keeps the certificates until ctx ends, and then returns nil. Each is renewed by
// attestation when it is due, a little before the plugin would do so. Run fails if another
// daemon runs on the folder (certstore.ErrLocked), or if the folder is removed
// (io/fs.ErrNotExist). A kubelet that is configured to get certificates in a way that bypasses
// this one is logged: the plugin refuses it.
func (a *Authenticator) Run(ctx context.Context) error {
	if !a.made() {
		return errNotMade
	}
	beat, release, err := a.store.Hold(daemonName)
	switch {
	case errors.Is(err, certstore.ErrLocked), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("authenticator: no other daemon may run at %s: %w", a.c.Dir, err)
	case err != nil:
		a.c.Log.Warn("the daemon cannot show that it runs, and the plugin renews too", "folder", a.c.Dir, "why", err.Error())
	}
	if release != nil {
		defer func() { _ = release() }() // at the latest when the process ends
	}
	a.warnKubelet()
	ready := false
	v := a.view(role{daemon: true, beat: beat})
	err = v.loop(ctx, func(step, error) bool {
		if !ready && v.ready() {
			if ready = true; a.c.Ready != nil {
				a.c.Ready()
			}
		}
		return false
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// ready reports whether a kubelet can start: the recovery certificate can wait.
func (v *view) ready() bool {
	for _, i := range v.a.items {
		if i.Purpose != csr.PurposeRecovery && v.next(i).use == nil {
			return false
		}
	}
	return true
}

// Rotate renews the client certificate now, as well as the serving certificate if one is
// configured, whatever is stored and whatever has failed before, even if the new one ends before
// the one in hand. It waits for an attempt that is under way.
func (a *Authenticator) Rotate(ctx context.Context) error {
	if !a.made() {
		return errNotMade
	}
	a.warnKubelet()
	var failed []error
	for _, i := range a.items {
		if i.Purpose == csr.PurposeRecovery {
			continue
		}
		l, err := a.store.Lock(ctx)
		if errors.Is(err, certstore.ErrLocked) {
			return fmt.Errorf("another attempt is under way: %w", err)
		}
		if err == nil {
			_, err = a.attempt(ctx, l, i, role{})
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("authenticator: %s certificate: %w", i.Purpose, err))
		}
	}
	return errors.Join(failed...)
}
