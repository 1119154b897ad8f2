package clusterapi

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestShut: the tokens of a pool that is shut are deleted, its next one is left alone until it is opened, and other
// pools' stay.
func TestShut(t *testing.T) {
	p := newRenewed(t, 12*time.Minute)
	r := p.renewer(t)
	testkit.NoError(t, r.run(t.Context()))
	p.secret(t, "rotate", 10*time.Minute) // one that the provider has replaced
	p.edit(t, "rotate", func(s *corev1.Secret) { s.Labels = map[string]string{LabelPoolUID: "uid-of-workers"} })
	p.secret(t, "others", 10*time.Minute)
	p.edit(t, "others", func(s *corev1.Secret) { s.Labels = map[string]string{LabelPoolUID: "uid-of-others"} })
	p.secret(t, "owners", 10*time.Minute)
	p.edit(t, "owners", func(s *corev1.Secret) {
		s.Labels, s.OwnerReferences = map[string]string{LabelPoolUID: "uid-of-workers"}, ownedBy("v1", "Tool", "mine")
	})
	p.mark(t, "workers", true)
	p.clock = p.clock.Add(time.Minute)
	if err := r.run(t.Context()); err == nil || !strings.Contains(err.Error(), "has an owner") {
		t.Errorf("got %v", err)
	}
	if p.get(t, "aaaaaa") != nil || p.get(t, "rotate") != nil || p.get(t, "others") == nil || p.get(t, "owners") == nil {
		t.Error("the Secrets are not those of other pools and owners")
	}
	testkit.NoError(t, p.nodes.Delete(t.Context(), p.get(t, "owners")))
	if !p.provider(t, 1) {
		t.Fatal("the provider makes no new token")
	}
	p.clock = p.clock.Add(5 * time.Minute)
	testkit.NoError(t, r.run(t.Context()))
	if s := p.get(t, "b00001"); s == nil || len(s.Labels) != 0 || p.end(t, "b00001") != 10*time.Minute {
		t.Errorf("the next token is %v", s)
	}
	p.mark(t, "workers", false)
	testkit.NoError(t, r.run(t.Context()))
	if p.end(t, "b00001") != 15*time.Minute || counted(r.extended) != 2 {
		t.Errorf("opened: it ends in %v", p.end(t, "b00001"))
	}
}

// TestShutSlots: a pool that is shut gives no slot, also to a machine that has its challenge, and its nodes renew.
func TestShutSlots(t *testing.T) {
	s := newPooled(t, 5)
	p := s.process(t)
	shut := func(data map[string]string) {
		m := marks()
		testkit.NoError(t, s.nodes.Get(t.Context(), client.ObjectKeyFromObject(m), m))
		m.Data = data
		testkit.NoError(t, s.nodes.Update(t.Context(), m))
	}
	testkit.NoError(t, p.join(t, 0))
	testkit.NoError(t, p.ask(t, 1, bootstrap, false, attest.StageHello))
	shut(map[string]string{"pool": ""})
	for n, stage := range map[int]attest.Stage{1: attest.StageAnswer, 2: attest.StageHello, 3: attest.StageAnswer} {
		if err := p.ask(t, n, bootstrap, false, stage); !refused(err) || !strings.Contains(err.Error(), "is shut") {
			t.Errorf("machine %d at the %s: %v", n, stage, err)
		}
	}
	testkit.NoError(t, p.renew(t, 0))
	shut(map[string]string{"other": ""})
	testkit.NoError(t, p.join(t, 1))
	testkit.NoError(t, s.nodes.Delete(t.Context(), marks()))
	if err := p.join(t, 2); err == nil || refused(err) || !strings.Contains(err.Error(), "it is not known whether") {
		t.Errorf("without the ConfigMap: %v", err)
	}
	testkit.NoError(t, p.renew(t, 0))
}

// TestShutBind: a pool that is shut between the reservation and the certificate has it refused.
func TestShutBind(t *testing.T) {
	s := newPooled(t, 5)
	p := s.process(t)
	testkit.NoError(t, p.ask(t, 0, bootstrap, false, attest.StageHello))
	reads := 0
	p.nodesList.after = func() {
		if reads++; reads == 3 { // of the list before the name is bound
			m := marks()
			testkit.NoError(t, s.nodes.Get(t.Context(), client.ObjectKeyFromObject(m), m))
			m.Data = map[string]string{"pool": ""}
			testkit.NoError(t, s.nodes.Update(t.Context(), m))
		}
	}
	if err := p.ask(t, 0, bootstrap, false, attest.StageAnswer); !refused(err) || reads != 3 {
		t.Errorf("got %v after %d lists", err, reads)
	}
}

// TestShutAtOnce: a token without the label is deleted if it is not newer than the mark, also while the Cluster is
// paused; an edit meanwhile keeps it, until the next look.
func TestShutAtOnce(t *testing.T) {
	p := newRenewed(t, time.Minute)
	p.mark(t, "workers", true)
	p.change(t, clusterOf("v1beta2", nil), withNote(pausedAnnotation, ""))
	r := p.renewer(t)
	p.before = func(*corev1.Secret) {
		p.before = nil
		p.edit(t, "aaaaaa", func(s *corev1.Secret) { s.Data["description"] = []byte("theirs") })
	}
	r.look(t.Context())
	if p.get(t, "aaaaaa") == nil {
		t.Error("deleted over an edit")
	}
	p.gone = func(*corev1.Secret) {
		p.gone = nil
		p.edit(t, "aaaaaa", func(s *corev1.Secret) { s.Data["description"] = []byte("again") })
	}
	if r.look(t.Context()); p.get(t, "aaaaaa") == nil || counted(r.failures) != 0 {
		t.Errorf("deleted over an edit of a labelled one, or %d failures", counted(r.failures))
	}
	if r.look(t.Context()); p.get(t, "aaaaaa") != nil {
		t.Error("it is still there")
	}
	later := newRenewed(t, time.Minute)
	later.clock = later.clock.Add(-time.Hour)
	later.mark(t, "workers", true)
	if testkit.NoError(t, later.renewer(t).run(t.Context())); later.get(t, "aaaaaa") == nil {
		t.Error("a newer token was deleted")
	}
}

// TestShutMarks: what is in the ConfigMap decides; without it there is an error.
func TestShutMarks(t *testing.T) {
	i := newInventory(t, "v1beta2", recorded(t, ""), nil, nil)
	if is, err := i.shut(t.Context(), "workers"); is || err == nil {
		t.Errorf("without Pools: %t, %v", is, err)
	}
	i.pools = &Pools{Reader: objectstore.New(), Namespace: poolsHome}
	if is, err := i.shut(t.Context(), "workers"); is || err == nil {
		t.Errorf("without a ConfigMap: %t, %v", is, err)
	}
	i.pools = noneShut()
	if is, err := i.shut(t.Context(), "workers"); is || err != nil {
		t.Errorf("got %t, %v", is, err)
	}
	for name, m := range map[string]corev1.ConfigMap{
		"a time": {Data: map[string]string{"workers": "2026-01-02T03:04:05Z"}}, "no value": {Data: map[string]string{"workers": ""}},
		"no time": {Data: map[string]string{"workers": "false"}}, "binary": {BinaryData: map[string][]byte{"workers": {0xff}}},
	} {
		m.ObjectMeta = metav1.ObjectMeta{Namespace: poolsHome, Name: ConfigMapPools}
		nodes := objectstore.New()
		testkit.NoError(t, nodes.Create(t.Context(), &m))
		i.pools.Reader = nodes
		is, err := i.shut(t.Context(), "workers")
		if other, _ := i.shut(t.Context(), "others"); !is || err != nil || other {
			t.Errorf("%s: %t, %v, and of another pool %t", name, is, err, other)
		}
	}
}

func TestPoolsConfig(t *testing.T) {
	nodes := objectstore.New()
	good := Pools{Reader: nodes, Namespace: poolsHome, Renew: true, Writer: nodes, Metrics: prometheus.NewRegistry(), TTL: time.Minute}
	for name, change := range map[string]func(*Pools){
		"no reader": func(p *Pools) { p.Reader = nil }, "no namespace": func(p *Pools) { p.Namespace = "" }, "a path": func(p *Pools) { p.Namespace = "a/b" },
		"no writer": func(p *Pools) { p.Writer = nil }, "no metrics": func(p *Pools) { p.Metrics = nil },
		"short": func(p *Pools) { p.TTL = 29 * time.Second }, "negative": func(p *Pools) { p.TTL = -1 },
	} {
		bad := good
		if change(&bad); !errors.Is(bad.check(), refusal.CheckConfig) {
			t.Errorf("%s: %v", name, bad.check())
		}
	}
	if reads := (Pools{Reader: nodes, Namespace: poolsHome}); good.check() != nil || reads.check() != nil || (*Pools)(nil).check() != nil || reads.ttl() != 15*time.Minute {
		t.Error("a good one is refused")
	}
}
