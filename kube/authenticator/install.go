package authenticator

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/apiclient"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkNew checks a new certificate before it replaces the current one, and that it works: the API
// server must authenticate the node with it, or a TLS client connect to a server with it.
func (r *renewal) checkNew(ctx context.Context, p *certstore.Pair) error {
	cas, err := apiclient.CAs(r.anonymous)
	if err != nil {
		return err
	}
	var current *certstore.Pair
	if r.by.daemon || r.by.plugin { // an operator's rotation may replace one that ends later
		current = r.current(r.slot)
	}
	if err := r.slot.CheckNew(p, current, cas); err != nil {
		return err
	}
	if r.slot.Purpose == csr.PurposeServing {
		return r.slot.Serve(ctx, p)
	}
	_, err = measure(&r.network, func() (any, error) {
		return nil, authenticates(ctx, r.slot, credential{config: r.anonymous, pair: p}, r.evidence.Prover)
	})
	if apierrors.IsUnauthorized(err) {
		err = &refusal.Error{Check: certstore.CheckPair, Got: "a certificate that the API server does not accept", Want: "one of a CA that it trusts for clients", Err: err}
	}
	if err != nil {
		return fmt.Errorf("the new certificate does not work: %w", err)
	}
	return nil
}

// authenticates calls SelfSubjectReview with the certificate of c. Forbidden counts as success: the
// server authenticated the node.
func authenticates(ctx context.Context, s *slot, c credential, evidence attest.Prover) error {
	api, err := c.connect(ctx, evidence)
	if err != nil {
		return err
	}
	user, err := api.WhoAmI(ctx)
	switch {
	case apierrors.IsForbidden(err):
		err = nil
	case err == nil && user.Username != s.User():
		err = &refusal.Error{Check: certstore.CheckPair, Got: "a certificate by which this is " + refusal.Quote(user.Username), Want: s.User()}
	}
	return errors.Join(err, api.Close())
}

// install stores a new certificate, and keeps the current client certificate as the previous one. It
// only logs if the previous one cannot be written or old files cannot be removed.
func (v *snapshot) install(l *certstore.Lock, s *slot, p *certstore.Pair) error {
	in := l.In(s.store)
	var failed error
	if before := v.current(s); before != nil && s.previous != "" {
		failed = in.WritePair(s.previous, before)
	}
	if err := in.WritePair(s.file, p); err != nil {
		return errors.Join(failed, err)
	}
	if s.Once {
		failed = errors.Join(failed, in.Remove(pendingFile))
	}
	if s.store != v.a.store {
		failed = errors.Join(failed, l.Remove(s.file), l.Remove(previousFile))
	}
	if failed != nil {
		v.a.config.Log.Warn("new certificate stored, but the previous one could not be stored, or old files could not be removed", "file", s.store.Path(s.file), "why", failed.Error())
	}
	return nil
}

// acceptedLimit bounds [Authenticator.checkAccepted], for which the kubelet waits.
const acceptedLimit = 3 * time.Second

// checkAccepted calls the API server with a client certificate, and records if it is rejected.
func (a *Authenticator) checkAccepted(ctx context.Context, s *slot, p *certstore.Pair) {
	ctx, cancel := context.WithTimeout(ctx, acceptedLimit)
	defer cancel()
	anonymous, _, err := a.connection()
	if err == nil {
		err = authenticates(ctx, s, credential{config: anonymous, pair: p}, nil)
	}
	_ = a.note(nil, s.file, func(t *attempts, now time.Time) { t.Checked = now }) // also after an error
	a.reportUntrusted(err)
	if !apierrors.IsUnauthorized(err) && !errors.Is(err, certstore.CheckPair) {
		return
	}
	l, _ := a.store.TryLock() // a process that holds it is renewing, and records the rejection itself
	_ = a.refuse(l, p)        // in memory in any case
	_ = l.Unlock()
}
