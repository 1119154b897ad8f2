package controller

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// refuses has a reconciler deny the request of a node, which is then as the API server has it.
func (w *world) refuses(name, node string, why error) *certificatesv1.CertificateSigningRequest {
	w.Helper()
	request := testkit.Must(csr.Create(csr.PurposeClient, testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), node, csr.CreateOptions{}))
	w.providers.verify = refuse(why)
	w.create(name, builtIn, func(o *certificatesv1.CertificateSigningRequest) {
		o.Spec.Request = testkit.Must((&csr.Bundle{Request: request}).Spec(builtIn, 3600)).Request
	})
	return w.mustReconcile(name, builtIn)
}

// told runs what waits in the queue, and reports whether the time of the request's denial was changed, and nothing else.
func (w *world) told(before *certificatesv1.CertificateSigningRequest) bool {
	w.Helper()
	w.now = w.now.Add(time.Minute)
	for len(w.reconciler.refused.queue) != 0 {
		w.reconciler.touch(w.Context(), <-w.reconciler.refused.queue)
	}
	after := w.get(before.Name)
	a, b := before.Status.Conditions[0], after.Status.Conditions[0]
	told := !a.LastUpdateTime.Equal(&b.LastUpdateTime)
	a.LastUpdateTime = b.LastUpdateTime
	if a != b || len(after.Status.Conditions) != 1 || len(after.Status.Certificate) != 0 {
		w.Errorf("got %+v, want %+v", after.Status, before.Status)
	}
	return told
}

// TestChanges: a node whose record changes after its machine was refused is told, once, and no other.
func TestChanges(t *testing.T) {
	member := &attest.Error{Check: attest.CheckMembership, Err: &attest.Error{Check: "registry-name", Got: "machine ek:1", Want: "that of node n, ek:2"}}
	evidence := &attest.Error{Check: attest.CheckQualifyingData, Got: "others", Want: "these"}
	for name, c := range map[string]struct {
		why     error
		changed string
		want    bool
	}{
		"its own record":                      {member, "node-1", true},
		"another node's record":               {member, "node-2", false},
		"evidence that no record makes right": {evidence, "node-1", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			changed := func(node string) { w.reconciler.refused.change(node, w.now) }
			before := w.refuses("r", "node-1", c.why)
			changed(c.changed)
			if told := w.told(before); told != c.want {
				t.Errorf("told: %t, want %t", told, c.want)
			}
			before = w.get("r")
			changed(c.changed)
			if w.told(before) {
				t.Error("it was told a second time")
			}
		})
	}
}

// TestChangesMeanwhile: a record that changes while the request is decided counts too, and one that changed before
// does not.
func TestChangesMeanwhile(t *testing.T) {
	member := &attest.Error{Check: attest.CheckMembership, Err: errors.New("another machine")}
	for name, c := range map[string]struct {
		at   time.Duration
		want bool
	}{"before": {-time.Second, false}, "meanwhile": {time.Second, true}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.reconciler.refused.change("node-1", w.now.Add(c.at))
			if told := w.told(w.refuses("r", "node-1", member)); told != c.want {
				t.Errorf("told: %t, want %t", told, c.want)
			}
		})
	}
}

// TestChangesFlood: changes and refusals without end neither wait nor grow.
func TestChangesFlood(t *testing.T) {
	f := newRefused()
	f.requests.Put("node-1", new(certificatesv1.CertificateSigningRequest))
	for range 3 * refusedSize {
		f.change("node-1", time.Now())
	}
	if n := len(f.queue); n != refusedSize {
		t.Errorf("%d in the queue", n)
	}
}

// TestHintEnds: the hints end with the manager, and a request that is gone is no error.
func TestHintEnds(t *testing.T) {
	w := newWorld(t, nil)
	w.reconciler.refused.requests.Put("node-1", new(certificatesv1.CertificateSigningRequest))
	w.reconciler.touch(t.Context(), "node-1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.reconciler.hint(ctx); err != nil {
		t.Error(err)
	}
}
