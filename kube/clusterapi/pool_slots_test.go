package clusterapi

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/refusal"
)

// lister lists AttestedNodes, and calls after once a list has been made.
type lister struct {
	client.Reader
	after func()
	fails error
}

func (l *lister) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	err := errors.Join(l.fails, l.Reader.List(ctx, into, options...))
	if l.after != nil {
		l.after()
	}
	return err
}

// admits is one process that admits machines of a pool.
type admits struct {
	*swept
	*Inventory
	nodesList *lister
	authorize attest.Authorizer
	boards    map[int]int // nodes with another machine than their own
	checked   func()      // is called once a request has been checked
}

// newPooled makes a management cluster with a MachinePool.
func newPooled(t *testing.T, replicas int64) *swept {
	t.Helper()
	s := newSwept(t, 0)
	testkit.NoError(t, s.home.Create(t.Context(), poolOf("v1beta2", "pool", replicas)))
	testkit.NoError(t, s.home.Create(t.Context(), poolConfigOf("v1beta2", "pool", "abcdef")))
	testkit.NoError(t, s.nodes.Create(t.Context(), marks()))
	return s
}

func isOpen() error { return nil }

// process starts a process.
func (s *swept) process(t *testing.T) *admits {
	t.Helper()
	r := s.registry()
	i := newInventory(t, "v1beta2", registry.Several{r}, nil, nil)
	i.live, i.cached, i.pools = s, s.home, &Pools{Reader: s.nodes, Namespace: poolsHome}
	p := &admits{swept: s, Inventory: i, nodesList: &lister{Reader: s.nodes}}
	i.slots = &Slots{Nodes: p.nodesList, Now: s.now, inventory: i}
	first := testkit.Must(membership.NewFirstUse(i.slots.FirstUse(membership.FirstUseConfig{Registry: r, MaxLifetime: 24 * time.Hour, Now: s.now,
		NodeExists: func(context.Context, string) (bool, error) { return false, nil }})))
	p.authorize = i.Authorizer(first)
	return p
}

// ask has the nth machine ask, at some stages, as its node and with a provider ID of its own if claims is set.
func (p *admits) ask(t *testing.T, n int, by csr.User, claims bool, stages ...attest.Stage) error {
	t.Helper()
	name, providerID := fmt.Sprint("node-", n), ""
	if claims {
		providerID = fmt.Sprint("metal://", n)
	}
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	der := testkit.Must(csr.Create(csr.PurposeClient, key, name, csr.CreateOptions{ProviderID: providerID}))
	spec := &csr.Spec{Request: testkit.Must((&csr.Bundle{Request: der, Provider: "tpm/v1", Data: []byte("evidence")}).Marshal()),
		SignerName: csr.SignerKubeAPIServerClientKubelet, Usages: csr.PurposeClient.Usages(false), ExpirationSeconds: new(int32(12 * 3600))}
	policy := &csr.Policy{SignerNames: []string{spec.SignerName}, ClusterIDs: []string{"cluster-1"}, Machines: p.Machine, Now: p.now}
	for _, stage := range stages {
		checked, err := policy.Check(t.Context(), csr.Filed(spec, by, p.now()).Parsed())
		if err != nil {
			return err
		}
		if p.checked != nil {
			p.checked()
		}
		r := attest.NewResult(stage, checked)
		r.Provider, r.Road, r.IdentityClass, r.Machine = "tpm", attest.RoadEK, "RSA-2048", identity(cmp.Or(p.boards[n], n))
		if err := attest.AskMembership(t.Context(), p.authorize, r); err != nil {
			return fmt.Errorf("%s: %w", stage, err)
		}
	}
	return nil
}

func (p *admits) join(t *testing.T, n int) error {
	t.Helper()
	return p.ask(t, n, bootstrap, false, attest.StageHello, attest.StageAnswer)
}

// renew has the nth machine renew with its certificate.
func (p *admits) renew(t *testing.T, n int) error {
	t.Helper()
	return p.ask(t, n, csr.User{Username: fmt.Sprint("system:node:node-", n), Groups: []string{"system:nodes", "system:authenticated"}}, false, attest.StageHello, attest.StageAnswer)
}

// scale sets the replicas of the pool.
func (s *swept) scale(t *testing.T, replicas int64) {
	t.Helper()
	s.change(t, poolOf("v1beta2", "pool", 0), func(o client.Object) { content(o)["spec"].(fields)["replicas"] = replicas })
}

// rotate gives the pool another token.
func (s *swept) rotate(t *testing.T, token string) {
	t.Helper()
	s.change(t, poolConfigOf("v1beta2", "pool", "abcdef"), func(o client.Object) {
		content(o)["spec"] = poolConfigOf("v1beta2", "pool", token).Object["spec"]
	})
}

// bound returns how many nodes are bound.
func (s *swept) bound(t *testing.T) int {
	t.Helper()
	all, _ := s.states(t)
	return len(all)
}

func refused(err error) bool {
	return errors.Is(err, attest.CheckMembership) && csr.Decide(err).Verdict == csr.VerdictDeny
}

// TestPoolOfFive has five machines join a pool of five, and a sixth one that is refused. Nodes renew whatever
// the size of the pool; a slot is free once its record has ended.
func TestPoolOfFive(t *testing.T) {
	s := newPooled(t, 5)
	p := s.process(t)
	for n := range 5 {
		testkit.NoError(t, p.join(t, n))
	}
	record := testkit.Must(s.registry().Lookup(t.Context(), "node-0"))
	if want := string(testUID("pool")) + "/" + string(identity(0)); record.MachineUID != want {
		t.Errorf("the record has Machine UID %s, want %s", record.MachineUID, want)
	}
	if err := p.join(t, 5); !refused(err) || !strings.Contains(err.Error(), "none is free") {
		t.Errorf("a sixth machine: %v", err)
	}
	testkit.NoError(t, p.join(t, 4)) // again
	s.scale(t, 2)
	for n := range 5 {
		testkit.NoError(t, p.renew(t, n))
	}
	testkit.NoError(t, p.join(t, 4)) // it keeps its slot
	s.scale(t, 5)
	testkit.Must(s.registry().Release(t.Context(), "node-3", string(testUID("pool"))+"/"+string(identity(3))))
	if err := p.join(t, 5); !refused(err) {
		t.Errorf("while the released node's name rests: %v", err)
	}
	if err := p.renew(t, 3); !refused(err) {
		t.Errorf("the released node renews: %v", err)
	}
	s.pass(26*time.Hour + slotSlack)
	for n := range 3 {
		testkit.NoError(t, p.join(t, n)) // otherwise their slots are free as well
	}
	testkit.NoError(t, p.join(t, 5))
	testkit.NoError(t, p.join(t, 6)) // the slot of node-4, whose last certificate has ended
	if err := p.join(t, 4); !refused(err) {
		t.Errorf("node-4 is back, and has lost its slot: %v", err)
	}
	s.scale(t, 6)
	testkit.NoError(t, p.join(t, 4))
	s.change(t, poolOf("v1beta2", "pool", 0), func(o client.Object) { o.SetFinalizers([]string{"machinepool.cluster.x-k8s.io"}) })
	testkit.NoError(t, s.home.Delete(t.Context(), poolOf("v1beta2", "pool", 0)))
	if err := p.renew(t, 0); err != nil {
		t.Errorf("a node of a pool that is being deleted renews: %v", err)
	}
}

// TestPoolRebind has a node with another board: it keeps its slot, which is named after the former one.
func TestPoolRebind(t *testing.T) {
	s := newPooled(t, 1)
	p := s.process(t)
	testkit.NoError(t, p.join(t, 1))
	record := testkit.Must(s.registry().Lookup(t.Context(), "node-1"))
	testkit.Must(s.registry().Rebind(t.Context(), record, identity(7)))
	if err := p.renew(t, 1); !refused(err) {
		t.Errorf("the former board: got %v", err)
	}
	p.boards = map[int]int{1: 7}
	testkit.NoError(t, p.renew(t, 1))
	testkit.NoError(t, p.join(t, 1))
	if now := testkit.Must(s.registry().Lookup(t.Context(), "node-1")); now.MachineUID != record.MachineUID {
		t.Errorf("the slot is %s, before %s", now.MachineUID, record.MachineUID)
	}
}

// TestPoolRenews has nodes renew after the provider has filled spec.providerIDList.
func TestPoolRenews(t *testing.T) {
	s := newPooled(t, 5)
	p := s.process(t)
	testkit.NoError(t, p.join(t, 0))
	s.lists(t, "metal://1")
	testkit.NoError(t, p.ask(t, 1, bootstrap, true, attest.StageHello, attest.StageAnswer))
	by := func(n int) csr.User {
		return csr.User{Username: fmt.Sprint("system:node:node-", n), Groups: []string{"system:nodes", "system:authenticated"}}
	}
	for range 2 {
		testkit.NoError(t, p.renew(t, 0))
		testkit.NoError(t, p.ask(t, 1, by(1), true, attest.StageHello, attest.StageAnswer))
	}
	s.lists(t, "metal://2")
	if err := p.ask(t, 1, by(1), true, attest.StageAnswer); !retries(err) {
		t.Errorf("a node that is not listed any more: got %v", err)
	}
	if err := p.ask(t, 2, bootstrap, false, attest.StageHello, attest.StageAnswer); !refused(err) {
		t.Errorf("a machine without a provider ID: got %v", err)
	}
}

// TestPoolChanges changes the pool between the hello and the answer.
func TestPoolChanges(t *testing.T) {
	for name, row := range map[string]struct {
		change func(t *testing.T, s *swept, p *admits)
		claims bool
		hello  func(error) bool // nil: it is challenged
		answer func(error) bool // nil: it is admitted
	}{
		"nothing":     {},
		"scaled down": {change: func(t *testing.T, s *swept, _ *admits) { s.scale(t, 1) }, answer: refused},
		"scaled up":   {change: func(t *testing.T, s *swept, _ *admits) { s.scale(t, 9) }},
		"no number of replicas": {change: func(t *testing.T, s *swept, _ *admits) {
			s.change(t, poolOf("v1beta2", "pool", 0), func(o client.Object) { delete(content(o)["spec"].(fields), "replicas") })
		}, answer: retries},
		"token replaced": {change: func(t *testing.T, s *swept, p *admits) {
			p.tokens.saw(poolConfigOf("v1beta2", "pool", "abcdef"))
			s.rotate(t, "zzzzzz")
		}},
		"token replaced, and the program restarted": {change: func(t *testing.T, s *swept, _ *admits) { s.rotate(t, "zzzzzz") }, answer: unknown},
		"token replaced, its Secret labelled, and the program restarted": {change: func(t *testing.T, s *swept, p *admits) {
			p.pools.Renew = true
			testkit.NoError(t, s.nodes.Create(t.Context(), labelledSecret("abcdef", "pool")))
			s.rotate(t, "zzzzzz")
		}},
		"pool deleted": {change: func(t *testing.T, s *swept, _ *admits) {
			testkit.NoError(t, s.home.Delete(t.Context(), poolOf("v1beta2", "pool", 0)))
		}, answer: unknown},
		"pool made again": {change: func(t *testing.T, s *swept, _ *admits) {
			testkit.NoError(t, s.home.Delete(t.Context(), poolOf("v1beta2", "pool", 0)))
			again := poolOf("v1beta2", "pool", 5)
			again.SetUID("later")
			testkit.NoError(t, s.home.Create(t.Context(), again))
		}, answer: unknown},
		"provider IDs listed, with the machine's": {claims: true, hello: nil, change: func(t *testing.T, s *swept, _ *admits) { s.lists(t, "metal://0", "metal://1") }},
		"provider IDs listed, without it":         {claims: true, change: func(t *testing.T, s *swept, _ *admits) { s.lists(t, "metal://0") }, answer: retries},
		"provider IDs listed, none claimed":       {change: func(t *testing.T, s *swept, _ *admits) { s.lists(t, "metal://0") }, answer: refused},
		"provider ID of another node": {claims: true, change: func(t *testing.T, s *swept, _ *admits) {
			s.lists(t, "metal://1")
			s.edit(t, "node-0", func(n *v1alpha1.AttestedNode) { n.Spec.ProviderID = "metal://1" })
		}, answer: refused},
		"a record that was edited holds its slot": {change: func(t *testing.T, s *swept, _ *admits) {
			s.scale(t, 1)
			s.edit(t, "node-0", func(n *v1alpha1.AttestedNode) { n.Spec.State = "Broken" })
		}, answer: refused},
		"AttestedNodes cannot be listed": {change: func(_ *testing.T, _ *swept, p *admits) { p.nodesList.fails = errFault }, answer: func(err error) bool { return errors.Is(err, errFault) && !refused(err) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPooled(t, 5)
			p := s.process(t)
			testkit.NoError(t, p.join(t, 0))
			testkit.NoError(t, p.ask(t, 1, bootstrap, row.claims, attest.StageHello))
			if row.change != nil {
				row.change(t, s, p)
			}
			if err := p.ask(t, 1, bootstrap, row.claims, attest.StageAnswer); (err == nil) != (row.answer == nil) || err != nil && !row.answer(err) {
				t.Errorf("answer: got %v", err)
			}
			if admitted := row.answer == nil; admitted != (testkit.Must(s.registry().Lookup(t.Context(), "node-1")) != nil) {
				t.Errorf("admitted: want %t", admitted)
			}
		})
	}
}

// TestPoolChangesLate changes the pool after the request was checked, and after the slot was found.
func TestPoolChangesLate(t *testing.T) {
	finalizer := func(o client.Object) { o.SetFinalizers([]string{"machinepool.cluster.x-k8s.io"}) }
	for name, change := range map[string]func(t *testing.T, s *swept){
		"of another cluster": func(t *testing.T, s *swept) {
			s.change(t, poolOf("v1beta2", "pool", 0), func(o client.Object) { o.SetLabels(nil) })
		},
		"is being deleted": func(t *testing.T, s *swept) {
			s.change(t, poolOf("v1beta2", "pool", 0), finalizer)
			testkit.NoError(t, s.home.Delete(t.Context(), poolOf("v1beta2", "pool", 0)))
		},
		"gone": func(t *testing.T, s *swept) {
			testkit.NoError(t, s.home.Delete(t.Context(), poolOf("v1beta2", "pool", 0)))
		},
		"scaled down": func(t *testing.T, s *swept) { s.scale(t, 0) },
	} {
		for _, late := range []bool{false, true} {
			s := newPooled(t, 5)
			p := s.process(t)
			once := sync.OnceFunc(func() { change(t, s) })
			if late {
				p.nodesList.after = once
			} else {
				p.checked = once
			}
			if err := p.ask(t, 0, bootstrap, false, attest.StageAnswer); !refused(err) || s.bound(t) != 0 {
				t.Errorf("%s, late %t: got %v, %d are bound", name, late, err, s.bound(t))
			}
		}
	}
	s := newPooled(t, 5)
	p := s.process(t)
	testkit.NoError(t, s.home.Create(t.Context(), poolOf("v1beta2", "other", 5)))
	p.checked = func() { // the token is another pool's
		s.change(t, poolConfigOf("v1beta2", "pool", "abcdef"), func(o client.Object) { o.SetOwnerReferences(ownedBy("v1beta2", poolKind, "other")) })
		s.change(t, poolOf("v1beta2", "other", 0), func(o client.Object) {
			testkit.NoError(t, unstructured.SetNestedField(content(o), "pool", "spec", "template", "spec", "bootstrap", "configRef", "name"))
		})
	}
	if err := p.ask(t, 0, bootstrap, false, attest.StageAnswer); !refused(err) || s.bound(t) != 0 {
		t.Errorf("the token of another pool by now: got %v, %d are bound", err, s.bound(t))
	}
}

func retries(err error) bool { return errors.Is(err, refusal.ErrRetry) && !refused(err) }

func unknown(err error) bool {
	return errors.Is(err, csr.ErrNoMachine) || errors.Is(err, csr.CheckMachineUnknown)
}

// lists has the provider list provider IDs.
func (s *swept) lists(t *testing.T, ids ...any) {
	t.Helper()
	s.change(t, poolOf("v1beta2", "pool", 0), func(o client.Object) { content(o)["spec"].(fields)["providerIDList"] = ids })
}

// edit changes an AttestedNode.
func (s *swept) edit(t *testing.T, name string, how func(*v1alpha1.AttestedNode)) {
	t.Helper()
	var n v1alpha1.AttestedNode
	testkit.NoError(t, s.nodes.Get(t.Context(), client.ObjectKey{Name: name}, &n))
	how(&n)
	testkit.NoError(t, s.nodes.Update(t.Context(), &n))
}

// TestLastSlot has two machines ask for the last slot at once, in one process.
func TestLastSlot(t *testing.T) {
	for range 10 {
		s := newPooled(t, 3)
		p := s.process(t)
		testkit.NoError(t, p.join(t, 0))
		testkit.NoError(t, p.join(t, 1))
		p.nodesList.after = func() { time.Sleep(10 * time.Millisecond) }
		var both sync.WaitGroup
		errs := make([]error, 2)
		for n := range errs {
			both.Go(func() { errs[n] = p.join(t, 2+n) })
		}
		both.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || s.bound(t) != 3 {
			t.Fatalf("got %v and %v, %d are bound, want one more machine", errs[0], errs[1], s.bound(t))
		}
	}
}

// TestTwoProcesses has a second process admit a machine to the last slot after each list that the first one
// makes for another machine: one of them gets it.
func TestTwoProcesses(t *testing.T) {
	for at, lists := 1, 1; at <= lists; at++ {
		s := newPooled(t, 3)
		first, second := s.process(t), s.process(t)
		testkit.NoError(t, first.join(t, 0))
		testkit.NoError(t, second.join(t, 1))
		made, other := 0, errors.New("it did not ask")
		first.nodesList.after = func() {
			if made++; made == at {
				other = second.join(t, 3)
			}
		}
		err := first.join(t, 2)
		if (err == nil) == (other == nil) || s.bound(t) != 3 {
			t.Errorf("after list %d: got %v and %v, %d are bound, want one more machine", at, err, other, s.bound(t))
		}
		if err == nil {
			lists = max(lists, made)
		} else {
			lists = max(lists, at+1)
		}
	}
}

// TestLaterReservation has two reservations of the last slot: the one that was made later waits.
func TestLaterReservation(t *testing.T) {
	p := poolOf("v1beta2", "pool", 2)
	reserved := func(n int, version string) hold {
		return hold{membership.Claim{NodeName: fmt.Sprint("node-", n), Machine: identity(n), MachineUID: fmt.Sprint("uid-of-pool/", n)}, membership.StateReserved, version, version}
	}
	bound := hold{membership.Claim{NodeName: "node-0", MachineUID: "uid-of-pool/0"}, membership.StateBound, "999", "999"}
	all := holds{reserved(1, "1000"), bound, reserved(2, "998")}
	for n, confirmed := range map[int]bool{0: false, 2: true} {
		seen := &membership.Record{Claim: all[n].claim, State: membership.StateReserved, Version: all[n].record}
		if err := all.confirm(p, seen, isOpen); (err == nil) != confirmed || err != nil && !retries(err) {
			t.Errorf("the reservation of version %s: got %v", seen.Version, err)
		}
	}
	seen := &membership.Record{Claim: all[2].claim, State: membership.StateReserved, Version: "997"}
	if err := all.confirm(p, seen, isOpen); !retries(err) {
		t.Errorf("a reservation that has changed: got %v", err)
	}
	twice := holds{reserved(1, "998"), bound, reserved(2, "998")}
	twice[0].record = "another"
	if err := twice.confirm(p, &membership.Record{Claim: twice[2].claim, State: membership.StateReserved, Version: "998"}, isOpen); !retries(err) {
		t.Errorf("two of one version: got %v", err)
	}
}

// TestHoldsSlot has a record of each state, before and after its end.
func TestHoldsSlot(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, row := range map[string]struct {
		record membership.Record
		holds  bool
	}{
		"bound, no certificate yet":     {membership.Record{State: membership.StateBound}, true},
		"bound":                         {membership.Record{State: membership.StateBound, LastEnd: now}, true},
		"bound, ended":                  {membership.Record{State: membership.StateBound, LastEnd: now.Add(-slotSlack)}, false},
		"resting":                       {membership.Record{State: membership.StateResting, LastEnd: now}, true},
		"resting, ended":                {membership.Record{State: membership.StateResting, LastEnd: now.Add(-slotSlack)}, false},
		"reserved":                      {membership.Record{State: membership.StateReserved, Deadline: now.Add(time.Minute)}, true},
		"reserved, for a clock ahead":   {membership.Record{State: membership.StateReserved, Deadline: now.Add(-10 * time.Minute)}, true},
		"reserved, ended":               {membership.Record{State: membership.StateReserved, Deadline: now.Add(-slotSlack)}, false},
		"a reservation that was erased": {membership.Record{State: membership.StateResting}, false},
	} {
		if got := holdsSlot(&row.record, now); got != row.holds {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// TestSlotsNotMade has Slots that no Inventory has, and none.
func TestSlotsNotMade(t *testing.T) {
	r := testkit.Must(membership.NewMemoryRegistry(membership.Scope{Cluster: "c"}, membership.RegistryOptions{}))
	if c := (*Slots)(nil).FirstUse(membership.FirstUseConfig{Registry: r}); c.Slot != nil || c.Registry != r {
		t.Error("nil Slots have changed a configuration")
	}
	c := new(Slots).FirstUse(membership.FirstUseConfig{Registry: r})
	if uid, err := c.Slot(t.Context(), new(attest.Result)); uid != "" || !errors.Is(err, errNotMade) {
		t.Errorf("Slot: got %q, %v", uid, err)
	}
	claim := membership.Claim{NodeName: "node-1", Machine: identity(1), MachineUID: "uid/1"}
	if record, err := c.Registry.Reserve(t.Context(), claim, time.Now().Add(time.Minute)); record != nil || !errors.Is(err, errNotMade) {
		t.Errorf("Reserve: got %+v, %v", record, err)
	}
	if record, err := c.Registry.Bind(t.Context(), &membership.Record{Claim: claim, State: membership.StateReserved}, time.Time{}, nil); record != nil || !errors.Is(err, errNotMade) {
		t.Errorf("Bind: got %+v, %v", record, err)
	}
	claim.MachineUID = "uid"
	record := testkit.Must(c.Registry.Reserve(t.Context(), claim, time.Now().Add(time.Minute)))
	testkit.Must(c.Registry.Bind(t.Context(), record, time.Time{}, nil))
}
