package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// The ways by which nodes get certificates.
const (
	attested = "attested"
	plain    = "plain"
)

// The phases of a run.
const (
	phaseJoin     = "join"     // all nodes start at once
	phaseRenew    = "renew"    // each node renews once, when it is due
	phaseStorm    = "storm"    // the control plane comes back after a third of a lifetime, when all renewals are due
	phaseRestart  = "restart"  // all renew at once, and the controller that leads is killed in the middle
	phaseThrottle = "throttle" // all renew at once, while the API server answers 429
)

// phases are all of them, in the order in which they run.
var phases = []string{phaseJoin, phaseRenew, phaseStorm, phaseRestart, phaseThrottle}

// options are a run's.
type options struct {
	nodes    int
	way      string
	lifetime time.Duration // of the certificates
	qps      int           // of each of Kubernetes' own controllers
	throttle time.Duration
	pause    time.Duration // the longest of a node, if it is not kubelet-authenticator's
	patience time.Duration // for a phase
	phases   []string
	profiles string        // a folder for profiles of the API server, if it is not ""
	done     func(*result) // called after each phase, if it is not nil
}

// A run has one size, one way and a control plane of its own.
type run struct {
	options
	t           testing.TB
	c           *cluster
	fleet       *fleet
	controllers []*program
	crashes     int // of controllers
}

// begin starts the control plane, makes the nodes, and runs the phases.
func begin(t testing.TB, o options) {
	t.Helper()
	r := &run{options: o, t: t, c: startCluster(t, o.lifetime, o.qps)}
	var ca *tpmsim.CA
	var err error
	if o.way == attested {
		ca, err = tpmsim.NewCA(tpmsim.CAOptions{})
		r.c.check(err)
	}
	r.fleet, err = newFleet(o.nodes, ca)
	r.c.check(err)
	if o.pause != 0 {
		r.fleet.lastPause = o.pause
	}
	r.fleet.url, r.fleet.roots = r.c.url, r.c.pool()
	r.fleet.clusterID, err = attest.ClusterID(r.c.ca.Cert)
	r.c.check(err)
	r.c.tokens(o.nodes)
	if o.way == attested {
		r.c.install()
		r.controllers = r.c.startControllers(ca, r.fleet)
	} else {
		r.c.autoApprove()
	}
	ctx, stop := context.WithCancel(t.Context())
	var wait func()
	for _, phase := range phases {
		switch {
		case !slices.Contains(o.phases, phase):
		case phase == phaseJoin:
			r.phase(measured{name: phase, of: r.fleet.nodes, begin: func() { wait = r.fleet.start(ctx) }})
		case phase == phaseRenew:
			r.phase(measured{name: phase, of: r.fleet.nodes})
		case phase == phaseStorm:
			r.storm()
		case phase == phaseRestart && len(r.controllers) != 0:
			r.phase(measured{name: phase, of: r.fleet.nodes, begin: r.fleet.all, each: r.killLeader})
		case phase == phaseThrottle:
			r.phase(measured{name: phase, of: r.fleet.nodes, begin: r.throttled})
		}
	}
	stop()
	if wait != nil {
		wait()
	}
}

// storm takes all programs of the control plane but etcd away, and has all nodes renew meanwhile: after a third
// of a lifetime the renewals of all of them can be due, and their pauses are the longest. The phase is the
// time after the API server is ready again, and the others have been started, until all have renewed.
func (r *run) storm() {
	away := min(r.lifetime/3, longestAway)
	r.t.Logf("%d nodes, %s: the control plane goes away for %s", r.nodes, r.way, away)
	others := append([]*program{r.c.manager}, r.controllers...)
	for _, p := range append(others, r.c.server) {
		p.stop()
	}
	since := time.Now()
	r.fleet.all()
	select {
	case <-r.t.Context().Done():
	case <-time.After(away):
	}
	r.c.check(r.c.server.launch())
	r.c.server.ready(r.c.serves)
	for _, p := range others {
		r.c.check(p.launch())
	}
	r.phase(measured{name: phaseStorm, of: r.fleet.nodes, since: since})
}

// longestAway is enough for the pauses of all nodes to become the longest.
const longestAway = time.Minute

// killLeader kills the controller that leads, once, when a tenth of the nodes has renewed.
func (r *run) killLeader(renewed, nodes int) {
	if r.crashes != 0 || renewed < nodes/10 {
		return
	}
	for _, p := range r.controllers {
		if p.leads() {
			r.t.Logf("%s, which leads, is killed after %d of %d nodes", p.name, renewed, nodes)
			p.crash()
			r.crashes++
		}
	}
}

// throttled has all nodes renew while the API server refuses their requests, and theirs to the controller.
func (r *run) throttled() {
	end := r.c.throttle()
	time.Sleep(time.Second) // until the API server has read it
	r.fleet.all()
	time.Sleep(r.throttle)
	end()
}

// measured is a phase: it lasts until all nodes of a list have a certificate that is newer than since.
type measured struct {
	name  string
	of    []*node
	since time.Time                // the beginning, if it is not set
	begin func()                   // what begins it, or nil
	each  func(renewed, nodes int) // called again and again, if it is not nil
}

// phase runs a phase, and measures it.
func (r *run) phase(m measured) {
	r.t.Helper()
	for _, p := range r.programs() {
		p.resetPeak()
	}
	r.fleet.failures()
	before, crashes := r.read(), r.crashes
	own := processorTime(os.Getpid())
	what := fmt.Sprintf("%d nodes, %s, %s", r.nodes, r.way, m.name)
	r.t.Logf("%s: begins, for %d nodes", what, len(m.of))
	if r.profiles != "" {
		go r.c.profile(filepath.Join(r.profiles, fmt.Sprintf("%s-%d-%s.pprof", r.way, r.nodes, m.name)))
	}
	began := time.Now()
	if m.since.IsZero() {
		m.since = began
	}
	if m.begin != nil {
		m.begin()
	}
	for shown := began; ; time.Sleep(50 * time.Millisecond) {
		renewed := r.fleet.since(m.since, m.of)
		if renewed == len(m.of) {
			break
		}
		if m.each != nil {
			m.each(renewed, len(m.of))
		}
		passed := time.Since(began).Round(time.Second)
		if r.t.Context().Err() != nil || passed > r.patience {
			r.t.Fatalf("%s: %d of %d nodes have a certificate after %s; failed attempts: %v", what, renewed, len(m.of), passed, r.fleet.failures())
		}
		if time.Since(shown) > 15*time.Second {
			shown = time.Now()
			r.t.Logf("%s: %d of %d after %s", what, renewed, len(m.of), passed)
		}
	}
	took := time.Since(began)
	after := r.read()
	result := r.result(m.name, took, &before, &after)
	result.Of, result.Failed = len(m.of), r.fleet.failures()
	result.Crashes = r.crashes - crashes
	result.Clients = (processorTime(os.Getpid()) - own).Seconds()
	r.t.Logf("%v", result)
	if r.done != nil {
		r.done(result)
	}
}

// pool has the cluster's CA.
func (c *cluster) pool() *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(c.ca.Cert)
	return roots
}

func (r *run) programs() []*program {
	return append([]*program{r.c.database, r.c.server, r.c.manager}, r.controllers...)
}
