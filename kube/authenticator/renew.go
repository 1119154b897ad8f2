package authenticator

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/nodecert"
	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

// graceAfterEnd is how long an attempt may take to notice that its context has ended.
const graceAfterEnd = 200 * time.Millisecond

// attempt gets a new certificate and stores it. The caller decides whether it is time. A
// certificate that cannot be stored is returned together with the error.
//
// A TPM command cannot be interrupted. If ctx ends first, attempt returns; the work it has
// started then ends by itself, and releases the lock, at most one command later.
func (a *Authenticator) attempt(ctx context.Context, l *certstore.Lock, i *item, as role) (*certstore.Pair, error) {
	var pair *certstore.Pair
	done := recovered.Go(func() (err error) {
		defer func() { err = errors.Join(err, l.Unlock()) }()
		pair, err = a.attemptNow(ctx, l, i, as)
		return err
	})
	alive := time.NewTicker(lastLook)
	defer alive.Stop()
	for {
		select {
		case err := <-done:
			return pair, err
		case <-alive.C:
			_ = as.showLife()
			continue
		case <-ctx.Done():
		}
		select { // it may have ended at the same time as ctx
		case err := <-done:
			return pair, err
		case <-time.After(graceAfterEnd):
			return nil, fmt.Errorf("%s: %w", i.Purpose, ctx.Err())
		}
	}
}

// attemptNow is attempt without the time limit. It records how the attempt ended.
func (a *Authenticator) attemptNow(ctx context.Context, l *certstore.Lock, i *item, as role) (*certstore.Pair, error) {
	err := a.begin(l, i)
	if err == nil {
		err = tryRoom(l.In(i.store))
	}
	v := a.view(as)
	if err != nil {
		a.c.Log.Error("a certificate, or the attempt to get one, cannot be stored", "folder", i.store.Path(""), "why", err.Error())
		if !as.plugin || v.next(i).use != nil {
			_ = a.end(l, i, "", err) // if not on disk, then in memory
			return nil, err          // until there is room, each attempt would be lost
		}
	}
	began, password := a.c.Now(), a.password()
	var p *certstore.Pair
	if err = nil; i.Once {
		v.pending, err = nodecert.PendingKey(l, i.store, pendingFile)
	}
	if err == nil {
		err = recovered.Call(func() (err error) {
			p, err = v.get(ctx, i)
			return err
		})
	}
	if err == nil {
		err = v.install(l, i, p)
	}
	took := a.c.Now().Sub(began)
	if err != nil {
		a.c.Log.Error("no certificate", "purpose", i.Purpose.String(), "signer", i.signer, "took", took.String(), "why", err.Error())
	} else {
		a.c.Log.Info("a certificate", "purpose", i.Purpose.String(), "signer", i.signer, "took", took.String(),
			"credential", csr.CredentialID(p.Leaf), "until", p.Leaf.NotAfter, "renew", p.Renew)
	}
	_ = a.end(l, i, password, err) // if not on disk, then in memory
	return p, err
}

// tryRoom writes and removes a file as large as a certificate with its key and the one before it: a
// certificate that cannot be stored is not requested.
func tryRoom(l *certstore.Lock) error {
	const name, size = "room", 32 << 10
	return errors.Join(l.Write(name, make([]byte, size)), l.Remove(name))
}

// get attests, and returns the new certificate with its key, if it works. If the control plane does
// not read the newest version of the evidence, it tries once more in the best that both speak.
func (v *view) get(ctx context.Context, i *item) (*certstore.Pair, error) {
	a := v.a
	bare, own, err := a.connection()
	if err != nil {
		return nil, err
	}
	if _, err := a.clusterIDs(bare); err != nil {
		return nil, err
	}
	asked := *i
	if err := asked.Identify(ctx, a.c.ProviderID); err != nil {
		return nil, err
	}
	i = &asked
	if a.c.Kind == nil {
		return v.getWith(ctx, i, bare, own, nil, nil)
	}
	kind := versions(a.c.Kind, a.c.MinimumVersion)
	evidence, attester, err := kind.Newest(ctx)
	if err != nil {
		return nil, err
	}
	newest := evidence.Version()
	p, err := v.getWith(ctx, i, bare, own, evidence, attester)
	unread, ok := errors.AsType[*versionError](err)
	if !ok {
		return p, err
	}
	evidence, attester, none := kind.Older(ctx, newest, unread.annotations)
	if none != nil {
		return nil, errors.Join(err, none)
	}
	a.c.Log.Warn("the evidence's version was denied", "version", newest, "next", evidence.Version(), "why", err.Error())
	return v.getWith(ctx, i, bare, own, evidence, attester)
}

// getWith is get with the evidence in one version, or without any. It closes the evidence.
func (v *view) getWith(ctx context.Context, i *item, bare, own *rest.Config, evidence attest.Prover, attester *attest.Attester) (_ *certstore.Pair, err error) {
	a := v.a
	if attester != nil {
		defer func() { err = errors.Join(err, attester.Close()) }()
	}
	all := v.accesses(bare, own, evidence, i.Purpose)
	if len(all) == 0 {
		return nil, &refusal.Error{Check: checkCredential, Got: "no valid certificate and no bootstrap token",
			Want: "a fresh bootstrap token in the kubeconfig"}
	}
	var refused []error
	for _, way := range all {
		p, err := v.getAs(ctx, i, way, evidence, attester)
		if err == nil {
			v.refresh() // that took its time
			if err := v.accept(ctx, i, p, bare, evidence); err != nil {
				return nil, err
			}
			return p, nil
		}
		if x, ok := evidence.(explainer); ok && isDenied(err) {
			err = x.explain(err)
		}
		if err = fmt.Errorf("as %s: %w", way.name, err); way.pair != nil && !way.pair.Sealed && apierrors.IsUnauthorized(err) {
			_ = a.refuse(nil, way.pair) // and on disk when the attempt ends
		}
		if !noAccess(err) && !errors.Is(err, errNoKey) {
			return nil, err
		}
		refused = append(refused, err)
	}
	return nil, errors.Join(refused...)
}

// An explainer knows more about why the control plane denies its evidence.
type explainer interface{ explain(denial error) error }

// errNoKey says that the machine cannot provide a credential's key.
var errNoKey = errors.New("the key of the credential cannot be used")

// getAs is get with one particular credential.
func (v *view) getAs(ctx context.Context, i *item, way access, evidence attest.Prover, attester *attest.Attester) (_ *certstore.Pair, err error) {
	a := v.a
	api, err := way.connect(ctx, evidence)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoKey, err)
	}
	defer func() { err = errors.Join(err, api.Close()) }()
	clusterID, err := a.clusterID(ctx, way.config, api)
	if err != nil {
		return nil, err
	}
	j := &join{api: api, attester: attester, prefix: "nodeattest-" + a.c.NodeName + "-", patience: helloPatience}
	if len(j.prefix) > maxPrefix {
		j.prefix = j.prefix[:maxPrefix]
	}
	key, sealed, err := v.newKey(ctx, i, evidence)
	if err != nil {
		return nil, err
	}
	if sealed != nil {
		defer func() { err = errors.Join(err, sealed.Close()) }()
	}
	request, err := csr.Create(i.Purpose, key, a.c.NodeName, i.Options)
	if err != nil {
		return nil, err
	}
	chain, err := j.certificate(ctx, key, attest.Subject{Request: request, SignerName: i.signer, ClusterID: clusterID, ExpirationSeconds: int32(i.Lifetime / time.Second)}) //nolint:gosec // bounded by New
	if err != nil {
		return nil, err
	}
	if sealed == nil {
		return certstore.NewPair(chain, key, a.c.Now(), i.Renewal)
	}
	file, err := sealed.File()
	if err != nil {
		return nil, err
	}
	return certstore.NewSealedPair(chain, file, key.Public(), a.c.Now(), i.Renewal)
}

// newKey makes a key: for a recovery certificate, one that stays in the machine.
func (v *view) newKey(ctx context.Context, i *item, evidence attest.Prover) (crypto.Signer, sealedKey, error) {
	if i.Once {
		return v.pending, nil, nil
	}
	if i.Purpose != csr.PurposeRecovery {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		return key, nil, err
	}
	keeper, ok := evidence.(keyKeeper)
	if !ok {
		return nil, nil, refusal.Config("RecoverySigner", refusal.Quote(i.signer), "none: the evidence "+v.a.c.provider()+" keeps no keys")
	}
	key, err := keeper.CreateKey(ctx)
	return key, key, err
}

// maxPrefix leaves room for what the API server appends to a generated name.
const maxPrefix = 200
