package membership

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// simulation is several control planes over one store, in simulated time: clocks apart, both
// Kubernetes' signer and one of ours, processes that die between approval and certificate, stale
// caches, releases, Nodes that come and go, and long waits.
type simulation struct {
	*rand.Rand
	t        *testing.T
	now      time.Time
	road     attest.Road
	scope    Scope
	withUID  bool
	firstUse []*FirstUse
	registry Registry
	offsets  []time.Duration // of the clock of each control plane
	nodes    map[string]bool
	machines map[string]string // UID of the inventory's machine, by node name
	uids     int
	released map[attest.Identity]bool
	approved []simulatedApproval
	issued   []simulatedCertificate
	checked  map[string]*csr.Checked
	refused  int
}

type simulatedApproval struct {
	at     time.Time
	result *attest.Result
	plane  int
}

type simulatedCertificate struct {
	name    string
	machine attest.Identity
	end     time.Time
}

// staleRegistry answers most look-ups with the answer that it gave before.
type staleRegistry struct {
	Registry
	sim    *simulation
	before map[string]*Record
}

func (s *staleRegistry) Lookup(ctx context.Context, name string) (*Record, error) {
	if record, ok := s.before[name]; ok && s.sim.IntN(3) > 0 {
		return record, nil
	}
	record, err := s.Registry.Lookup(ctx, name)
	if err == nil {
		s.before[name] = record
	}
	return record, err
}

// TestFirstUseSimulation: at no time have two machines certificates of one name, and no machine
// that was not released has certificates of two names. 24 simulations of 6,000 steps with
// NODEATTEST_LONG=1, a tenth otherwise.
func TestFirstUseSimulation(t *testing.T) {
	steps := 600
	if os.Getenv("NODEATTEST_LONG") == "1" {
		steps = 6000
	}
	issued := 0
	for seed := range uint64(24) {
		s := newSimulation(t, seed)
		for range steps {
			s.step()
		}
		issued += len(s.issued)
		if t.Failed() {
			t.Fatalf("seed %d, %s", seed, s.road)
		}
	}
	if issued < steps {
		t.Errorf("%d certificates: the test proves nothing", issued)
	}
	t.Logf("%d certificates", issued)
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	t.Helper()
	s := &simulation{Rand: rand.New(rand.NewPCG(seed, 7)), t: t, now: testTime(),
		scope: []Scope{{Road: attest.RoadAK}, {Road: attest.RoadEK, IdentityClass: "P-256"}, {Road: attest.RoadDocument, Provider: "gce"}}[seed%3],
		nodes: map[string]bool{}, machines: map[string]string{}, released: map[attest.Identity]bool{}, checked: map[string]*csr.Checked{}}
	s.road, s.scope.Cluster = s.scope.Road, testCluster
	s.withUID = s.road == attest.RoadEK || seed%2 == 0
	store := newMemoryStore()
	for n := range 3 {
		s.offsets = append(s.offsets, time.Duration(s.IntN(60)-30)*time.Second)
		now := func() time.Time { return s.now.Add(s.offsets[n]) }
		registry := testkit.Must(NewRegistry(s.scope, store, RegistryOptions{Now: now}))
		c := FirstUseConfig{Registry: registry, MaxLifetime: testLifetime, Now: now,
			NodeExists: func(_ context.Context, name string) (bool, error) { return s.nodes[name], nil }}
		if n == 2 {
			c.Stale = &staleRegistry{registry, s, map[string]*Record{}}
		}
		f := testkit.Must(NewFirstUse(c))
		f.own = []string{csr.SignerClientTPM}
		s.firstUse, s.registry = append(s.firstUse, f), registry
	}
	return s
}

// step does one thing at random.
func (s *simulation) step() {
	name := oneOf(s, []string{"node-1", "node-2", "node-3"})
	switch s.IntN(12) {
	case 0, 1, 2, 3, 4:
		s.ask(name, s.IntN(4))
	case 5, 6, 7:
		if len(s.approved) > 0 {
			n := s.IntN(len(s.approved))
			a := s.approved[n]
			s.approved = slices.Delete(s.approved, n, n+1)
			s.issue(a)
		}
	case 8:
		s.now = s.now.Add(time.Duration(s.IntN(90)) * time.Second)
	case 9:
		s.now = s.now.Add(time.Duration(s.IntN(3600)) * time.Second)
		if s.IntN(6) == 0 {
			s.now = s.now.Add(time.Duration(s.IntN(40)) * time.Hour)
		}
	case 10:
		delete(s.nodes, name)
	case 11:
		if s.IntN(8) == 0 {
			s.release(name)
		}
	}
}

func oneOf[T any](s *simulation, all []T) T { return all[s.IntN(len(all))] }

// ask has a machine ask one of the control planes for a certificate of a name.
func (s *simulation) ask(name string, machine int) {
	n, class := s.IntN(len(s.firstUse)), oneOf(s, []csr.RequesterClass{csr.RequesterBootstrap, csr.RequesterBootstrap, csr.RequesterNode})
	r := attest.NewResult(attest.StageAnswer, s.request(name, class))
	r.Provider, r.Road, r.IdentityClass = "tpm", s.road, s.scope.IdentityClass
	r.Machine = attest.Identity(fmt.Sprintf("%s:%d", map[attest.Road]string{attest.RoadAK: "ak", attest.RoadEK: "ek", attest.RoadDocument: "gce"}[s.road], machine))
	if s.scope.Provider != "" {
		r.Provider = s.scope.Provider
	}
	if s.IntN(3) == 0 {
		r.SignerName = csr.SignerKubeAPIServerClientKubelet
	}
	switch err := attest.AskMembership(s.t.Context(), s.firstUse[n], r); {
	case err != nil:
		s.refused++
	case s.IntN(5) > 0: // otherwise the process dies
		s.approved = append(s.approved, simulatedApproval{s.now, r, n})
	}
}

// request returns the checked request for a name.
func (s *simulation) request(name string, class csr.RequesterClass) *csr.Checked {
	if s.withUID && s.machines[name] == "" {
		s.uids++
		s.machines[name] = fmt.Sprint("uid-", s.uids)
	}
	key := fmt.Sprint(name, class, s.machines[name])
	if s.checked[key] == nil {
		s.checked[key] = checkedRequest(s.t, name, class, csr.PurposeClient, csr.Machine{Name: "m", UID: s.machines[name]})
	}
	return s.checked[key]
}

// issue has the request's signer issue the certificate for an approval.
func (s *simulation) issue(a simulatedApproval) {
	if s.now.Sub(a.at) > message.MaxAnswerAge { // too old: no signer issues for it
		return
	}
	c := simulatedCertificate{a.result.NodeName, a.result.Machine, s.now.Add(testLifetime)}
	if a.result.SignerName == csr.SignerClientTPM {
		now := s.now.Add(s.offsets[a.plane])
		grant := a.result.Attested().Grant()
		c.end = now.Add(testLifetime)
		if grant.NotAfter.Before(c.end) {
			c.end = grant.NotAfter
		}
		record, err := a.result.Attested().Record(nil)
		if err != nil {
			s.t.Fatal(err)
		}
		record.CredentialID, record.NotBefore, record.NotAfter = fmt.Sprint("X509SHA256=", s.Uint64()), now, c.end
		if err := grant.Record(s.t.Context(), record); err != nil {
			s.refused++
			return
		}
	}
	for _, other := range s.issued {
		switch {
		case !other.end.After(s.now):
		case other.name == c.name && other.machine != c.machine:
			s.t.Errorf("at %v %s goes to %s, while %s has a certificate until %v", s.now, c.name, c.machine, other.machine, other.end)
		case other.machine == c.machine && other.name != c.name && !s.released[c.machine]:
			s.t.Errorf("at %v machine %s has %s and %s", s.now, c.machine, other.name, c.name)
		}
	}
	s.issued = append(s.issued, c)
	if s.IntN(2) == 0 {
		s.nodes[c.name] = true
	}
}

// release releases the record of a name: its machine is gone.
func (s *simulation) release(name string) {
	record, err := s.registry.Lookup(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	if record == nil {
		return
	}
	ok, err := s.registry.Release(s.t.Context(), name, record.MachineUID)
	if err != nil {
		s.t.Fatal(err)
	}
	if ok {
		s.released[record.Machine] = true
		delete(s.machines, name)
	}
}
