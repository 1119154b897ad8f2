package insecure

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/refusal"
)

const clusterID = "cluster-1"

// world is a cluster with one machine that cannot attest, node-1.
type world struct {
	*testing.T
	*Providers
	store   *objectstore.Store
	ca      *csr.CA
	machine csr.Machine
	nodes   map[string]bool
	noNodes error         // of reading a Node
	later   time.Duration // added to the CA's clock
	filed   int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, store: objectstore.New(), nodes: map[string]bool{},
		machine: csr.Machine{Name: "node-1", NodeName: "node-1", UID: "u1", Provider: "insecure", BootstrapReady: true}}
	records, err := registry.New(Scope(clusterID), w.store, w.store, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.Providers, err = New(Config{Policy: w.policy(csr.SignerClientInsecure), Registry: records, NodeExists: w.nodeExists})
	if err != nil {
		t.Fatal(err)
	}
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "nodes without evidence"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if w.ca, err = csr.NewCA([]*x509.Certificate{{Raw: der}}, key, csr.CAConfig{SignerNames: []string{csr.SignerClientInsecure}, ClusterIDs: []string{clusterID}, MaxLifetime: 20 * time.Minute,
		Now: func() time.Time { return time.Now().Add(w.later) }}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) policy(signers ...string) *csr.Policy {
	return &csr.Policy{SignerNames: signers, ClusterIDs: []string{clusterID}, Machines: func(_ context.Context, q csr.Question) (*csr.Machine, error) {
		if q.NodeName != w.machine.NodeName {
			return nil, csr.ErrNoMachine
		}
		m := w.machine
		return &m, nil
	}}
}

func (w *world) nodeExists(_ context.Context, name string) (bool, error) {
	return w.nodes[name], w.noNodes
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// request is a new one of a bootstrap token, with a key of its own.
func (w *world) request(nodeName string) *csr.Request {
	w.Helper()
	der, err := csr.Create(csr.PurposeClient, newKey(w.T), nodeName, csr.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	spec, err := (&csr.Bundle{Request: der}).Spec(csr.SignerClientInsecure, 3600)
	if err != nil {
		w.Fatal(err)
	}
	w.filed++
	r := &csr.Request{Metadata: csr.Metadata{Name: "r", UID: fmt.Sprint("request-", w.filed), CreationTimestamp: time.Now().Truncate(time.Second)}, Spec: *spec}
	r.User.Username, r.User.Groups = csr.BootstrapUserPrefix+fmt.Sprintf("token%d", w.filed%10), []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}
	return r
}

// issue has a request verified and its certificate issued.
func (w *world) issue(r *csr.Request) (*csr.Issued, error) {
	w.Helper()
	attested, err := w.Verify(w.Context(), r)
	if err != nil {
		return nil, err
	}
	return w.ca.Issue(w.Context(), attested)
}

// mustIssue is issue, which must succeed.
func (w *world) mustIssue(r *csr.Request) {
	w.Helper()
	if _, err := w.issue(r); err != nil {
		w.Fatal(err)
	}
}

// refused has a request denied by a check before approval.
func (w *world) refused(r *csr.Request, check refusal.Check) {
	w.Helper()
	if _, err := w.Verify(w.Context(), r); !errors.Is(err, check) || csr.Decide(err).Verdict != csr.VerdictDeny {
		w.Errorf("got %v (%s), want it denied by %s", err, csr.Decide(err).Verdict, check)
	}
}

// record stores a node's record.
func (w *world) record(nodeName string, s v1alpha1.AttestedNodeSpec) {
	w.Helper()
	if err := w.store.Create(w.Context(), &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: nodeName}, Spec: s}); err != nil {
		w.Fatal(err)
	}
}

// TestOnce: the name's first request gets a certificate, and again if that was lost. A request with another
// key gets none, whatever its token, until an operator has released the name.
func TestOnce(t *testing.T) {
	w := newWorld(t)
	first, second := w.request("node-1"), w.request("node-1")
	if _, err := w.Verify(t.Context(), second); err != nil {
		t.Fatalf("while the name is free: %v", err)
	}
	w.mustIssue(first)
	w.nodes["node-1"] = true
	w.mustIssue(first)
	w.refused(second, checkUsed)
	again := w.request("node-1")
	again.User = first.User // the token of the first
	w.refused(again, checkUsed)
	w.sameKey(first)

	var record v1alpha1.AttestedNode
	if err := w.store.Get(t.Context(), client.ObjectKey{Name: "node-1"}, &record); err != nil || record.Spec.State != v1alpha1.NodeBound ||
		record.Spec.Scope != "insecure document" || record.Spec.MachineUID != "" || record.Spec.Certificates[0].MachineUID != "" || record.Spec.Machine != "insecure:node-1" || len(record.Spec.Certificates) != 3 || record.Spec.Certificates[0].SignerName != csr.SignerClientInsecure {
		t.Errorf("recorded: %+v, %v", record.Spec, err)
	}
	if released, err := w.c.Registry.Release(t.Context(), "node-1", ""); err != nil || !released {
		t.Fatal(released, err)
	}
	w.refused(second, checkUsed) // the first certificate is valid, and the record was not deleted
	if err := w.store.Get(t.Context(), client.ObjectKey{Name: "node-1"}, &record); err != nil {
		t.Fatal(err)
	}
	if err := w.store.Delete(t.Context(), &record); err != nil {
		t.Fatal(err)
	}
	w.refused(second, checkNode)
	delete(w.nodes, "node-1")
	w.mustIssue(second)
	w.refused(first, checkUsed)
}

// sameKey has the node ask again later, as after a restart of its program: the certificate ends with the
// first.
func (w *world) sameKey(first *csr.Request) {
	w.Helper()
	before, err := w.c.Registry.Lookup(w.Context(), "node-1")
	if err != nil {
		w.Fatal(err)
	}
	again := *first
	again.Metadata.UID, again.User.Username = "another", csr.BootstrapUserPrefix+"abcdef"
	w.later = 10 * time.Minute
	issued, err := w.issue(&again)
	if err != nil {
		w.Fatal(err)
	}
	after, err := w.c.Registry.Lookup(w.Context(), "node-1")
	if err != nil || issued.Certificate.NotAfter.After(before.LastEnd) || !after.LastEnd.Equal(before.LastEnd) {
		w.Errorf("the same key until %s, and the name until %s, %v; want %s", issued.Certificate.NotAfter, after.LastEnd, err, before.LastEnd)
	}
	w.later = 21 * time.Minute
	if _, err := w.issue(&again); !errors.Is(err, csr.Check("verified-expired")) {
		w.Errorf("when it has ended: %v", err)
	}
	w.later = 0
}

// TestTwoAtOnce has two requests verified before one of them is signed.
func TestTwoAtOnce(t *testing.T) {
	w := newWorld(t)
	var verified []*csr.Attested
	for range 2 {
		attested, err := w.Verify(t.Context(), w.request("node-1"))
		if err != nil {
			t.Fatal(err)
		}
		verified = append(verified, attested)
	}
	_, err1 := w.ca.Issue(t.Context(), verified[0])
	_, err2 := w.ca.Issue(t.Context(), verified[1])
	if err1 != nil || !errors.Is(err2, checkUsed) {
		t.Errorf("got %v and %v, want one certificate", err1, err2)
	}
	w = newWorld(t)
	attested, err := w.Verify(t.Context(), w.request("node-1"))
	if err != nil {
		t.Fatal(err)
	}
	w.record("node-1", v1alpha1.AttestedNodeSpec{Scope: "ak", Machine: "ak:sha256:00", State: v1alpha1.NodeBound}) // meanwhile
	if _, err := w.ca.Issue(t.Context(), attested); !errors.Is(err, checkAttested) {
		t.Errorf("of a machine that has attested: %v", err)
	}
}

// TestReservedMeanwhile has another request reserve the name between the reservation and the write
// that binds it.
func TestReservedMeanwhile(t *testing.T) {
	w := newWorld(t)
	one, other := w.request("node-1"), w.request("node-1")
	interrupted := false
	w.store.Fault(func(write int) (before, after error) { // the name, the machine: bound is the third
		if write == 3 && !interrupted {
			interrupted = true
			return errors.New("the process ends"), nil
		}
		return nil, nil
	})
	if _, err := w.issue(one); err == nil || csr.Decide(err).Verdict != csr.VerdictRetry {
		t.Fatalf("interrupted: %v", err)
	}
	w.mustIssue(other) // no certificate has left
	w.refused(one, checkUsed)
}

// TestAttested: a name with evidence, in the inventory or the records, is refused.
func TestAttested(t *testing.T) {
	end := &metav1.Time{Time: time.Now().Add(time.Hour)}
	for name, row := range map[string]struct {
		record v1alpha1.AttestedNodeSpec
		check  refusal.Check // "": it is admitted
	}{
		"bound by its TPM": {v1alpha1.AttestedNodeSpec{Scope: "ek RSA-2048", Machine: "ek:sha256:00", State: v1alpha1.NodeBound, LastEnd: end}, checkAttested},
		"bound by its TPM, its last certificate ended": {v1alpha1.AttestedNodeSpec{Scope: "ek RSA-2048", Machine: "ek:sha256:00", State: v1alpha1.NodeBound,
			LastEnd: &metav1.Time{Time: time.Now().Add(-time.Hour)}}, checkAttested},
		"approved by an operator": {v1alpha1.AttestedNodeSpec{Scope: "ak", Machine: "ak:sha256:00", State: v1alpha1.NodeBound}, checkAttested},
		"reserved by a document":  {v1alpha1.AttestedNodeSpec{Scope: "gce document", Machine: "gce:p/1", State: v1alpha1.NodeReserved, Deadline: end}, checkAttested},
		"rests":                   {v1alpha1.AttestedNodeSpec{Scope: "ek RSA-2048", Machine: "ek:sha256:00", State: v1alpha1.NodeResting, LastEnd: end}, checkAttested},
		"has rested": {v1alpha1.AttestedNodeSpec{Scope: "ek RSA-2048", Machine: "ek:sha256:00", State: v1alpha1.NodeResting,
			LastEnd: &metav1.Time{Time: time.Now().Add(-time.Hour)}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.record("node-1", row.record)
			if row.check == "" {
				w.mustIssue(w.request("node-1"))
			} else {
				w.refused(w.request("node-1"), row.check)
			}
		})
	}
	for name, change := range map[string]func(*csr.Machine){
		"known by its TPM":      func(m *csr.Machine) { m.Provider = "tpm" },
		"known by its identity": func(m *csr.Machine) { m.Identity = "ek:sha256:00" },
		"known by nothing yet":  func(m *csr.Machine) { m.Provider = "" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			change(&w.machine)
			w.refused(w.request("node-1"), "inventory-machine")
		})
	}
}

// TestNobodyAttests has nodes that attest ask for a name that was given without evidence. The
// inventory's machine is theirs.
func TestNobodyAttests(t *testing.T) {
	w := newWorld(t)
	w.mustIssue(w.request("node-1"))
	byTPM, err := registry.New(membership.Scope{Cluster: clusterID, Road: attest.RoadEK, IdentityClass: "RSA-2048"}, w.store, w.store, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	claim := membership.Claim{NodeName: "node-1", Machine: "ek:sha256:00", MachineUID: "u2"}
	if _, err := byTPM.Reserve(t.Context(), claim, time.Now().Add(time.Minute)); !errors.Is(err, membership.CheckRegistryScope) {
		t.Errorf("the name: %v", err)
	}
	claim.NodeName, claim.MachineUID = "node-2", "u1"
	if _, err := byTPM.Reserve(t.Context(), claim, time.Now().Add(time.Minute)); err != nil {
		t.Errorf("the inventory's machine, which no record without evidence keeps: %v", err)
	}
}

// TestRequests changes one thing after the other in a good request.
func TestRequests(t *testing.T) {
	for name, row := range map[string]struct {
		change  func(w *world, r *csr.Request)
		verdict csr.Verdict
	}{
		"a good one": {func(*world, *csr.Request) {}, csr.VerdictApprove},
		"a node renews": {func(_ *world, r *csr.Request) {
			r.User.Username, r.User.Groups = csr.NodeUserPrefix+"node-1", []string{csr.NodesGroup, csr.AuthenticatedGroup}
		}, csr.VerdictDeny},
		"a recovery user": {func(_ *world, r *csr.Request) {
			r.User.Username, r.User.Groups = csr.RecoveryUserPrefix+"node-1", []string{csr.RecoveryGroup, csr.AuthenticatedGroup}
		}, csr.VerdictDeny},
		"a serving certificate":          {func(_ *world, r *csr.Request) { r.Spec.Usages[1] = "server auth" }, csr.VerdictDeny},
		"another node's name":            {func(w *world, r *csr.Request) { r.Spec = w.request("node-2").Spec }, csr.VerdictDeny},
		"a name without a ready machine": {func(w *world, _ *csr.Request) { w.machine.BootstrapReady = false }, csr.VerdictDeny},
		"the signer of TPMs":             {func(_ *world, r *csr.Request) { r.Spec.SignerName = csr.SignerClientTPM }, csr.VerdictIgnore},
		"Kubernetes' own signer":         {func(_ *world, r *csr.Request) { r.Spec.SignerName = csr.SignerKubeAPIServerClientKubelet }, csr.VerdictIgnore},
		"a serving signer of its own":    {func(_ *world, r *csr.Request) { r.Spec.SignerName = "cluster.x-k8s.io/kubelet-serving-insecure" }, csr.VerdictIgnore},
		"Nodes cannot be read":           {func(w *world, _ *csr.Request) { w.noNodes = errors.New("no answer") }, csr.VerdictRetry},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := w.request("node-1")
			row.change(w, r)
			attested, err := w.Verify(t.Context(), r)
			decision := csr.Decide(err)
			if err == nil {
				decision = attested.Decision()
			}
			if decision.Verdict != row.verdict {
				t.Errorf("got %s: %v, want %s", decision.Verdict, err, row.verdict)
			}
		})
	}
}

func TestNew(t *testing.T) {
	w := newWorld(t)
	good := w.c
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	byGCE, err := registry.New(membership.Scope{Cluster: clusterID, Provider: "gce", Road: attest.RoadDocument}, w.store, w.store, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := registry.New(Scope("another"), w.store, w.store, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"no policy":                       func(c *Config) { c.Policy = nil },
		"a policy of another signer":      func(c *Config) { c.Policy = w.policy(csr.SignerClientTPM) },
		"a policy of another signer too":  func(c *Config) { c.Policy = w.policy(csr.SignerClientInsecure, csr.SignerClientTPM) },
		"no registry":                     func(c *Config) { c.Registry = nil },
		"the registry of another kind":    func(c *Config) { c.Registry = byGCE },
		"the registry of another cluster": func(c *Config) { c.Registry = elsewhere },
		"no look-up of Nodes":             func(c *Config) { c.NodeExists = nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			change(&c)
			if _, err := New(c); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v", err)
			}
		})
	}
}
