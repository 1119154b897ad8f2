package registry_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/kube/registry"
)

// A course runs controllers, signers and operators over one store, one operation of one task
// at a time in an order that a seed has chosen, with caches that answer out of any state that
// was, clocks that differ, and tasks that die.
type course struct {
	*testing.T
	random *mathrand.Rand
	store  *objectstore.Store
	at     time.Time
	states []state    // all that the store was in, the latest last
	events chan *task // tasks that have come to an operation, or to their end
	log    []string
	issued []certificate
	freed  map[string]int // by node: the last state in which it stopped being bound to a machine
}

// state is the store's objects, by kind and name.
type state struct {
	objects map[string]client.Object
	at      time.Time
}

// certificate is one that was given out.
type certificate struct {
	node, machine, key string
	state              int
	at, until          time.Time
}

// process is a controller, a signer or an operator. Its registry outlives its tasks.
type process struct {
	scope       membership.Scope
	own, signer bool // whether a CA of ours signs, and this is where it does
	skew        time.Duration
	registry    *registry.Registry
}

// task is one call of a process.
type task struct {
	c      *course
	name   string
	skew   time.Duration
	next   chan struct{}
	over   bool
	left   int // operations until it dies
	dead   bool
	writes int
}

type taskKey struct{}

func taskOf(ctx context.Context) *task { return ctx.Value(taskKey{}).(*task) }

var errDied = errors.New("the process has died")

func (k *task) now() time.Time { return k.c.at.Add(k.skew) }

// do is one operation, when its turn comes. A task dies at a write, before or after it.
func (k *task) do(write bool, f func() error) error {
	k.c.events <- k
	<-k.next
	if k.dead {
		return errDied
	}
	if write {
		k.writes++
	}
	if k.left--; k.left < 0 && write {
		k.dead = true
		if k.c.random.IntN(2) == 0 {
			_ = f()
		}
		return errDied
	}
	return f()
}

func keyOf(o client.Object, name string) string { return fmt.Sprintf("%T %s", o, name) }

// api is the API server, for the task of the context. Its memory is behind.
type api struct{ client.Client }

func (api) Get(ctx context.Context, name client.ObjectKey, o client.Object, options ...client.GetOption) error {
	k := taskOf(ctx)
	all := new(client.GetOptions).ApplyOptions(options)
	return k.do(false, func() error {
		if all.Raw != nil && all.Raw.ResourceVersion == "0" {
			return k.c.past().get(name.Name, o)
		}
		return k.c.store.Get(ctx, name, o)
	})
}

func (api) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	return taskOf(ctx).write(o, func(s *objectstore.Store) error { return s.Create(ctx, o, options...) })
}

func (api) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	return taskOf(ctx).write(o, func(s *objectstore.Store) error { return s.Update(ctx, o, options...) })
}

func (api) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	return taskOf(ctx).write(o, func(s *objectstore.Store) error { return s.Delete(ctx, o, options...) })
}

func (k *task) write(o client.Object, f func(s *objectstore.Store) error) error {
	return k.do(true, func() error {
		err := f(k.c.store)
		k.c.logf("%s: %T %s: %v", k.name, o, o.GetName(), err)
		if err == nil {
			k.c.changed(o)
		}
		return err
	})
}

func (s *state) get(name string, into client.Object) error {
	held, ok := s.objects[keyOf(into, name)]
	if !ok {
		return notFound(client.ObjectKey{Name: name})
	}
	text, err := json.Marshal(held)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// nodes are the objects of nodes.
func (s *state) nodes() []*v1alpha1.AttestedNode {
	var all []*v1alpha1.AttestedNode
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if n, ok := s.objects[key].(*v1alpha1.AttestedNode); ok {
			all = append(all, n)
		}
	}
	return all
}

func bound(n *v1alpha1.AttestedNode) bool {
	return n != nil && n.Spec.State == v1alpha1.NodeBound
}

// nodesAlone is a controller's cache: of nodes, and of pointers as they follow from them.
type nodesAlone struct{ client.Reader }

func (nodesAlone) Get(ctx context.Context, name client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	k := taskOf(ctx)
	return k.do(false, func() error {
		s := k.c.past()
		if _, ok := o.(*v1alpha1.AttestedNode); ok {
			return s.get(name.Name, o)
		}
		for _, n := range s.nodes() {
			switch p := o.(type) {
			case *v1alpha1.AttestedMachine:
				if v1alpha1.PointerName(n.Spec.Machine) == name.Name {
					p.Name, p.Spec.Machine, p.Spec.NodeName = name.Name, n.Spec.Machine, n.Name
					return nil
				}
			case *v1alpha1.AttestedMachineUID:
				if v1alpha1.PointerName(n.Spec.MachineUID) == name.Name {
					p.Name, p.Spec.MachineUID, p.Spec.NodeName = name.Name, n.Spec.MachineUID, n.Name
					return nil
				}
			}
		}
		return notFound(name)
	})
}

// past is some state that was.
func (c *course) past() *state {
	lag := 0
	switch c.random.IntN(4) {
	case 1:
		lag = c.random.IntN(3)
	case 2:
		lag = c.random.IntN(12)
	case 3:
		lag = c.random.IntN(len(c.states))
	}
	return &c.states[max(0, len(c.states)-1-lag)]
}

// changed takes a new state down, and holds it against what must never be.
func (c *course) changed(o client.Object) {
	was := &c.states[len(c.states)-1]
	is := state{objects: maps.Clone(was.objects), at: c.at}
	fresh := o.DeepCopyObject().(client.Object)
	key := keyOf(o, o.GetName())
	if err := c.store.Get(c.Context(), client.ObjectKey{Name: o.GetName()}, fresh); apierrors.IsNotFound(err) {
		delete(is.objects, key)
	} else {
		is.objects[key] = fresh
	}
	c.states = append(c.states, is)
	before, _ := was.objects[key].(*v1alpha1.AttestedNode)
	after, _ := is.objects[key].(*v1alpha1.AttestedNode)
	if bound(before) && (!bound(after) || after.Spec.Machine != before.Spec.Machine) {
		c.freed[o.GetName()] = len(c.states) - 1
	}
	machines, uids := map[string]string{}, map[string]string{"": ""}
	for _, n := range is.nodes() {
		if !bound(n) {
			continue
		}
		if other := machines[n.Spec.Machine]; other != "" {
			c.Errorf("state %d: machine %s is %s and %s", len(c.states)-1, n.Spec.Machine, other, n.Name)
		}
		if other := uids[n.Spec.MachineUID]; other != "" {
			c.Errorf("state %d: Machine UID %s is that of %s and %s", len(c.states)-1, n.Spec.MachineUID, other, n.Name)
		}
		machines[n.Spec.Machine] = n.Name
		if n.Spec.MachineUID != "" {
			uids[n.Spec.MachineUID] = n.Name
		}
	}
}

func (c *course) logf(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf("%d, %s: ", len(c.states)-1, c.at.Format(time.TimeOnly))+fmt.Sprintf(format, args...))
}

// checkedRequests are the requests of checkedRequest, by claim.
var checkedRequests sync.Map

// checkedRequest is a node's request with one of its keys.
func checkedRequest(t *testing.T, node, uid, key string) *csr.Checked {
	t.Helper()
	id := strings.Join([]string{node, uid, key}, "/")
	if held, ok := checkedRequests.Load(id); ok {
		return held.(*csr.Checked)
	}
	private := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	der := testkit.Must(csr.Create(csr.PurposeClient, private, node, csr.CreateOptions{}))
	pem := testkit.Must((&csr.Bundle{Request: der, Provider: "tpm/v1", Data: []byte{0x30, 0}}).Marshal())
	r := &csr.Request{
		Metadata: csr.Metadata{Name: "csr", UID: id, CreationTimestamp: time.Now().Add(-time.Second)},
		Spec:     csr.Spec{Request: pem, SignerName: csr.SignerClientTPM, Usages: csr.PurposeClient.Usages(false)},
		User:     csr.User{Username: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers", "system:authenticated"}},
	}
	machine := csr.Machine{Name: "m", UID: uid, NodeName: node, BootstrapReady: true}
	policy := &csr.Policy{ClusterIDs: []string{"cluster-1"}, SignerNames: []string{csr.SignerClientTPM},
		Machines: func(context.Context, csr.Question) (*csr.Machine, error) { return &machine, nil }}
	checked := testkit.Must(policy.CheckUnsigned(t.Context(), r.Parsed(), csr.SignerClientTPM))
	checkedRequests.Store(id, checked)
	return checked
}

const courseLifetime = 2 * time.Minute

// newProcess makes a process; one without a cache is an operator.
func (c *course) newProcess(p process, stale client.Reader) *process {
	var err error
	p.registry, err = registry.New(p.scope, api{}, api{}, registry.Options{Stale: stale, Now: func() time.Time { return c.at.Add(p.skew) }})
	if err != nil {
		c.Fatal(err)
	}
	return &p
}

// firstUse is that of a process.
func (c *course) firstUse(p *process) *membership.FirstUse {
	config := membership.FirstUseConfig{Registry: p.registry, Stale: p.registry.Stale(), MaxLifetime: courseLifetime,
		NodeExists: func(context.Context, string) (bool, error) { return false, nil }, Now: func() time.Time { return c.at.Add(p.skew) }}
	if p.own {
		config.OwnSignersElsewhere = []string{csr.SignerClientTPM}
	}
	f := testkit.Must(membership.NewFirstUse(config))
	return f
}

// join is one verification of an answer, and with a signer of ours the certificate too.
func (c *course) join(ctx context.Context, p *process, claim membership.Claim, key string) {
	k := taskOf(ctx)
	from, began := len(c.states)-1, k.now()
	r := attest.NewResult(attest.StageAnswer, checkedRequest(c.T, claim.NodeName, claim.MachineUID, key))
	r.Road, r.Machine, r.Provider = p.scope.Road, claim.Machine, "tpm"
	if p.scope.Provider != "" {
		r.Provider = p.scope.Provider
	}
	err := attest.AskMembership(ctx, c.firstUse(p), r)
	issued := err == nil && !p.own
	if err == nil && p.signer {
		record, err1 := r.Attested().Record(nil)
		if err1 != nil {
			c.Error(err1)
		}
		record.CredentialID = "X509SHA256=" + k.name
		err = r.Attested().Grant().Record(ctx, record)
		issued = err == nil
	}
	c.logf("%s: %v", k.name, err)
	if k.writes > 40 {
		c.Errorf("%s wrote %d times", k.name, k.writes)
	}
	if issued {
		c.checkIssued(k, claim, key, from, began)
	}
	if err != nil && csr.Decide(err).Verdict == csr.VerdictDeny {
		c.checkDenied(k, claim, err, from)
	}
}

// checkIssued holds a certificate against the states of its call, in one of which the node was
// the machine's, and against the other valid certificates.
func (c *course) checkIssued(k *task, claim membership.Claim, key string, from int, began time.Time) {
	if !slices.ContainsFunc(c.states[from:], func(s state) bool {
		n, _ := s.objects[keyOf(new(v1alpha1.AttestedNode), claim.NodeName)].(*v1alpha1.AttestedNode)
		return bound(n) && n.Spec.Machine == string(claim.Machine) && n.Spec.MachineUID == claim.MachineUID
	}) {
		c.Errorf("%s: a certificate where %+v was never bound", k.name, claim)
	}
	it := certificate{claim.NodeName, string(claim.Machine), key, len(c.states) - 1, began, began.Add(courseLifetime)}
	for _, other := range c.issued {
		if other.until.Before(it.at) || c.freed[other.node] >= other.state || c.freed[it.node] >= other.state {
			continue // it has ended, or an operator has decided since
		}
		if (other.node == it.node) != (other.machine == it.machine) || strings.HasPrefix(it.machine, "cloud:") && other.node == it.node && other.key != it.key {
			c.Errorf("%s: %+v and %+v", k.name, it, other)
		}
	}
	c.issued = append(c.issued, it)
}

// checkDenied looks for a state of the call that is the reason: no claim is denied for a record
// that a cache alone has.
func (c *course) checkDenied(k *task, claim membership.Claim, err error, from int) {
	for _, s := range c.states[from:] {
		for _, n := range s.nodes() {
			its := n.Name == claim.NodeName && n.Spec.Machine == string(claim.Machine) && n.Spec.MachineUID == claim.MachineUID
			others := !its && (n.Name == claim.NodeName || n.Spec.Machine == string(claim.Machine) || n.Spec.MachineUID == claim.MachineUID)
			rests := its && n.Spec.State == v1alpha1.NodeResting
			another := its && errors.Is(err, attest.Check("registry-requester")) && len(n.Spec.Certificates) != 0
			if others || rests || another {
				return
			}
		}
	}
	c.Errorf("%s: denied without a reason in any state since %d: %v", k.name, from, err)
}

// operate is something that an operator does.
func (c *course) operate(ctx context.Context, p *process, node string) {
	record, err := p.registry.Lookup(ctx, node)
	if err != nil || record == nil {
		return
	}
	switch c.random.IntN(4) {
	case 0, 1:
		_, err = p.registry.Release(ctx, node, record.MachineUID)
	case 2:
		_, err = p.registry.Rebind(ctx, record, c.machine(p.scope))
	case 3:
		_, err = p.registry.Adopt(ctx, record, c.uid(node))
	}
	c.logf("%s: %v", taskOf(ctx).name, err)
}

func (c *course) machine(scope membership.Scope) attest.Identity {
	kind := "test"
	if scope.Provider != "" {
		kind = scope.Provider
	}
	return attest.Identity(kind + ":" + strconv.Itoa(c.random.IntN(3)))
}

func (c *course) uid(node string) string {
	if c.random.IntN(5) == 0 {
		return "uid-shared"
	}
	return "uid-" + node + "-" + strconv.Itoa(c.random.IntN(10)/8)
}

// begin begins a task, which waits for its first turn.
func (c *course) begin(name string, p *process, f func(ctx context.Context)) *task {
	k := &task{c: c, name: name, skew: p.skew, next: make(chan struct{}), left: 1 << 30}
	if c.random.IntN(8) == 0 {
		k.left = 1 + c.random.IntN(12)
	}
	go func() {
		defer func() { k.over = true; c.events <- k }()
		c.events <- k
		<-k.next
		f(context.WithValue(c.Context(), taskKey{}, k))
	}()
	return <-c.events
}

// processes are two controllers, where a CA of ours signs two signers, and an operator.
func (c *course) processes() []*process {
	scope := membership.Scope{Cluster: "cluster-1"}
	if c.random.IntN(3) == 0 {
		scope = membership.Scope{Cluster: "cluster-1", Provider: "cloud", Road: attest.RoadDocument}
	}
	all, own := []*process{c.newProcess(process{scope: scope}, nil)}, c.random.IntN(2) == 0
	for range 2 {
		skew := func() time.Duration { return time.Duration(c.random.IntN(61)-30) * time.Second }
		all = append(all, c.newProcess(process{scope: scope, own: own, skew: skew()}, nodesAlone{}))
		if own {
			all = append(all, c.newProcess(process{scope: scope, own: true, signer: true, skew: skew()}, registry.Remembered(api{})))
		}
	}
	return all
}

// run has 30 tasks take turns, five at most at a time, and the time pass.
func (c *course) run() {
	processes := c.processes()
	operator, rest := processes[0], processes[1:]
	var waiting []*task
	for begun := 0; begun < 30 || len(waiting) > 0; {
		for begun < 30 && len(waiting) < 5 && (begun%7 != 0 || len(waiting) == 0) {
			begun++
			node := "node-" + strconv.Itoa(c.random.IntN(2))
			claim, key := membership.Claim{NodeName: node, Machine: c.machine(operator.scope), MachineUID: c.uid(node)}, strconv.Itoa(c.random.IntN(2))
			if c.random.IntN(4) == 0 {
				waiting = append(waiting, c.begin(fmt.Sprintf("operator %d at %s", begun, node), operator, func(ctx context.Context) { c.operate(ctx, operator, node) }))
				continue
			}
			p := rest[c.random.IntN(len(rest))]
			waiting = append(waiting, c.begin(fmt.Sprintf("task %d: %+v key %s", begun, claim, key), p, func(ctx context.Context) { c.join(ctx, p, claim, key) }))
		}
		i := len(waiting) - 1
		if c.random.IntN(3) == 0 {
			i = c.random.IntN(len(waiting))
		}
		k := waiting[i]
		waiting = slices.Delete(waiting, i, i+1)
		k.next <- struct{}{}
		if k = <-c.events; !k.over {
			waiting = slices.Insert(waiting, c.random.IntN(len(waiting)+1), k)
		}
		switch r := c.random.IntN(400); {
		case r < 40:
			c.at = c.at.Add(time.Duration(c.random.IntN(5)) * time.Second)
		case r < 48:
			c.at = c.at.Add(time.Duration(c.random.IntN(70)) * time.Second)
		case r < 60 && len(waiting) == 0:
			c.at = c.at.Add(3 * time.Hour)
		}
	}
	c.checkClean(operator.scope)
}

// checkClean has two minutes pass, after which no left-over object keeps a machine from a name
// without a record.
func (c *course) checkClean(scope membership.Scope) {
	c.at = c.at.Add(2*time.Minute + time.Second)
	r := newScopedRegistry(c.T, scope, c.store, func() time.Time { return c.at })
	for i := range 2 {
		n := strconv.Itoa(i)
		record, err := r.Lookup(c.Context(), "node-"+n)
		if err != nil || record != nil {
			continue
		}
		fresh := membership.Claim{NodeName: "node-" + n, Machine: attest.Identity("test:9" + n), MachineUID: "uid-9" + n}
		if _, err := r.Reserve(c.Context(), fresh, c.at.Add(time.Minute)); err != nil {
			c.Errorf("node-%s: %v", n, err)
		}
	}
}

// TestInterleavings runs courses: never has a machine two names, or a name two machines, no
// certificate goes to another machine than the name is bound to, no claim is denied for a
// record that a cache alone has, and a call that dies keeps no machine from a name for long.
func TestInterleavings(t *testing.T) {
	issued := 0
	for seed := range uint64(300) {
		t.Run("seed "+strconv.FormatUint(seed, 10), func(t *testing.T) {
			c := &course{T: t, random: mathrand.New(mathrand.NewPCG(seed, 1)), store: objectstore.New(), at: at(), events: make(chan *task),
				states: []state{{objects: map[string]client.Object{}, at: at()}}, freed: map[string]int{}}
			c.run()
			issued += len(c.issued)
			if t.Failed() {
				t.Log(strings.Join(c.log, "\n"))
			}
		})
	}
	if issued < 300 {
		t.Errorf("%d certificates in all courses: they try too little", issued)
	}
}
