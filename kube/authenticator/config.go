package authenticator

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/evidence"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/kubelet"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/nodecert"
	"github.com/nodeattest/nodeattest/refusal"
)

// Config is the configuration of an [Authenticator]. The fields of the first group have no
// default: leaving one out is an error.
type Config struct {
	// NodeName is the node's name, as the kubelet uses it.
	NodeName string
	// Dir is the folder of the certificates, which only this process's user may be able to
	// write to. It is created if it is missing. With RecoverySigner, it must outlast a restart of
	// the machine: on Linux, a folder in memory is refused with the check "file".
	Dir string
	// KeyDir, if set, is the folder of the client and serving certificates with their keys, in
	// place of Dir. On a file system in memory, no copy of a disk has the keys, and the machine
	// attests again after each start. Certificates that are still in Dir are used until their
	// renewal, and then removed.
	KeyDir string
	// API returns how to reach the API server: its address, its CA and, for a machine that has no
	// certificate yet, a bootstrap token. It is called for every attempt, so a fresh token is
	// used. It must not name a credential plugin.
	API func() (*rest.Config, error)
	// Kind is the machine's evidence. It is nil for a machine without evidence, and only with the
	// SignerName csr.SignerClientInsecure: such a node gets one certificate, by a bootstrap token,
	// which is not renewed. RecoverySigner, Serving and Lifetime must then be unset.
	Kind Evidence

	// MinimumVersion is the oldest version of the evidence's data format that the node may write.
	// Where the control plane does not read the newest version of Kind, the node files a second
	// request, in the newest version that both support. 0 means the newest: an account that may
	// deny requests could otherwise downgrade the node. A MinimumVersion above the newest fails
	// every attempt with refusal.CheckConfig.
	MinimumVersion int
	// ClusterID is the control plane's name for its cluster; "" means the default, which is
	// derived from the CA of API (attest.ClusterID); with several CAs, from the one that verifies
	// the API server's certificate. Set it where that CA signs for other clusters too, as a
	// public CA does: its default does not identify the cluster.
	ClusterID string
	// SignerName is the signer of the client certificate; "" means Kubernetes' own signer,
	// csr.SignerKubeAPIServerClientKubelet.
	SignerName string
	// Lifetime is the lifetime to request, in whole seconds, 10 minutes or more; 0 means a
	// day. The signer may issue a shorter one.
	Lifetime time.Duration
	// ProviderID returns the provider ID that the node claims, 1 to oid.MaxProviderIDSize bytes of
	// printable UTF-8; nil claims none. It is called for each request for a certificate. If it
	// fails or returns "", the attempt fails.
	ProviderID func(ctx context.Context) (string, error)
	// RecoverySigner, if set, has the daemon get a recovery certificate from that signer, for
	// a key that cannot leave the machine. With it, a node whose other certificates have expired
	// gets new ones without a bootstrap token. It requires a [TPM]; the signer is
	// csr.SignerRecoveryTPM.
	RecoverySigner string
	// Serving, if set, has the daemon also get the kubelet's serving certificate.
	Serving *Serving
	// Kubelet has the paths of the kubelet's own configuration.
	Kubelet Kubelet

	// Log receives events; nil discards them. No secrets are logged.
	Log *slog.Logger
	// Ready, if set, is called once by Run, as soon as the kubelet can start: at once or, with Serving, as
	// soon as there is a serving certificate. The plugin waits for the client certificate.
	Ready func()
	// Untrusted, if set, is called each time that the API server's certificate does not verify by the
	// CAs of API: they may have changed. It must not wait.
	Untrusted func()
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Serving is the configuration of the kubelet's attested serving certificate. It is written, with its
// key, to the file ServingFile of the folder. Both tlsCertFile and tlsPrivateKeyFile of the kubelet's
// configuration must name that file: the kubelet loads a new certificate without a restart.
type Serving struct {
	// SignerName is the signer; "" means the signer of the evidence's kind (csr.SignerServing).
	SignerName string
	// DNSNames and IPAddresses are the names of the node, at least one. The control plane denies
	// the request if it does not know one of them.
	DNSNames    []string
	IPAddresses []netip.Addr
}

// The files in the folder.
const (
	// ClientFile holds the client certificate and its key.
	ClientFile = "client.pem"
	// previousFile holds the previous client certificate, for when the API server rejects the new
	// one.
	previousFile = "client.previous.pem"
	// ServingFile holds the serving certificate and its key.
	ServingFile = "serving.pem"
	// recoveryFile holds the recovery certificate and its sealed key.
	recoveryFile = "recovery.pem"
	// stateFile records failed attempts and the time of the next one, in JSON.
	stateFile = "state.json"
)

// defaultLifetime is short because certificates are not revoked.
const defaultLifetime = csr.DefaultMaxLifetime

// Authenticator gets, stores and renews a node's certificates. [New] makes one. It is safe for use by
// multiple goroutines.
type Authenticator struct {
	config  Config
	store   *certstore.Store // Dir
	slots   []*slot
	kubelet kubelet.Rules
	id      string   // of this process
	logged  sync.Map // the last warning about each object, for warnOnce
	// deniedAs is the credential of a denied request, until the daemon follows that. It is a secret, so no error has it.
	deniedAs atomic.Pointer[credential]

	mu     sync.Mutex
	memory state // the state that this process recorded
}

// slot is one of the certificates that the node keeps, by purpose.
type slot struct {
	nodecert.Wanted
	signer         string
	file, previous string           // the files of the current certificate and, for a client, the previous one
	store          *certstore.Store // their folder
}

// New checks the configuration and opens the folders. It calls neither the machine's evidence nor the
// API server. The error has the check refusal.CheckConfig or "file", or is the file system's.
func New(config Config) (*Authenticator, error) {
	switch {
	case config.NodeName == "":
		return nil, refusal.Config("NodeName", "", "the node's name")
	case config.API == nil:
		return nil, refusal.Config("API", "", "how the API server is reached")
	case config.Kind == nil && config.SignerName != csr.SignerClientInsecure:
		return nil, refusal.Config("Kind", "", "evidence; only "+csr.SignerClientInsecure+" is used without")
	case config.Kind == nil && (config.RecoverySigner != "" || config.Serving != nil || config.Lifetime != 0):
		return nil, refusal.Config("RecoverySigner, Serving and Lifetime", "set, without evidence", "unset: a node without evidence gets one client certificate, of the signer's lifetime")
	case config.Lifetime < 0 || config.Lifetime != 0 && config.Lifetime < 10*time.Minute || config.Lifetime%time.Second != 0 || config.Lifetime > math.MaxInt32*time.Second:
		return nil, refusal.Config("Lifetime", config.Lifetime.String(), "whole seconds, from 10m to 68 years")
	}
	if _, organization := csr.PurposeClient.SubjectNames(config.NodeName); organization == "" {
		return nil, refusal.Config("NodeName", refusal.Quote(config.NodeName), "a node's name: a lower-case DNS subdomain")
	}
	if _, err := csr.SignerChallenge(config.provider()); err != nil && config.Kind != nil {
		return nil, &refusal.Error{Check: refusal.CheckConfig, Got: "Kind " + refusal.Quote(config.provider()), Want: "a provider with a challenge signer", Err: err}
	}
	if config.Lifetime == 0 && config.Kind != nil {
		config.Lifetime = defaultLifetime
	}
	if config.Log == nil {
		config.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.SignerName == "" {
		config.SignerName = csr.SignerKubeAPIServerClientKubelet
	}
	if err := versions(config.Kind, config.MinimumVersion).Check(); err != nil {
		return nil, err
	}
	a := &Authenticator{config: config, id: rand.Text(), memory: state{},
		kubelet: kubelet.Rules{Places: kubelet.Places(config.Kubelet), Serving: config.Serving != nil, NodeName: config.NodeName}}
	if err := a.setSlots(); err != nil {
		return nil, err
	}
	if err := a.open(); err != nil {
		return nil, err
	}
	return a, nil
}

// provider returns the name of the evidence in signer names.
func (c *Config) provider() string {
	if c.Kind == nil {
		return csr.ProviderOf(csr.SignerClientInsecure)
	}
	return c.Kind.Provider()
}

// open opens the folders.
func (a *Authenticator) open() (err error) {
	if a.config.RecoverySigner != "" { // the recovery certificate is needed after a restart
		if err := safefile.CheckLasting(a.config.Dir); err != nil {
			return fmt.Errorf("folder of the recovery certificate: %w", err)
		}
	}
	if a.store, err = certstore.Open(a.config.Dir); err != nil {
		return err
	}
	keys := a.store
	if a.config.KeyDir != "" && a.config.KeyDir != a.config.Dir {
		if keys, err = certstore.Open(a.config.KeyDir); err != nil {
			return err
		}
	}
	for _, s := range a.slots {
		if s.store = keys; s.Purpose == csr.PurposeRecovery { // its key cannot leave the machine
			s.store = a.store
		}
	}
	return nil
}

var errNotMade = errors.New("authenticator: the Authenticator was not made by New")

func (a *Authenticator) made() bool { return a != nil && a.store != nil }

// setSlots determines which certificates are kept, the client certificate first.
func (a *Authenticator) setSlots() error {
	c := &a.config
	add := func(purpose csr.Purpose, signer, file string, lifetime time.Duration) *slot {
		s := &slot{signer: signer, file: file, Wanted: nodecert.Wanted{Purpose: purpose, NodeName: c.NodeName, Lifetime: lifetime}}
		a.slots = append(a.slots, s)
		return s
	}
	client := add(csr.PurposeClient, c.SignerName, ClientFile, c.Lifetime)
	client.previous, client.Once = previousFile, c.Kind == nil
	if s := c.Serving; s != nil {
		serving := *s
		c.Serving = &serving
		if serving.SignerName == "" {
			var err error
			if serving.SignerName, err = csr.PurposeServing.SignerName(c.provider()); err != nil {
				return &refusal.Error{Check: refusal.CheckConfig, Got: "no Serving.SignerName", Err: err}
			}
		}
		added := add(csr.PurposeServing, serving.SignerName, ServingFile, c.Lifetime)
		added.Options.DNSNames, added.Options.IPAddresses = slices.Clone(serving.DNSNames), slices.Clone(serving.IPAddresses)
	}
	if c.RecoverySigner != "" {
		add(csr.PurposeRecovery, c.RecoverySigner, recoveryFile, 0) // its lifetime is up to the signer
	}
	for _, s := range a.slots {
		if purpose, err := csr.PurposeOf(s.signer); err != nil || purpose != s.Purpose {
			return &refusal.Error{Check: refusal.CheckConfig, Got: "signer " + refusal.Quote(s.signer) + " of " + s.file, Want: "a signer of " + s.Purpose.String() + " certificates", Err: err}
		}
		if of := csr.ProviderOf(s.signer); of != "" && of != c.provider() && s.Purpose != csr.PurposeRecovery {
			return &refusal.Error{Check: refusal.CheckConfig, Got: "signer " + refusal.Quote(s.signer) + ", which wants " + evidence.Of(of), Want: "one for " + evidence.Of(c.provider())}
		}
	}
	return cmp.Or(a.tryRequests(), a.tryCluster(), a.kubelet.CheckPatterns())
}

// tryCluster refuses a cluster ID that no control plane accepts.
func (a *Authenticator) tryCluster() error {
	if a.config.ClusterID == "" {
		return nil
	}
	plane := &csr.Policy{ClusterIDs: []string{a.config.ClusterID}, SignerNames: []string{a.config.SignerName},
		Machines: func(context.Context, csr.Question) (*csr.Machine, error) { return nil, csr.ErrNoMachine }}
	return plane.Validate()
}

// tryRequests makes one request for each certificate, without filing it, to find invalid options.
func (a *Authenticator) tryRequests() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	for _, s := range a.slots {
		if _, err := csr.Create(s.Purpose, key, a.config.NodeName, s.Options); err != nil {
			return err
		}
	}
	return nil
}
