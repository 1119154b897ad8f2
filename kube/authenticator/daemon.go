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

// renewalLimit bounds one renewal by the daemon: 5 minutes for the challenge, then as long as the
// control plane takes answers to it.
const renewalLimit = 15 * time.Minute

// Run keeps the certificates until ctx ends, and then returns nil. Each is renewed by
// attestation when it is due, a little before the plugin would do so. Run fails if another
// daemon runs on the folder (certstore.ErrLocked), or if the folder is removed
// (io/fs.ErrNotExist). A kubelet that is configured to get certificates in a way that bypasses
// this one is logged: the plugin refuses it.
func (a *Authenticator) Run(ctx context.Context) error {
	beat, release, err := a.store.Hold(daemonName)
	switch {
	case errors.Is(err, certstore.ErrLocked), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("authenticator: cannot start a daemon at %s: %w", a.config.Dir, err)
	case err != nil:
		a.config.Log.Warn("cannot write the daemon's sign of life; the plugin may renew at the same time", "folder", a.config.Dir, "why", err.Error())
	}
	if release != nil {
		defer func() { _ = release() }() // at the latest when the process ends
	}
	a.warnKubelet()
	ready := false
	v := a.snapshot(caller{daemon: true, beat: beat})
	err = v.loop(ctx, func(step, error) bool {
		if !ready && v.ready() {
			if ready = true; a.config.Ready != nil {
				a.config.Ready()
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
func (v *snapshot) ready() bool {
	for _, s := range v.a.slots {
		if s.Purpose != csr.PurposeRecovery && v.next(s).use == nil {
			return false
		}
	}
	return true
}

// Rotate renews the client certificate now, as well as the serving certificate if one is
// configured, whatever is stored and whatever has failed before, even if the new one ends before
// the one in hand. It waits for an attempt that is under way.
func (a *Authenticator) Rotate(ctx context.Context) error {
	a.warnKubelet()
	var failed []error
	for _, s := range a.slots {
		if s.Purpose == csr.PurposeRecovery {
			continue
		}
		l, err := a.store.Lock(ctx)
		if errors.Is(err, certstore.ErrLocked) {
			return fmt.Errorf("another attempt is under way: %w", err)
		}
		if err == nil {
			_, err = a.renew(ctx, l, s, caller{})
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("authenticator: %s certificate: %w", s.Purpose, err))
		}
	}
	return errors.Join(failed...)
}
