package controller

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// servingPolicy is one of kubelets' own requests, whose certificates last as long as
// --cluster-signing-duration says.
func servingPolicy(duration time.Duration) *csr.Policy {
	return &csr.Policy{ClusterIDs: []string{"a-cluster"}, SignerNames: []string{csr.SignerKubeletServing}, BuiltInSignerDuration: duration,
		Machines: func(context.Context, csr.Question) (*csr.Machine, error) {
			return &csr.Machine{Name: "machine-1", UID: "uid-1", NodeName: "node-1", BootstrapReady: true, DNSNames: []string{"node-1"}}, nil
		}}
}

// asksToServe is a kubelet's own request, filed with its client certificate.
func asksToServe(t *testing.T) func(o *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	der := testkit.Must(csr.Create(csr.PurposeServing, key, "node-1", csr.CreateOptions{DNSNames: []string{"node-1"}}))
	spec := testkit.Must((&csr.Bundle{Request: der}).Spec(csr.SignerKubeletServing, 0))
	return func(o *certificatesv1.CertificateSigningRequest) {
		o.Spec.Request, o.Spec.Username, o.Spec.Groups = spec.Request, csr.NodeUserPrefix+"node-1", []string{csr.NodesGroup, csr.AuthenticatedGroup}
		o.Spec.Extra = map[string]certificatesv1.ExtraValue{csr.ExtraCredentialID: {"X509SHA256=00"}}
		for _, usage := range spec.Usages {
			o.Spec.Usages = append(o.Spec.Usages, certificatesv1.KeyUsage(usage))
		}
	}
}

// TestServingEnds: a kubelet's serving certificate is approved if it ends while the name of the node
// is kept, and within the longest lifetime since its client certificate began. If not, the request
// waits, and the log says why.
func TestServingEnds(t *testing.T) {
	for name, row := range map[string]struct {
		begun, lastEnd time.Duration // of the client certificate and the record
		approved       bool
	}{
		"as long as the client certificate":          {0, 26 * time.Hour, true},
		"the client certificate is to be renewed":    {-10 * time.Hour, 16 * time.Hour, true},
		"the longest lifetime would have passed":     {-12 * time.Hour, 48 * time.Hour, false},
		"the name would not be kept for that long":   {0, 12 * time.Hour, false},
		"the client certificate ends in two minutes": {-24*time.Hour + 2*time.Minute, 2 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := new(raised)
			w := newWorld(t, func(c *Config) { c.Registry, c.Serving = r, servingPolicy(12*time.Hour) })
			r.record = &membership.Record{State: membership.StateBound, LastEnd: w.now.Add(row.lastEnd), Issued: []csr.IssuedRecord{{CredentialID: "X509SHA256=00", NodeName: "node-1",
				SignerName: builtIn, Machine: "ek:1", MachineUID: "uid-1", NotBefore: w.now.Add(row.begun), NotAfter: w.now.Add(2 * time.Minute)}}}
			w.create("r", csr.SignerKubeletServing, asksToServe(t))
			_, err := w.reconcile("r", csr.SignerKubeletServing)
			if conditions := w.get("r").Status.Conditions; (len(conditions) == 1) != row.approved || (err == nil) != row.approved {
				t.Errorf("got %+v, %v", conditions, err)
			}
			if !row.approved && (!errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), "BuiltInSignerDuration")) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestCountServing: a serving certificate that was signed long after its approval keeps the name of
// its node. If that cannot be written, it is tried again.
func TestCountServing(t *testing.T) {
	lost := &attest.Error{Check: membership.CheckRegistryConflict, Err: refusal.ErrRetry}
	for name, row := range map[string]struct {
		record *membership.Record
		late   time.Duration
		err    error
		raised bool
	}{
		"in time":              {&membership.Record{State: membership.StateBound}, 0, nil, false},
		"late":                 {&membership.Record{State: membership.StateBound}, time.Second, nil, true},
		"late, and lost":       {&membership.Record{State: membership.StateBound}, time.Second, lost, true},
		"of a name that rests": {&membership.Record{State: membership.StateResting}, time.Second, nil, false},
		"of a name reserved":   {&membership.Record{State: membership.StateReserved}, time.Second, nil, false},
		"of no record":         {nil, time.Second, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &raised{err: row.err}
			w := newWorld(t, func(c *Config) { c.Registry, c.Serving = r, servingPolicy(time.Hour) })
			end := w.now.Add(time.Hour).Truncate(time.Second)
			if r.record = row.record; r.record != nil {
				r.record.LastEnd = end
			}
			w.create("r", csr.SignerKubeletServing, signed(t, end.Add(row.late)))
			for range 2 {
				if _, err := w.reconcile("r", csr.SignerKubeletServing); !errors.Is(err, row.err) {
					t.Errorf("got %v, want %v", err, row.err)
				}
			}
			want := 0
			if row.raised {
				if want = 1; row.err != nil {
					want = 2
				}
			}
			if len(r.ends) != want || want > 0 && !r.ends[0].Equal(end.Add(row.late)) {
				t.Errorf("the last end was raised to %v, want %d times", r.ends, want)
			}
			if len(w.writes) != 0 {
				t.Errorf("writes %v", w.writes)
			}
		})
	}
	w := newWorld(t, func(c *Config) { c.Registry, c.Serving = new(raised), servingPolicy(time.Hour) })
	w.create("r", csr.SignerKubeletServing, func(o *certificatesv1.CertificateSigningRequest) {
		approvedBy(o)
		o.Status.Certificate = []byte("none")
	})
	w.mustReconcile("r", csr.SignerKubeletServing)
}
