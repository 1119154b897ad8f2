package claimstest

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/internal/wallclock"
	"github.com/nodeattest/nodeattest/jws"
)

// Audience is the service's name: the audience of tokens that ask for no other.
const Audience = "https://service.example"

// defaultIssuer is the issuer of a cluster that kubeadm made.
const defaultIssuer = "https://kubernetes.default.svc.cluster.local"

// Options configure a [Cluster]. The zero value of each field is a sensible default.
type Options struct {
	// Issuer is the "iss" of the tokens; "" means that of a cluster that kubeadm made,
	// "https://kubernetes.default.svc.cluster.local": two clusters then have one issuer and
	// different keys.
	Issuer string
	// Key is the key that signs the tokens, RSA of 2,048 bits or more, or ECDSA; nil means a new
	// P-256 key in software.
	Key crypto.Signer
	// SignerOptions are for that key. The zero value is as in kube-apiserver's own signer; the
	// tokens of an external one have the Type jws.TypeJWT.
	SignerOptions jws.SignerOptions
	// Now is the clock before [Cluster.Advance] moves it; nil means time.Now.
	Now func() time.Time
}

// Cluster is a cluster as a service sees it: an issuer with keys, objects, a registry of machines,
// and records of the certificates that attested nodes got. It is safe for concurrent use.
type Cluster struct {
	opts Options
	ca   *tls.Certificate // of attested nodes, the Leaf and its key

	mu      sync.Mutex
	shift   time.Duration // of the clock
	signer  *jws.CryptoSigner
	cas     *x509.CertPool
	current state
	faults  map[string]fault
}

// New returns a cluster. If that fails, so does the test.
func New(t testing.TB, opts Options) *Cluster {
	t.Helper()
	c, err := Open(opts)
	if err != nil {
		t.Fatalf("claimstest: %v", err)
	}
	return c
}

// Open is [New] for use outside tests. There is nothing to close. A Key that cannot sign gives an
// error of [jws.NewSigner].
func Open(opts Options) (*Cluster, error) {
	opts.Issuer, opts.Now = cmp.Or(opts.Issuer, defaultIssuer), wallclock.Or(opts.Now)
	c := &Cluster{opts: opts, current: newState(), faults: map[string]fault{}, cas: x509.NewCertPool()}
	if err := c.sign(opts.Key, opts.SignerOptions); err != nil {
		return nil, err
	}
	var err error
	if c.ca, err = newAuthority(c.now()); err != nil {
		return nil, err
	}
	c.cas.AddCert(c.ca.Leaf)
	return c, nil
}

// sign makes a key, or a new one for nil, the one that signs and the only one in the key set.
func (c *Cluster) sign(key crypto.Signer, opts jws.SignerOptions) error {
	if key == nil {
		var err error
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return err
		}
	}
	signer, err := jws.NewSigner(key, opts)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.signer, c.current.keys = signer, []*jws.Key{signer.Key()}
	return nil
}

// RotateKey replaces the key at once: tokens that were signed before have a key ID that is not in
// the key set any more. nil means a new P-256 key in software. The new key's ID is derived from
// it. A real cluster publishes both keys for a while (jws.RotatingSigner).
func (c *Cluster) RotateKey(key crypto.Signer) error {
	opts := c.opts.SignerOptions
	opts.KeyID = ""
	return c.sign(key, opts)
}

// Issuer returns the "iss" of the tokens.
func (c *Cluster) Issuer() string { return c.opts.Issuer }

// now is the cluster's clock.
func (c *Cluster) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opts.Now().Add(c.shift)
}

// Advance moves the clock of the cluster and of all that it configured: tokens and certificates
// come closer to their ends, and answers grow old ([Stale]).
func (c *Cluster) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shift += d
}

// ValidatorConfig returns the configuration of a service whose name is [Audience], and that checks
// all there is: the cluster's issuer with its KeySet, its Objects and clock, a replay cache of its
// own, and a NodeCheck with the cluster's registry of machines. A service with a configuration of
// its own takes single fields from it.
func (c *Cluster) ValidatorConfig() claims.ValidatorConfig {
	replay, _ := claims.NewMemoryReplayCache(claims.MemoryReplayOptions{Now: c.now}) // the error is for a negative size
	return claims.ValidatorConfig{
		Issuers: map[string]jws.KeySet{c.Issuer(): c.KeySet()}, Audiences: []string{Audience},
		Objects: c.Objects(), Replay: replay, Node: claims.NodeCheck{FindMachine: c.findMachine}, Now: c.now,
	}
}

// HandlerOptions returns options for [claims.NewHandler]: the records of attested nodes'
// certificates, and the cluster's clock.
func (c *Cluster) HandlerOptions() claims.HandlerOptions {
	return claims.HandlerOptions{FindRecord: c.findRecord, Certificate: claims.NodeCertificateOptions{Now: c.now}}
}

// ClientCAs returns a copy of the CAs that sign for attested nodes, for the tls.Config of a service.
func (c *Cluster) ClientCAs() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cas.Clone()
}

// KeySet returns the cluster's keys, as they are at each call.
func (c *Cluster) KeySet() jws.KeySet { return keySet{c} }

// Objects returns the cluster's objects, as a getter that reads the API server for each answer.
func (c *Cluster) Objects() claims.LiveObjects { return objects{c} }

type keySet struct{ *Cluster }

// Keys implements jws.KeySet.
func (s keySet) Keys(ctx context.Context, keyID string) (keys []*jws.Key, err error) {
	_, err = s.read(ctx, resourceKeys, func(now *state) { keys, _ = now.Keys(ctx, keyID) })
	return keys, err
}

type objects struct{ *Cluster }

// ReadsLive implements claims.LiveObjects.
func (objects) ReadsLive() {}

// Get implements claims.Objects.
func (o objects) Get(ctx context.Context, resource, namespace, name string) (object *claims.Object, err error) {
	since, failed := o.read(ctx, resource, func(now *state) { object, err = now.Get(ctx, resource, namespace, name) })
	if failed != nil {
		return nil, failed
	}
	if object != nil && !since.IsZero() {
		object.AsOf = since
	}
	return object, err
}

// findMachine is for claims.NodeCheck.
func (c *Cluster) findMachine(ctx context.Context, nodeName string) (found *claims.RegisteredMachine, err error) {
	if _, err = c.read(ctx, resourceMachines, func(now *state) { found = copyOf(now.machines, nodeName) }); err == nil && found == nil {
		err = fmt.Errorf("claimstest: machine of node %q: %w", nodeName, claims.ErrNotFound)
	}
	return found, err
}

// findRecord is for claims.HandlerOptions.
func (c *Cluster) findRecord(ctx context.Context, nodeName, credentialID string) (found *claims.CertificateRecord, err error) {
	if _, err = c.read(ctx, resourceRecords, func(now *state) { found = copyOf(now.records, credentialID) }); err == nil && (found == nil || found.NodeName != nodeName) {
		err = fmt.Errorf("claimstest: record of certificate %q of node %q: %w", credentialID, nodeName, claims.ErrNotFound)
	}
	return found, err
}
