package authenticator

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/refusal"
)

// load reads a stored pair; nil means that there is none for this node and this purpose. A
// file that cannot be used counts as none, and is logged.
func (a *Authenticator) load(i *item, file string) *certstore.Pair {
	if file == "" {
		return nil
	}
	p, err := i.store.ReadPair(file)
	if errors.Is(err, fs.ErrNotExist) && i.store != a.store {
		p, err = a.store.ReadPair(file) // from before there was a folder of keys
	}
	if err == nil {
		err = cmp.Or(a.checkCertificate(i, p.Leaf), checkUse(i, p.Leaf))
	}
	if err != nil {
		if before, _ := a.said.Swap(file, err.Error()); !errors.Is(err, fs.ErrNotExist) && before != err.Error() {
			a.c.Log.Warn("a stored certificate is of no use", "file", i.store.Path(file), "why", err.Error())
		}
		return nil
	}
	return p
}

// graceAfterEnd is how long an attempt may take to notice that its context has ended.
const graceAfterEnd = 200 * time.Millisecond

// attempt gets a new certificate and stores it. The caller decides whether it is time. A
// certificate that cannot be stored is returned together with the error.
//
// A TPM command cannot be interrupted. If ctx ends first, attempt returns; the work it has
// started then ends by itself, and releases the lock, at most one command later.
func (a *Authenticator) attempt(ctx context.Context, l *certstore.Lock, i *item, as role) (*certstore.Pair, error) {
	type outcome struct {
		pair *certstore.Pair
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		p, err := a.attemptNow(ctx, l, i, as)
		done <- outcome{p, errors.Join(err, l.Unlock())}
	}()
	alive := time.NewTicker(lastLook)
	defer alive.Stop()
	for {
		select {
		case o := <-done:
			return o.pair, o.err
		case <-alive.C:
			_ = as.showLife()
			continue
		case <-ctx.Done():
		}
		select { // it may have ended at the same time as ctx
		case o := <-done:
			return o.pair, o.err
		case <-time.After(graceAfterEnd):
			return nil, fmt.Errorf("%s: %w", i.purpose, ctx.Err())
		}
	}
}

// attemptNow is attempt without the time limit. It records how the attempt ended.
func (a *Authenticator) attemptNow(ctx context.Context, l *certstore.Lock, i *item, as role) (*certstore.Pair, error) {
	if err := a.begin(l, i); err != nil {
		a.c.Log.Error("the state cannot be written", "file", a.store.Path(stateFile), "why", err.Error())
		if !as.plugin || a.next(i, as).use != nil {
			return nil, errors.Join(err, a.end(nil, i, "", err)) // until it can be written, each attempt would be lost
		}
	}
	began, password := a.c.Now(), a.password()
	p, err := a.get(ctx, i, as)
	if err == nil {
		err = a.install(l, i, p)
	}
	took := a.c.Now().Sub(began)
	if err != nil {
		a.c.Log.Error("no certificate", "purpose", i.purpose.String(), "signer", i.signer, "took", took.String(), "why", err.Error())
	} else {
		a.c.Log.Info("a certificate", "purpose", i.purpose.String(), "signer", i.signer, "took", took.String(),
			"credential", csr.CredentialID(p.Leaf), "until", p.Leaf.NotAfter, "renew", p.Renew)
	}
	_ = a.end(l, i, password, err) // if not on disk, then in memory
	return p, err
}

// install stores a certificate that works, and keeps the client certificate that worked before.
func (a *Authenticator) install(l *certstore.Lock, i *item, p *certstore.Pair) error {
	in := l.In(i.store)
	if before := a.inHand(i); before != nil && i.previous != "" {
		if err := in.WritePair(i.previous, before); err != nil {
			return err
		}
	}
	if err := in.WritePair(i.file, p); err != nil || i.store == a.store {
		return err
	}
	return errors.Join(l.Remove(i.file), l.Remove(previousFile))
}

// inHand is the certificate that works as far as is known, or nil.
func (a *Authenticator) inHand(i *item) *certstore.Pair {
	t := a.readState()[i.file]
	if all := a.certificates(i, role{}).usable(t, a.c.Now()); len(all) != 0 && !t.refused(all[0]) {
		return all[0]
	}
	return nil
}

// get attests, and returns the new certificate with its key, if it works.
func (a *Authenticator) get(ctx context.Context, i *item, as role) (_ *certstore.Pair, err error) {
	bare, own, err := a.connection()
	if err != nil {
		return nil, err
	}
	if _, err := a.clusterIDs(bare); err != nil {
		return nil, err
	}
	evidence, err := a.c.Kind.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("evidence %s: %w", a.c.Kind.Provider(), err)
	}
	attester, err := attest.NewAttester(evidence)
	if err != nil {
		return nil, errors.Join(err, evidence.Close())
	}
	defer func() { err = errors.Join(err, attester.Close()) }()

	all := a.accesses(bare, own, evidence, i.purpose)
	if len(all) == 0 {
		return nil, &refusal.Error{Check: checkCredential, Got: "no certificate that is valid and no bootstrap token",
			Want: "a fresh bootstrap token in the configuration of the API server"}
	}
	var refused []error
	for _, way := range all {
		p, err := a.getAs(ctx, i, way, evidence, attester, bare)
		if err == nil {
			if err := a.accept(ctx, i, as, p, bare, evidence); err != nil {
				return nil, err
			}
			return p, nil
		}
		if err = fmt.Errorf("as %s: %w", way.name, err); way.pair != nil && apierrors.IsUnauthorized(err) {
			_ = a.refuse(nil, way.pair) // and on disk when the attempt ends
		}
		if !noAccess(err) && !errors.Is(err, errNoKey) {
			return nil, err
		}
		refused = append(refused, err)
	}
	return nil, errors.Join(refused...)
}

// errNoKey says that the machine cannot provide a credential's key.
var errNoKey = errors.New("the key of the credential cannot be used")

// getAs is get with one particular credential.
func (a *Authenticator) getAs(ctx context.Context, i *item, way access, evidence attest.Prover, attester *attest.Attester, bare *rest.Config) (_ *certstore.Pair, err error) {
	api, err := way.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoKey, err)
	}
	defer func() { err = errors.Join(err, api.Close()) }()
	clusterID, err := a.clusterID(ctx, bare, api)
	if err != nil {
		return nil, err
	}
	j := &join{api: api, attester: attester, prefix: "nodeattest-" + a.c.NodeName + "-", patience: helloPatience}
	if len(j.prefix) > maxPrefix {
		j.prefix = j.prefix[:maxPrefix]
	}
	if i.purpose == csr.PurposeRecovery {
		return a.getSealed(ctx, i, j, evidence, clusterID)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	subject, err := a.subject(i, key, clusterID)
	if err != nil {
		return nil, err
	}
	chain, err := j.certificate(ctx, key, subject)
	if err != nil {
		return nil, err
	}
	return certstore.NewPair(chain, key, a.c.Now(), i.renewal)
}

// maxPrefix leaves room for what the API server appends to a generated name.
const maxPrefix = 200

// getSealed gets a recovery certificate.
func (a *Authenticator) getSealed(ctx context.Context, i *item, j *join, evidence attest.Prover, clusterID string) (_ *certstore.Pair, err error) {
	keeper, ok := evidence.(keyKeeper)
	if !ok {
		return nil, refusal.Config("RecoverySigner", refusal.Quote(i.signer), "none: the evidence "+a.c.Kind.Provider()+" keeps no keys")
	}
	key, err := keeper.CreateKey(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, key.Close()) }()
	subject, err := a.subject(i, key, clusterID)
	if err != nil {
		return nil, err
	}
	chain, err := j.certificate(ctx, key, subject)
	if err != nil {
		return nil, err
	}
	file, err := key.File()
	if err != nil {
		return nil, err
	}
	return certstore.NewSealedPair(chain, file, key.Public(), a.c.Now(), i.renewal)
}

func (a *Authenticator) subject(i *item, key crypto.Signer, clusterID string) (attest.Subject, error) {
	request, err := csr.Create(i.purpose, key, a.c.NodeName, i.options)
	return attest.Subject{Request: request, SignerName: i.signer, ClusterID: clusterID, ExpirationSeconds: i.seconds}, err
}
