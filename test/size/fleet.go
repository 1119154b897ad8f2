package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A fleet is all nodes of a run.
type fleet struct {
	url, clusterID string
	roots          *x509.CertPool
	lastPause      time.Duration // the longest after failures
	nodes          []*node

	mu    sync.Mutex
	state map[*node]held
	count int            // certificates that were obtained
	ended int            // certificates that ended before the next one was there
	why   map[string]int // failed attempts, by their reasons
}

// held is a node's certificate: when it came, when it is renewed, and when it ends.
type held struct{ received, renew, end time.Time }

// newFleet makes nodes: with evidence if there is a CA that certifies endorsement keys. Node i has the
// bootstrap token tokenOf(i).
func newFleet(nodes int, ca *tpmsim.CA) (*fleet, error) {
	f := &fleet{state: map[*node]held{}, why: map[string]int{}, lastPause: lastPause}
	for i := range nodes {
		n := &node{name: fmt.Sprintf("node-%05d", i), token: tokenID(i) + "." + tokenSecret, fleet: f, kick: make(chan struct{}, 1)}
		if ca != nil {
			t, err := newSoftTPM(ca)
			if err != nil {
				return nil, err
			}
			if n.attester, err = attest.NewAttester(t); err != nil {
				return nil, err
			}
			n.identity = t.identity()
		}
		f.nodes = append(f.nodes, n)
	}
	return f, nil
}

// tokenSecret is the secret of all bootstrap tokens of a run.
const tokenSecret = "0123456789abcdef"

// tokenID is that of a node's bootstrap token, six characters.
func tokenID(i int) string { return "n" + strconv.FormatInt(int64(36*36*36*36+i), 36) }

// start starts all nodes at once, until ctx ends.
func (f *fleet) start(ctx context.Context) (wait func()) {
	var all sync.WaitGroup
	for _, n := range f.nodes {
		all.Go(func() { n.run(ctx) })
	}
	return all.Wait
}

// got notes that a node has a new certificate, and returns when it renews it: between 65 and 80 % of the
// lifetime, at random, as package nodecert has it.
func (f *fleet) got(n *node) time.Time {
	now, leaf := time.Now(), n.credential.Leaf
	f.mu.Lock()
	defer f.mu.Unlock()
	if had, ok := f.state[n]; ok && had.end.Before(now) {
		f.ended++
	}
	f.count++
	h := held{now, now.Add(time.Duration((0.65 + 0.15*rand.Float64()) * float64(leaf.NotAfter.Sub(now)))), leaf.NotAfter}
	f.state[n] = h
	return h.renew
}

// failed notes why an attempt failed.
func (f *fleet) failed(n *node, err error) {
	reason := string(apierrors.ReasonForError(err))
	if reason == "" {
		reason = err.Error()
		reason = reason[:min(len(reason), 160)]
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.why) < 20 || f.why[reason] != 0 {
		f.why[reason]++
	}
}

// failures returns why attempts have failed since the last call.
func (f *fleet) failures() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	why := f.why
	f.why = map[string]int{}
	return why
}

// counts returns how many certificates were obtained, and how many ended before the next one was there.
func (f *fleet) counts() (got, ended int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count, f.ended
}

// since counts the nodes of some whose certificate came after a time.
func (f *fleet) since(at time.Time, of []*node) (some int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range of {
		if f.state[n].received.After(at) {
			some++
		}
	}
	return some
}

// all has every node renew now.
func (f *fleet) all() {
	for _, n := range f.nodes {
		select {
		case n.kick <- struct{}{}:
		default: // it is told already
		}
	}
}

// final reports whether an error goes away only with another attempt.
func final(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
}
