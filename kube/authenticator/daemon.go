package authenticator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/refusal"
)

// daemonName is held by the process that renews on its own clock.
const daemonName = "daemon"

// lastLook is how long the daemon sleeps at most: the clock may be set, and another process
// may have renewed.
const lastLook = 15 * time.Second

// attemptLimit bounds one attempt of the daemon: a challenge may take its 5 minutes, and a
// certificate as long as the answer may be filed after it.
const attemptLimit = 15 * time.Minute

// Run keeps the certificates until ctx is over, and returns nil then: each is renewed at
// its time, by attestation, a little before the plugin would. It fails where another daemon
// runs on the folder (certstore.ErrLocked), and where the kubelet is configured to get
// certificates past this ([CheckKubelet]); it looks again before every attempt.
func (a *Authenticator) Run(ctx context.Context) error {
	if err := a.c.Kubelet.CheckRunning(); err != nil {
		return err
	}
	release, err := a.store.Hold(daemonName)
	if err != nil {
		return fmt.Errorf("authenticator: another daemon at %s: %w", a.c.Dir, err)
	}
	defer func() { _ = release() }() // with the process at the latest
	ready := false
	for {
		wait := lastLook
		for _, i := range a.items {
			if i.purpose != csr.PurposeClient && !a.load(ClientFile).Usable(a.c.Now()) {
				break // the others are asked for with it
			}
			at := a.due(i)
			if now := a.c.Now(); !at.After(now) {
				if err := a.c.Kubelet.CheckRunning(); err != nil {
					return err
				}
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

// due is when a certificate is to be got next.
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

// keep makes one attempt. How it ended is in log and state.
func (a *Authenticator) keep(ctx context.Context, i *item) {
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	l, err := a.store.Lock(ctx)
	if err != nil {
		a.c.Log.Error("no lock on the folder", "why", err.Error())
		return
	}
	if a.due(i).After(a.c.Now()) { // the plugin has renewed it, while this waited for the lock
		_ = l.Unlock() // nothing was written
		return
	}
	_, _ = a.attempt(ctx, l, i) // it is said and written down there
}

// ready says whether a kubelet can start: the recovery certificate can wait.
func (a *Authenticator) ready() bool {
	for _, i := range a.items {
		if i.purpose != csr.PurposeRecovery && !a.load(i.file).Usable(a.c.Now()) {
			return false
		}
	}
	return true
}

// Rotate renews the client certificate now, and the serving certificate where one is
// configured, whatever is stored and whatever has failed before. It waits for an attempt
// that is under way.
func (a *Authenticator) Rotate(ctx context.Context) error {
	if err := a.c.Kubelet.CheckRunning(); err != nil {
		return err
	}
	var failed []error
	for _, i := range a.items {
		if i.purpose == csr.PurposeRecovery {
			continue
		}
		l, err := a.store.Lock(ctx)
		if errors.Is(err, certstore.ErrLocked) {
			return &refusal.Error{Check: certstore.ErrLocked, Got: "another attempt that is under way", Want: "its end", Err: ctx.Err()}
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
