package authenticator

import (
	"context"
	"errors"
	"time"

	"github.com/nodeattest/nodeattest/recovered"
)

// followed is the request whose denial the daemon follows. After a denial the pauses grow to minutes, so that a machine
// that is not admitted files few requests. The controller changes the condition of the denied request when an operator
// has admitted the machine (kube/controller), and then the daemon tries again. The denial itself stands: the next
// request is decided like any other.
type followed struct {
	changed <-chan error // nil: no request is followed
	stop    context.CancelFunc
	// hurried says that the attempt was brought forward, and hurries how many attempts before it were, in a row.
	hurried bool
	hurries int
}

// follow has the daemon watch its denied request, after an attempt with that error. It takes one request to the API
// server for each attempt: a watch that ends is not opened again.
func (v *snapshot) follow(ctx context.Context, failed error) {
	as := v.a.deniedAs.Swap(nil) // the watch alone keeps it
	if failed == nil {
		return // there was no attempt, or it succeeded
	}
	v.unfollow()
	if v.hurries++; !v.hurried {
		v.hurries = 0
	}
	v.hurried = false
	denied, ok := errors.AsType[*deniedError](failed)
	if !ok || !denied.awaits() || as == nil || as.pair != nil && as.pair.Sealed { // which would keep the TPM open
		return
	}
	ctx, v.stop = context.WithTimeout(ctx, lastDenied)
	v.changed = recovered.Go(func() (err error) {
		api, err := as.connect(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = api.Close() }()
		return api.AwaitChange(ctx, denied.filed)
	})
}

// unfollow ends the watch.
func (f *followed) unfollow() {
	if f.stop != nil {
		f.stop()
	}
	f.stop, f.changed = nil, nil
}

// hurry brings the next attempt forward. It comes no sooner after the last one than after a first denial, and each one
// that is hurried in vain doubles that time, whatever the control plane does.
func (v *snapshot) hurry() {
	v.unfollow()
	v.hurried = true
	gap := min(firstDenied/2<<min(v.hurries, 10), lastDenied)
	_ = v.a.note(nil, ClientFile, func(t *attempts, now time.Time) { // in memory: another process keeps the pause
		if soon := t.Last.Add(gap); soon.Before(t.Next) {
			t.Next = soon
		}
	})
	v.a.config.Log.Info("the control plane has changed the denied request; the next attempt comes earlier", "gap", gap.String())
}
