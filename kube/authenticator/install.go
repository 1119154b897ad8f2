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
	"github.com/nodeattest/nodeattest/kube/internal/apiclient"
	"github.com/nodeattest/nodeattest/refusal"
)

// accept checks a new certificate and has it work, before it replaces another: the API server
// must know this node by it, or a TLS client the node's name.
func (a *Authenticator) accept(ctx context.Context, i *item, as role, p *certstore.Pair, bare *rest.Config, evidence attest.Prover) error {
	cas, err := apiclient.CAs(bare)
	if err != nil {
		return err
	}
	inHand := a.inHand(i)
	if !as.daemon && !as.plugin { // who wants another one
		inHand = nil
	}
	if err := i.CheckNew(p, inHand, cas); err != nil {
		return err
	}
	if i.Purpose == csr.PurposeServing {
		return i.Serve(ctx, p)
	}
	var api *apiclient.Client
	if p.Sealed {
		api, err = sealedClient(ctx, bare, evidence.(keyKeeper), p)
	} else {
		api, err = asNode(bare, p)
	}
	if err == nil {
		err = errors.Join(whoAmI(ctx, i, api), api.Close())
	}
	if err != nil {
		return fmt.Errorf("the new certificate does not work: %w", err)
	}
	return nil
}

// whoAmI asks the API server who this node is by a certificate. Who may not ask is known.
func whoAmI(ctx context.Context, i *item, api *apiclient.Client) error {
	user, err := api.WhoAmI(ctx)
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case err == nil && user.Username != i.User():
		return &refusal.Error{Check: certstore.CheckPair, Got: "a certificate by which this is " + refusal.Quote(user.Username), Want: i.User()}
	}
	return err
}

// asNode connects with a client certificate.
func asNode(bare *rest.Config, p *certstore.Pair) (*apiclient.Client, error) {
	c := rest.CopyConfig(bare)
	c.CertData, c.KeyData = p.Chain, p.Key
	return apiclient.Connect(c, nil)
}

// checkLimit bounds the question whether a certificate works, for which the kubelet waits.
const checkLimit = 3 * time.Second

// check asks the API server whether a client certificate works, and records it if not.
func (a *Authenticator) check(ctx context.Context, i *item, p *certstore.Pair) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	bare, _, err := a.connection()
	if err == nil {
		var api *apiclient.Client
		if api, err = asNode(bare, p); err == nil {
			err = errors.Join(whoAmI(ctx, i, api), api.Close())
		}
	}
	_ = a.note(nil, i.file, func(t *attempts, now time.Time) { t.Checked = now }) // whatever came of it
	if !apierrors.IsUnauthorized(err) && !errors.Is(err, certstore.CheckPair) {
		return
	}
	l, _ := a.store.TryLock() // who holds it attests, and finds out
	_ = a.refuse(l, p)        // in memory in any case
	_ = l.Unlock()
}
