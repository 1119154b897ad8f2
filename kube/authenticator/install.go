package authenticator

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/apiclient"
	"github.com/nodeattest/nodeattest/refusal"
)

// accept checks a new certificate and has it work, before it replaces another: the API server
// must know this node by it, or a TLS client the node's name.
func (v *view) accept(ctx context.Context, i *item, p *certstore.Pair, bare *rest.Config, evidence attest.Prover) error {
	cas, err := apiclient.CAs(bare)
	if err != nil {
		return err
	}
	inHand := v.inHand(i)
	if !v.as.daemon && !v.as.plugin { // who wants another one
		inHand = nil
	}
	if err := i.CheckNew(p, inHand, cas); err != nil {
		return err
	}
	if i.Purpose == csr.PurposeServing {
		return i.Serve(ctx, p)
	}
	err = works(ctx, i, access{config: bare, pair: p}, evidence)
	if apierrors.IsUnauthorized(err) { // until it trusts the signer's CA, each attempt is lost
		err = &refusal.Error{Check: certstore.CheckPair, Got: "a certificate that the API server does not accept", Want: "one of a CA that it trusts for clients", Err: err}
	}
	if err != nil {
		return fmt.Errorf("the new certificate does not work: %w", err)
	}
	return nil
}

// works calls SelfSubjectReview with the certificate. Forbidden counts as success: the server
// authenticated the node.
func works(ctx context.Context, i *item, way access, evidence attest.Prover) error {
	api, err := way.connect(ctx, evidence)
	if err != nil {
		return err
	}
	user, err := api.WhoAmI(ctx)
	switch {
	case apierrors.IsForbidden(err):
		err = nil
	case err == nil && user.Username != i.User():
		err = &refusal.Error{Check: certstore.CheckPair, Got: "a certificate by which this is " + refusal.Quote(user.Username), Want: i.User()}
	}
	return errors.Join(err, api.Close())
}

// install stores a certificate that works, and keeps the client certificate that worked before. That
// one, and what is left over, are not worth the new one: it is stored if they cannot be written.
func (v *view) install(l *certstore.Lock, i *item, p *certstore.Pair) error {
	in := l.In(i.store)
	var failed error
	if before := v.inHand(i); before != nil && i.previous != "" {
		failed = in.WritePair(i.previous, before)
	}
	if err := in.WritePair(i.file, p); err != nil {
		return errors.Join(failed, err)
	}
	if i.Once {
		failed = errors.Join(failed, in.Remove(pendingFile))
	}
	if i.store != v.a.store {
		failed = errors.Join(failed, l.Remove(i.file), l.Remove(previousFile))
	}
	if failed != nil {
		v.a.c.Log.Warn("the certificate was stored, but not the one before it, or old files are left", "file", i.store.Path(i.file), "why", failed.Error())
	}
	return nil
}

// checkLimit bounds the question whether a certificate works, for which the kubelet waits.
const checkLimit = 3 * time.Second

// check asks the API server whether a client certificate works, and records it if not.
func (a *Authenticator) check(ctx context.Context, i *item, p *certstore.Pair) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	bare, _, err := a.connection()
	if err == nil {
		err = works(ctx, i, access{config: bare, pair: p}, nil)
	}
	_ = a.note(nil, i.file, func(t *attempts, now time.Time) { t.Checked = now }) // whatever came of it
	if !apierrors.IsUnauthorized(err) && !errors.Is(err, certstore.CheckPair) {
		return
	}
	l, _ := a.store.TryLock() // who holds it attests, and finds out
	_ = a.refuse(l, p)        // in memory in any case
	_ = l.Unlock()
}
