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
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/apiclient"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/evidence"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/nodecert"
	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

// graceAfterEnd is how long a renewal may take to notice that its context has ended.
const graceAfterEnd = 200 * time.Millisecond

// renew gets a new certificate, stores it and releases the lock. The caller decides whether it is
// time. A certificate that cannot be stored is returned together with the error.
//
// A TPM command cannot be interrupted. If ctx ends first, renew returns; the renewal then ends by
// itself, and releases the lock, at most one command later.
func (a *Authenticator) renew(ctx context.Context, l *certstore.Lock, s *slot, by caller) (*certstore.Pair, error) {
	var pair *certstore.Pair
	done := recovered.Go(func() (err error) {
		defer func() { err = errors.Join(err, l.Unlock()) }()
		pair, err = a.renewLocked(ctx, l, s, by)
		return err
	})
	alive := time.NewTicker(maxSleep)
	defer alive.Stop()
	for {
		select {
		case err := <-done:
			return pair, err
		case <-alive.C:
			_ = by.showLife()
			continue
		case <-ctx.Done():
		}
		select { // it may have ended at the same time as ctx
		case err := <-done:
			return pair, err
		case <-time.After(graceAfterEnd):
			return nil, fmt.Errorf("%s: %w", s.Purpose, ctx.Err())
		}
	}
}

// renewLocked is renew without the time limit. It records and logs the result.
func (a *Authenticator) renewLocked(ctx context.Context, l *certstore.Lock, s *slot, by caller) (*certstore.Pair, error) {
	err := errors.Join(a.begin(l, s), probeRoom(l.In(s.store)))
	v := a.snapshot(by)
	if err != nil {
		a.config.Log.Error("cannot write to the folder of the certificates", "folder", s.store.Path(""), "why", err.Error())
		if !by.plugin || v.next(s).use != nil {
			_ = a.end(l, s, "", err) // if not on disk, then in memory
			return nil, err          // a certificate that cannot be stored would be lost
		}
	}
	began, password := a.config.Now(), a.password()
	var p *certstore.Pair
	err = recovered.Call(func() (err error) {
		p, err = v.requestAnyVersion(ctx, l, s)
		return err
	})
	if err == nil {
		err = v.install(l, s, p)
	}
	log := a.config.Log.With("purpose", s.Purpose.String(), "signer", s.signer, "took", a.config.Now().Sub(began).String())
	if err != nil {
		log.Error("certificate request failed", "why", err.Error())
		a.reportUntrusted(err)
	} else {
		log.With(v.fields()...).Info("certificate obtained", "credential", csr.CredentialID(p.Leaf), "until", p.Leaf.NotAfter, "renew", p.Renew)
	}
	_ = a.end(l, s, password, err) // if not on disk, then in memory
	return p, err
}

// probeRoom writes and removes a file as large as two certificates with their keys: a certificate
// that cannot be stored is not requested.
func probeRoom(l *certstore.Lock) error {
	const name, size = "room", 32 << 10
	return errors.Join(l.Write(name, make([]byte, size)), l.Remove(name))
}

// renewal is one attempt to get a certificate, with the evidence in one version of its data format.
type renewal struct {
	*snapshot
	slot                  *slot // with the provider ID of this attempt
	anonymous, configured *rest.Config
	evidence              evidence.Opened   // empty without evidence
	pending               *ecdsa.PrivateKey // the key of a request without evidence
}

// requestAnyVersion requests a certificate with the evidence in its newest version. If the control
// plane does not read that one, it tries once more with the newest that both support.
func (v *snapshot) requestAnyVersion(ctx context.Context, l *certstore.Lock, s *slot) (*certstore.Pair, error) {
	config := &v.a.config
	identified := *s
	r := &renewal{snapshot: v, slot: &identified}
	var err error
	if r.anonymous, r.configured, err = v.a.connection(); err != nil {
		return nil, err
	}
	if _, err := v.a.clusterIDs(r.anonymous); err != nil {
		return nil, err
	}
	if err := identified.Identify(ctx, config.ProviderID); err != nil {
		return nil, err
	}
	if config.Kind == nil {
		if r.pending, err = nodecert.PendingKey(l, s.store, pendingFile); err != nil {
			return nil, err
		}
		return r.requestAnyCredential(ctx)
	}
	all := versions(config.Kind, config.MinimumVersion)
	if r.evidence, err = measure(&v.parts.evidence, func() (evidence.Opened, error) { return all.Newest(ctx) }); err != nil {
		return nil, err
	}
	newest := r.evidence.Prover.Version()
	p, err := r.requestAnyCredential(ctx)
	denial, ok := errors.AsType[*versionError](err)
	if !ok {
		return p, err
	}
	older, none := all.Older(ctx, newest, denial.annotations)
	if none != nil {
		return nil, errors.Join(err, none)
	}
	config.Log.Warn("the control plane does not read this version of the evidence; trying an older one",
		"version", newest, "next", older.Prover.Version(), "why", err.Error())
	r.evidence = older
	return r.requestAnyCredential(ctx)
}

// requestAnyCredential requests a certificate with each credential in turn until the API server
// accepts one, and checks that the certificate works. It closes the evidence.
func (r *renewal) requestAnyCredential(ctx context.Context) (_ *certstore.Pair, err error) {
	if attester := r.evidence.Attester; attester != nil {
		defer func() { err = errors.Join(err, attester.Close()) }()
	}
	all := r.credentials()
	if len(all) == 0 {
		return nil, &refusal.Error{Check: checkCredential, Got: "no valid certificate and no bootstrap token",
			Want: r.a.freshToken()}
	}
	var rejected []error
	for _, c := range all {
		p, err := r.request(ctx, c)
		if err == nil {
			r.refresh() // the request may have taken minutes
			if err := r.checkNew(ctx, p); err != nil {
				return nil, err
			}
			return p, nil
		}
		if isDenied(err) && r.by.daemon && r.slot.file == ClientFile { // the only one that is followed
			r.a.deniedAs.Store(&c)
		}
		if x, ok := r.evidence.Prover.(explainer); ok && isDenied(err) {
			err = x.explain(err)
		}
		if c.pair == nil && apierrors.IsUnauthorized(err) {
			err = fmt.Errorf("the API server does not accept it (%w): %s", err, r.a.freshToken())
		}
		if err = fmt.Errorf("as %s: %w", c.name, err); c.pair != nil && !c.pair.Sealed && apierrors.IsUnauthorized(err) {
			_ = r.a.refuse(nil, c.pair) // and on disk when the attempt ends
		}
		if !noAccess(err) && !errors.Is(err, errNoKey) {
			return nil, err
		}
		rejected = append(rejected, err)
	}
	return nil, errors.Join(rejected...)
}

// An explainer adds to a denial how the control plane can be made to trust the evidence.
type explainer interface{ explain(denial error) error }

// errNoKey says that the machine cannot provide a credential's key.
var errNoKey = errors.New("the key of the credential cannot be used")

// request requests a certificate with one credential.
func (r *renewal) request(ctx context.Context, c credential) (_ *certstore.Pair, err error) {
	api, err := c.connect(ctx, r.evidence.Prover)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoKey, err)
	}
	defer func() { err = errors.Join(err, api.Close()) }()
	s := r.slot
	subject := attest.Subject{SignerName: s.signer, ExpirationSeconds: int32(s.Lifetime / time.Second)} //nolint:gosec // bounded by New
	if subject.ClusterID, err = r.a.clusterID(ctx, c.config, api); err != nil {
		return nil, err
	}
	key, sealed, err := r.newKey(ctx)
	if err != nil {
		return nil, err
	}
	if sealed != nil {
		defer func() { err = errors.Join(err, sealed.Close()) }()
	}
	if subject.Request, err = csr.Create(s.Purpose, key, s.NodeName, s.Options); err != nil {
		return nil, err
	}
	chain, err := r.join(api).certificate(ctx, key, subject)
	if err != nil {
		return nil, err
	}
	if sealed == nil {
		return certstore.NewPair(chain, key, r.a.config.Now(), s.RenewAt)
	}
	file, err := sealed.File()
	if err != nil {
		return nil, err
	}
	return certstore.NewSealedPair(chain, file, key.Public(), r.a.config.Now(), s.RenewAt)
}

// maxPrefix leaves room for the suffix that the API server appends to a generated name.
const maxPrefix = 200

func (r *renewal) join(api *apiclient.Client) *join {
	prefix := "nodeattest-" + r.slot.NodeName + "-"
	return &join{api: api, attester: r.evidence.Attester, prefix: prefix[:min(len(prefix), maxPrefix)], nodeName: r.slot.NodeName, parts: &r.parts}
}

// newKey makes a key: for a recovery certificate, one that cannot leave the machine.
func (r *renewal) newKey(ctx context.Context) (crypto.Signer, sealedKey, error) {
	if r.pending != nil {
		return r.pending, nil, nil
	}
	if r.slot.Purpose != csr.PurposeRecovery {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		return key, nil, err
	}
	keeper, ok := r.evidence.Prover.(keyKeeper)
	if !ok {
		return nil, nil, refusal.Config("RecoverySigner", refusal.Quote(r.slot.signer), `"": the evidence `+r.a.config.provider()+" keeps no keys")
	}
	key, err := keeper.CreateKey(ctx)
	return key, key, err
}
