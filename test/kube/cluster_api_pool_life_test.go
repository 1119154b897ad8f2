package kube

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/kube/clusterapi"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestPool has the machines of a MachinePool join by its token, leave and be replaced, with a controller that
// renews the token and with one that does not. Without renewal, the bootstrap provider has replaced
// the token by the time when a machine with the first launch data starts.
func TestPool(t *testing.T) {
	t.Parallel()
	ca := newCA(t, "")
	machines := make([]poolMachine, 8)
	for n := range machines {
		machines[n] = poolMachine{new(sync.Mutex), tpmsim.Swtpm(t, tpmsim.Options{CA: ca}), n + 1}
	}
	replicas, ttl := poolSize()
	t.Run("each", func(t *testing.T) {
		for name, version := range map[string]string{"renewed": "v1beta2", "replaced": "v1beta1"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				testPool(t, newPooled(t, version, name == "renewed", ttl, ca, machines), replicas)
			})
		}
	})
}

const workersPool, sparePool = "workers", "spare" // the MachinePools

// spareNth is the first machine of the second pool, and never of the first one.
func spareNth(replicas int) int {
	if replicas <= 5 {
		return 8
	}
	return 5 * replicas
}

func testPool(t *testing.T, p *pooled, replicas int) {
	p.makePool(t, workersPool, replicas)
	token, began := p.token(t, workersPool), time.Now()
	if p.renews {
		p.makePool(t, sparePool, 1)
	}
	p.starts(t, "controller")
	nodes, spare := p.firstJoin(t, replicas, token)
	all := numbers(1, replicas)
	t.Run("no sixth slot", func(t *testing.T) {
		p.scales(t, workersPool, replicas, append(all, replicas+1)...)
		m := p.machine(t, replicas+1)
		p.notAdmitted(t, m, "sixth", m.providerID(workersPool), p.token(t, workersPool), "NotAMember",
			fmt.Sprintf("of whose %d slots none is free: %[1]d nodes have one", replicas))
		p.notAdmitted(t, m, "sixth", (&poolMachine{nth: 2}).providerID(workersPool), p.token(t, workersPool), "NotAMember", "which node workers-2 has")
		p.scales(t, workersPool, replicas, all...)
	})
	t.Run("down to 2", func(t *testing.T) {
		p.scales(t, workersPool, 2, 1, 2)
		p.complete(t, workersPool, 2)
		p.renew(t, nodes...)
		gone := []string{}
		for nth := 3; nth <= replicas; nth++ {
			gone = append(gone, workersPool+"-"+strconv.Itoa(nth))
		}
		p.age(t, gone...)
	})
	if p.renews {
		stolen := p.token(t, sparePool)
		t.Run("a replaced token after a restart", func(t *testing.T) { p.testRestart(t, stolen, spare.m.nth) })
		t.Run("shut", func(t *testing.T) { p.testShut(t, stolen, spare) })
	}
	time.Sleep(time.Until(began.Add(3 * p.ttl)))
	up := append(append([]int{1, 2}, numbers(replicas+1, 2*replicas-3)...), 3)
	t.Run("up again", func(t *testing.T) {
		p.scales(t, workersPool, replicas, up...)
		now := p.token(t, workersPool)
		for _, nth := range up[2 : replicas-1] {
			p.joins(t, workersPool, nth, now)
		}
	})
	last := up[replicas-1]
	t.Run("launch data of three lifetimes ago", func(t *testing.T) { p.testLate(t, last, token, time.Since(began)) })
	p.complete(t, workersPool, replicas)
	p.renew(t, nodes...)
	if p.renews {
		t.Run("rights", p.testRights)
	}
	p.controller.checkLog(t)
}

func numbers(from, to int) (all []int) {
	for n := from; n <= to; n++ {
		all = append(all, n)
	}
	return all
}

// firstJoin has the machines of the first launch join, two of them by the program of a node, which it returns with
// that of the other pool's machine.
func (p *pooled) firstJoin(t *testing.T, replicas int, token string) (nodes []poolNode, spare poolNode) {
	t.Helper()
	if p.renews {
		p.scales(t, sparePool, 1, spareNth(replicas))
		spare = p.joinsByProgram(t, sparePool, spareNth(replicas), p.token(t, sparePool))
	}
	p.notListed(t, p.machine(t, 1), token)
	p.scales(t, workersPool, replicas, numbers(1, replicas)...)
	for nth := 1; nth <= 2; nth++ {
		nodes = append(nodes, p.joinsByProgram(t, workersPool, nth, token))
	}
	t.Run("more", func(t *testing.T) {
		for nth := 3; nth <= replicas; nth++ {
			p.joins(t, workersPool, nth, token)
		}
	})
	p.complete(t, workersPool, replicas)
	return nodes, spare
}

// notListed has a machine ask that the provider has not listed yet, while it has listed another one: its answer
// waits.
func (p *pooled) notListed(t *testing.T, m *poolMachine, token string) {
	t.Helper()
	p.scales(t, workersPool, 1, 99)
	m.mu.Lock()
	defer m.mu.Unlock()
	as, n := p.bearing(t, token), p.stranger(t, m.device, "early", m.providerID(workersPool))
	hello, err := n.Attester.Hello(t.Context(), n.Subject)
	if err != nil {
		t.Fatal(err)
	}
	object := file(t, as, hello)
	eventually(t, func() error {
		if !strings.Contains(p.controller.text(t), "in spec.providerIDList") {
			return fmt.Errorf("%w: the controller does not say that the machine is not listed", errNotYet)
		}
		return nil
	})
	if err := p.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil || len(object.Status.Conditions) != 0 {
		t.Errorf("got %+v, %v, want no decision while the provider does not list the machine", object.Status, err)
	}
}

// testLate has a machine start with the launch data of the pool's first day.
func (p *pooled) testLate(t *testing.T, nth int, token string, age time.Duration) {
	now := p.token(t, workersPool)
	t.Logf("launch data of %s ago, tokens of %s: the pool's token was %.6s, and is %.6s", age.Round(time.Second), p.ttl, token, now)
	if p.renews {
		if now != token {
			t.Errorf("the bootstrap provider has replaced a token that the controller renews")
		}
		if got := counted(t, p.controller, "nodeattest_cluster_api_pool_tokens_extended_total"); got[""] == 0 {
			t.Errorf("tokens extended: %v", got)
		}
		p.joins(t, workersPool, nth, token)
		return
	}
	if now == token {
		t.Errorf("the bootstrap provider has not replaced the token")
	}
	p.notAuthenticated(t, nth, token)
	p.joins(t, workersPool, nth, now)
}

// notAuthenticated has a machine file a request with a token that the API server does not take any more.
func (p *pooled) notAuthenticated(t *testing.T, nth int, token string) {
	t.Helper()
	m := p.machine(t, nth)
	m.mu.Lock()
	defer m.mu.Unlock()
	n := p.stranger(t, m.device, "late", m.providerID(workersPool))
	hello, err := n.Attester.Hello(t.Context(), n.Subject)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.bearing(t, token).Create(t.Context(), requestOf(hello)); !apierrors.IsUnauthorized(err) {
		t.Errorf("got %v, want Unauthorized", err)
	}
}

// testRestart has the controller forget the tokens that it saw. The bootstrap provider has replaced one of them, which
// the controller had labelled and does not renew while the pool is paused; its Secret still
// authenticates.
func (p *pooled) testRestart(t *testing.T, old string, first int) {
	p.complete(t, sparePool, 1)
	eventually(t, func() error {
		s, err := p.bootstrapSecret(t, old)
		if err == nil && s.Labels[clusterapi.LabelPoolUID] == "" {
			err = errNotYet
		}
		return err
	})
	p.pause(t, sparePool, true)
	began := time.Now()
	eventually(t, func() error {
		if p.token(t, sparePool) == old {
			return fmt.Errorf("%w: the token is not replaced", errNotYet)
		}
		return nil
	})
	t.Logf("the bootstrap provider replaced the token after %s", time.Since(began).Round(time.Second))
	eventually(t, func() error {
		s, err := p.bootstrapSecret(t, old)
		if err != nil {
			return err
		}
		s.Data["expiration"] = []byte(time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		return p.admin.Update(t.Context(), s)
	})
	p.starts(t, "controller-2")
	p.change(t, coreGroup, "MachinePool", sparePool, func(o *unstructured.Unstructured) error {
		if err := unstructured.SetNestedField(o.Object, int64(2), "spec", "replicas"); err != nil {
			return err
		}
		return unstructured.SetNestedStringSlice(o.Object, []string{(&poolMachine{nth: first}).providerID(sparePool), (&poolMachine{nth: 4}).providerID(sparePool)}, "spec", "providerIDList")
	})
	p.joins(t, sparePool, 4, old)
}

// pause pauses a pool, or ends that: the controller does not renew the token of a paused pool, and the bootstrap
// provider, which looks at the Cluster and the KubeadmConfig alone, goes on.
func (p *pooled) pause(t *testing.T, pool string, is bool) {
	t.Helper()
	p.change(t, coreGroup, "MachinePool", pool, func(o *unstructured.Unstructured) error {
		notes := o.GetAnnotations()
		if notes == nil {
			notes = map[string]string{}
		}
		if delete(notes, coreGroup+"/paused"); is {
			notes[coreGroup+"/paused"] = ""
		}
		o.SetAnnotations(notes)
		return nil
	})
}
