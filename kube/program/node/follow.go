package node

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

// A follower keeps the node's view of its cluster current: it asks the API server for the latest discovery
// document, and writes the cluster's CAs and server into the files of the authenticator's own kubeconfig.
//
// A bootstrap token has ended long before, and pins are for the first contact. What verifies the API server
// at a refresh are the CAs in the kubeconfig's file, and the CAs of the document that this server serves
// replace them. A node that was off while the cluster had both CAs knows none that verifies it, and an
// operator has to discover the cluster again.
type follower struct {
	kubeconfig, stateDir string
	kubeadmCA            string // kubeadm's file with the CAs of the cluster
	kubeletConf          string // the kubelet's kubeconfig
	addresses            []string
	interval             time.Duration
	writeCA              bool
	log                  *slog.Logger
	network              bootstraptoken.Network // with the clock
	untrusted            chan struct{}          // the API server's certificate did not verify
	logged               string                 // the last error, so that each is logged once
}

// Paths of other programs.
const (
	kubeadmCA   = "/etc/kubernetes/pki/ca.crt"
	kubeletConf = "/etc/kubernetes/kubelet.conf"
)

// The files in stateDir.
const (
	cacheFile     = "cluster.json"   // the bootstraptoken.Cache
	followingFile = "discovery.json" // following
)

const (
	defaultInterval = time.Hour
	minInterval     = 10 * time.Second
	maxInterval     = 7 * 24 * time.Hour
	// maxOtherServers bounds discovery.addresses.
	maxOtherServers = 60
	// refreshLimit bounds the search for a server that answers, and probeLimit the look at one server.
	refreshLimit = time.Minute
	probeLimit   = 3 * time.Second
	// soon is how long after an error, at most, the next refresh is; and how long after any refresh, at
	// least, comes one that a certificate asks for.
	soon, least = 5 * time.Minute, time.Minute
	// tick is how often the clock is read: it may be set.
	tick = 15 * time.Second
)

// checkInUse: the discovery document lacks a CA of the node by which a server still serves.
const checkInUse refusal.Check = "ca-in-use"

// errUnknownCA says how the node gets out of a state that the daemon cannot leave.
var errUnknownCA = errors.New("no CA that this node knows verifies the API server, as the cluster's CA has changed while the node was off, or the server is not the cluster's: " +
	"discover the cluster again with kubelet-authenticator discover --replace")

type discoverySettings struct {
	Addresses []string `json:"addresses"`
	Interval  duration `json:"interval"`
	WriteCA   bool     `json:"writeCA"`
}

// follower returns the follower of the section discovery, or nil without one.
func (s *settings) follower() (*follower, error) {
	if s.Discovery == nil {
		return nil, nil
	}
	d := s.Discovery
	f := &follower{
		kubeconfig: cmp.Or(s.Kubeconfig, defaultKubeconfig), stateDir: cmp.Or(s.StateDir, defaultState), kubeadmCA: kubeadmCA, kubeletConf: kubeletConf,
		addresses: d.Addresses, interval: cmp.Or(time.Duration(d.Interval), defaultInterval), writeCA: d.WriteCA, untrusted: make(chan struct{}, 1),
		network: bootstraptoken.Network{Timeout: refreshLimit, Proxy: http.ProxyFromEnvironment, Now: wallClock},
	}
	if f.interval < minInterval || f.interval > maxInterval {
		return nil, refusal.Config("discovery.interval", f.interval.String(), minInterval.String()+" to "+maxInterval.String())
	}
	if n := len(f.addresses); n > maxOtherServers {
		return nil, refusal.Config("discovery.addresses", fmt.Sprint(n), fmt.Sprintf("at most %d", maxOtherServers))
	}
	for _, address := range f.addresses {
		if _, err := (&bootstraptoken.ClusterInfo{Server: serverURL(address), SystemRoots: true}).Marshal(); err != nil {
			return nil, &refusal.Error{Check: refusal.CheckConfig, Got: "discovery.addresses with " + refusal.Quote(address), Want: "HOST, HOST:PORT or a URL of https", Err: err}
		}
	}
	return f, nil
}

// wallClock is the clock without its monotonic reading, which stands still while the machine sleeps.
func wallClock() time.Time { return time.Now().Round(0) }

// serverURL returns the URL of an address.
func serverURL(address string) string {
	if strings.Contains(address, "://") {
		return address
	}
	return "https://" + address
}

// distrust asks for a refresh now. It does not wait.
func (f *follower) distrust() {
	select {
	case f.untrusted <- struct{}{}:
	default: // it is asked for already
	}
}

// run refreshes until ctx ends. ticks says when to read the clock.
func (f *follower) run(ctx context.Context, ticks <-chan time.Time) {
	next, last := f.first(), time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.untrusted:
			if now := f.network.Now(); now.Sub(last).Abs() < least {
				continue
			}
		case <-ticks:
			if now := f.network.Now(); now.Before(next) && next.Sub(now) <= f.interval*6/5 { // else the clock was set back
				continue
			}
		}
		err := recovered.Call(func() error { return f.refresh(ctx) })
		if ctx.Err() != nil {
			return
		}
		f.note(err)
		last = f.network.Now()
		next = last.Add(around(f.interval))
		if err != nil {
			next = last.Add(around(min(f.interval, soon)))
		}
	}
}

// first returns the time of the first refresh: an interval after that of the last process.
func (f *follower) first() time.Time {
	if before, err := bootstraptoken.ReadCacheFile(f.path(cacheFile)); err == nil {
		return before.Verified.Add(around(f.interval))
	}
	return time.Time{}
}

// around returns a time that is up to a fifth shorter or longer, so that nodes that started together do
// not stay together.
func around(d time.Duration) time.Duration { return d*4/5 + rand.N(d*2/5+1) }

func (f *follower) path(name string) string { return filepath.Join(f.stateDir, name) }

// refresh asks the cluster for its discovery document, and writes the changes. After an error the files
// are as before, but for files that it had already given the cluster's new CAs.
func (f *follower) refresh(ctx context.Context) error {
	own, err := readOwn(f.kubeconfig)
	if err != nil {
		return err
	}
	network := own.network(f.network)
	var published string // the server of the last document
	before, err := bootstraptoken.ReadCacheFile(f.path(cacheFile))
	switch {
	case err == nil:
		published = before.Info.Server
	case !errors.Is(err, fs.ErrNotExist):
		f.log.Warn("the stored discovery document is not used", "why", err.Error())
	}
	known := &bootstraptoken.Cache{Info: &bootstraptoken.ClusterInfo{Server: own.server, CAs: own.cas}, Addresses: f.addresses}
	opts := bootstraptoken.RefreshOptions{Network: network}
	if published != "" {
		opts.Addresses = []string{published}
	}
	next, _, err := known.Refresh(ctx, opts)
	switch {
	case errors.Is(err, bootstraptoken.CheckCertificate):
		return fmt.Errorf("%w (%w)", errUnknownCA, err)
	case err != nil:
		return err
	}
	old, kubelets, err := f.inUse(own)
	if err != nil {
		return err
	}
	servers := slices.Concat([]string{own.server}, f.addresses, opts.Addresses, []string{next.Info.Server}, kubelets)
	if err := checkDropped(ctx, network, old, next.Info.CAs, servers); err != nil {
		return err
	}
	if err := own.unchanged(own.cas); err != nil {
		return err
	}
	if err := f.writeCAs(own, next.Info.CAs); err != nil {
		return err
	}
	if published == own.server && next.Info.Server != published { // else the operator has chosen another
		if err := f.move(ctx, network, own, next.Info); err != nil {
			return err
		}
	}
	return next.WriteFile(f.path(cacheFile))
}

// checkDropped refuses a bundle without a CA by which one of the servers still serves. A server that does
// not answer is not waited for, nor one that neither bundle verifies.
func checkDropped(ctx context.Context, network bootstraptoken.Network, old, next []*x509.Certificate, servers []string) error {
	if within(old, next) {
		return nil
	}
	slices.Sort(servers)
	for _, server := range slices.Compact(servers) {
		cut := errors.Is(probe(ctx, network, server, next), bootstraptoken.CheckCertificate) && !errors.Is(probe(ctx, network, server, old), bootstraptoken.CheckCertificate)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case cut:
			return &refusal.Error{Check: checkInUse, Got: "a discovery document without the CA by which " + refusal.Text(server) + " serves", Want: "that CA, until the server has a certificate of another"}
		}
	}
	return nil
}

// within reports whether every CA of a is in b.
func within(a, b []*x509.Certificate) bool {
	return !slices.ContainsFunc(a, func(ca *x509.Certificate) bool { return !slices.ContainsFunc(b, ca.Equal) })
}

// probe asks one server for the document by these CAs.
func probe(ctx context.Context, network bootstraptoken.Network, server string, cas []*x509.Certificate) error {
	network.Timeout, network.RequestTimeout = probeLimit, probeLimit
	_, err := bootstraptoken.Refresh(ctx, &bootstraptoken.ClusterInfo{Server: serverURL(server), CAs: cas}, bootstraptoken.RefreshOptions{Network: network})
	return err
}
