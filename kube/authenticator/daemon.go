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

// daemonName is the name that the daemon holds in its folder.
const daemonName = "daemon"

// renewalLimit bounds one renewal by the daemon: 5 minutes for the challenge, then as long as the
// control plane takes answers to it.
const renewalLimit = 15 * time.Minute

// Run renews the certificates until ctx ends, and then returns nil. It renews each by attestation when
// it is due, a minute before the plugin would do so. Run fails if another daemon runs on the folder
// (certstore.ErrLocked), or if the folder is removed (io/fs.ErrNotExist). It logs if the kubelet is
// configured to get certificates without the plugin: the plugin refuses it.
func (a *Authenticator) Run(ctx context.Context) error {
	if !a.made() {
		return errNotMade
	}
	beat, release, err := a.store.Hold(daemonName)
	switch {
	case errors.Is(err, certstore.ErrLocked), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("authenticator: cannot start a daemon at %s: %w", a.config.Dir, err)
	case err != nil:
		a.config.Log.Warn("cannot write the daemon's sign of life; the plugin may renew at the same time", "folder", a.config.Dir, "why", err.Error())
	}
	if release != nil {
		defer func() { _ = release() }() // the kernel releases it when the process ends
	}
	v := a.snapshot(caller{daemon: true, beat: beat})
	ready := v.tellReady()
	a.warnKubelet()
	err = v.loop(ctx, func(step, error) bool {
		ready = ready || v.tellReady()
		return false
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// tellReady calls Ready if the kubelet can start, and reports whether it can. A kubelet does not start without
// its serving certificate. For its client certificate, it waits in the plugin.
func (v *snapshot) tellReady() bool {
	for _, s := range v.a.slots {
		if s.Purpose == csr.PurposeServing && v.next(s).use == nil {
			return false
		}
	}
	if v.a.config.Ready != nil {
		v.a.config.Ready()
	}
	return true
}

// Rotate renews the client certificate now, and the serving certificate if one is configured, without
// regard to stored certificates and pauses after failures, even if the new one expires before the
// current one. It waits while another process renews.
func (a *Authenticator) Rotate(ctx context.Context) error {
	if !a.made() {
		return errNotMade
	}
	a.warnKubelet()
	var failed []error
	for _, s := range a.slots {
		if s.Purpose == csr.PurposeRecovery {
			continue
		}
		l, err := a.store.Lock(ctx)
		if errors.Is(err, certstore.ErrLocked) {
			return fmt.Errorf("another process is renewing: %w", err)
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
