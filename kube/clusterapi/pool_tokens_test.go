package clusterapi

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
)

const (
	poolsHome = "nodeattest-system"
	tokenHalf = "0123456789abcdef"
)

// marks is the ConfigMap of pools that are shut, as it is shipped.
func marks() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: poolsHome, Name: ConfigMapPools}}
}

// noneShut is a workload cluster in which no pool is shut.
func noneShut() *Pools {
	nodes := objectstore.New()
	testkit.MustDo(nodes.Create(context.Background(), marks()))
	return &Pools{Reader: nodes, Namespace: poolsHome}
}

// renewing is a management cluster with MachinePools, their workload cluster, and what the bootstrap provider does.
type renewing struct {
	*Inventory
	home  client.WithWatch
	nodes *objectstore.Store
	clock time.Time // of the provider, and of the API servers
	ahead time.Duration
	// before is called before each update of a Secret, and gone before each deletion.
	before, gone func(s *corev1.Secret)
}

// writer is the client of the workload cluster.
type writer struct {
	client.Writer
	of *renewing
}

func (w writer) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	if w.of.before != nil {
		w.of.before(o.(*corev1.Secret))
	}
	return w.Writer.Update(ctx, o, options...)
}

func (w writer) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	if w.of.gone != nil {
		w.of.gone(o.(*corev1.Secret))
	}
	return w.Writer.Delete(ctx, o, options...)
}

// newRenewed makes the pool workers with a token that ends after a time.
func newRenewed(t *testing.T, end time.Duration) *renewing {
	t.Helper()
	const version = "v1beta2"
	i := newInventory(t, version, recorded(t, ""), nil, nil)
	p := &renewing{Inventory: i, clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	config := poolConfigOf(version, "workers", "aaaaaa")
	p.home = i.stored(t, version, []client.Object{clusterOf(version, nil), poolOf("v1beta2", "workers", 5), config})
	i.live, i.cached, i.pools = p.home, p.home, noneShut()
	p.nodes = i.pools.Reader.(*objectstore.Store)
	i.pools.Writer = writer{p.nodes, p}
	p.secret(t, "aaaaaa", end)
	return p
}

// secret makes the Secret of a token, as the bootstrap provider does.
func (p *renewing) secret(t *testing.T, id string, end time.Duration) {
	t.Helper()
	testkit.NoError(t, p.nodes.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id, UID: types.UID("uid-of-" + id), CreationTimestamp: metav1.Time{Time: p.clock}},
		Type:       bootstraptoken.SecretType,
		Data: map[string][]byte{"token-id": []byte(id), "token-secret": []byte(tokenHalf), "usage-bootstrap-authentication": []byte("true"), "usage-bootstrap-signing": []byte("true"),
			"expiration": []byte(p.clock.Add(end).Format(time.RFC3339)), "auth-extra-groups": []byte("system:bootstrappers:kubeadm:default-node-token")},
	}))
}

// renewer is the runnable of one process.
func (p *renewing) renewer(t *testing.T) *tokenRenewal {
	t.Helper()
	p.pools.Renew, p.pools.Metrics = true, prometheus.NewRegistry()
	r := testkit.Must(newTokenRenewal(p.Inventory))
	r.now = func() time.Time { return p.clock.Add(p.ahead) }
	return r
}

// get reads the Secret of a token; nil if it is gone.
func (p *renewing) get(t *testing.T, id string) *corev1.Secret {
	t.Helper()
	var s corev1.Secret
	err := p.nodes.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "bootstrap-token-" + id}, &s)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return &s
}

// end is when a token ends, from now.
func (p *renewing) end(t *testing.T, id string) time.Duration {
	t.Helper()
	return testkit.Must(time.Parse(time.RFC3339, string(p.get(t, id).Data["expiration"]))).Sub(p.clock)
}

// edit changes a Secret as another writer does.
func (p *renewing) edit(t *testing.T, id string, how func(s *corev1.Secret)) {
	t.Helper()
	s := p.get(t, id)
	how(s)
	testkit.NoError(t, p.nodes.Update(t.Context(), s))
}

// change changes an object of the management cluster.
func (p *renewing) change(t *testing.T, o client.Object, how func(o client.Object)) {
	t.Helper()
	testkit.NoError(t, p.home.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	how(o)
	testkit.NoError(t, p.home.Update(t.Context(), o))
}

// mark shuts or opens a pool, as kubectl nodeattest does.
func (p *renewing) mark(t *testing.T, pool string, shut bool) {
	t.Helper()
	var m corev1.ConfigMap
	testkit.NoError(t, p.nodes.Get(t.Context(), client.ObjectKey{Namespace: poolsHome, Name: ConfigMapPools}, &m))
	m.Data = map[string]string{}
	if shut {
		m.Data[pool] = p.clock.Format(time.RFC3339)
	}
	testkit.NoError(t, p.nodes.Update(t.Context(), &m))
}

// counted is the value of a counter.
func counted(c prometheus.Counter) int { return int(testutil.ToFloat64(c)) }

// TestRenewPoolTokens: the token of a pool is labelled and then extended, once for each sixth of its TTL.
func TestRenewPoolTokens(t *testing.T) {
	p := newRenewed(t, 12*time.Minute)
	r := p.renewer(t)
	for range 2 {
		testkit.NoError(t, r.run(t.Context()))
	}
	s := p.get(t, "aaaaaa")
	if p.end(t, "aaaaaa") != 15*time.Minute || s.Labels[LabelPoolUID] != "uid-of-workers" || s.Annotations[AnnotationPool] != "fleet/work/workers" ||
		counted(r.extended) != 1 || counted(r.failures) != 0 || string(s.Data["token-secret"]) != tokenHalf {
		t.Errorf("%v, %+v, %d extended", p.end(t, "aaaaaa"), s.ObjectMeta, counted(r.extended))
	}
	p.clock = p.clock.Add(2*time.Minute + 29*time.Second)
	testkit.NoError(t, r.run(t.Context()))
	if counted(r.extended) != 1 {
		t.Error("extended before a sixth of its TTL has passed")
	}
	fresh := newRenewed(t, 14*time.Minute)
	r = fresh.renewer(t)
	testkit.NoError(t, r.run(t.Context()))
	if fresh.end(t, "aaaaaa") != 14*time.Minute || fresh.get(t, "aaaaaa").Labels[LabelPoolUID] == "" || counted(r.extended) != 0 {
		t.Errorf("a new token: %v", fresh.get(t, "aaaaaa"))
	}
}

// TestRenewPoolTokensLeft: each of these pools and Secrets stays as it is.
func TestRenewPoolTokensLeft(t *testing.T) {
	secret := func(how func(s *corev1.Secret)) func(t *testing.T, p *renewing) {
		return func(t *testing.T, p *renewing) { p.edit(t, "aaaaaa", how) }
	}
	pool := func(how func(o client.Object)) func(t *testing.T, p *renewing) {
		return func(t *testing.T, p *renewing) { p.change(t, poolOf("v1beta2", "workers", 5), how) }
	}
	cluster := func(how func(o client.Object)) func(t *testing.T, p *renewing) {
		return func(t *testing.T, p *renewing) { p.change(t, clusterOf("v1beta2", nil), how) }
	}
	field := func(value any, path ...string) func(client.Object) {
		return func(o client.Object) {
			testkit.MustDo(unstructured.SetNestedField(o.(*unstructured.Unstructured).Object, value, path...))
		}
	}
	config := func(how func(o client.Object)) func(t *testing.T, p *renewing) {
		return func(t *testing.T, p *renewing) { p.change(t, configOf("v1beta2", "workers", "aaaaaa"), how) }
	}
	for name, row := range map[string]struct {
		with func(t *testing.T, p *renewing)
		err  string // "": it is no fault
	}{
		"a paused pool":             {pool(withNote(pausedAnnotation, "")), ""},
		"a pool that is moved":      {pool(withNote(deleteForMove, "")), ""},
		"a pool whose nodes cannot": {pool(withNote(AnnotationEvidence, "none")), ""},
		"a pool of another Cluster": {pool(field("other", "spec", "clusterName")), ""},
		"a pool that is gone": {func(t *testing.T, p *renewing) {
			testkit.NoError(t, p.home.Delete(t.Context(), poolOf("v1beta2", "workers", 5)))
		}, ""},
		"a pool that is being deleted":    {poolDeleted, ""},
		"a pool that is shut":             {func(t *testing.T, p *renewing) { p.clock = p.clock.Add(-time.Hour); p.mark(t, "workers", true) }, ""},
		"a pool without a KubeadmConfig":  {pool(field("OtherConfig", "spec", "template", "spec", "bootstrap", "configRef", "kind")), ""},
		"a KubeadmConfig without a token": {config(field(fields{}, "spec", "joinConfiguration", "discovery")), ""},
		"no Secret":                       {func(t *testing.T, p *renewing) { testkit.NoError(t, p.nodes.Delete(t.Context(), p.get(t, "aaaaaa"))) }, ""},
		"a paused Cluster":                {cluster(field(true, "spec", "paused")), "is paused"},
		"nodes that do not attest":        {cluster(withNote(AnnotationAuthentication, "false")), AnnotationAuthentication},
		"no kind is authorized":           {cluster(withNote(AnnotationAttestors, "")), "authorizes no kind"},
		"no Cluster": {func(t *testing.T, p *renewing) {
			testkit.NoError(t, p.home.Delete(t.Context(), clusterOf("v1beta2", nil)))
		}, "no Cluster"},
		"no mark": {func(t *testing.T, p *renewing) {
			testkit.NoError(t, p.nodes.Delete(t.Context(), marks()))
		}, "it is not known whether"},
		"a KubeadmConfig of another":     {config(func(o client.Object) { o.SetOwnerReferences(ownedBy("v1beta2", "MachinePool", "others")) }), "is not controlled by it"},
		"a KubeadmConfig of a Machine":   {config(func(o client.Object) { o.SetOwnerReferences(ownedBy("v1beta2", "Machine", "workers")) }), "is not controlled by it"},
		"a malformed token":              {config(field("aaaaaa.short", "spec", "joinConfiguration", "discovery", "bootstrapToken", "token")), "KubeadmConfig workers"},
		"a Secret with another pool":     {secret(func(s *corev1.Secret) { s.Labels = map[string]string{LabelPoolUID: "uid-of-others"} }), "of another pool"},
		"a Secret with an empty label":   {secret(func(s *corev1.Secret) { s.Labels = map[string]string{LabelPoolUID: ""} }), "of another pool"},
		"a Secret that lost its label":   {secret(func(s *corev1.Secret) { s.Annotations = map[string]string{AnnotationPool: "fleet/work/workers"} }), "has lost the label"},
		"a Secret with an owner":         {secret(func(s *corev1.Secret) { s.OwnerReferences = ownedBy("v1", "Tool", "mine") }), "has an owner"},
		"a Secret of another type":       {secret(func(s *corev1.Secret) { s.Type = "Opaque" }), "type"},
		"a Secret with another half":     {secret(func(s *corev1.Secret) { s.Data["token-secret"] = []byte("fedcba9876543210") }), "has another secret than"},
		"a Secret whose end is no time":  {secret(func(s *corev1.Secret) { s.Data["expiration"] = []byte("soon") }), "bootstrap-token-expiration"},
		"a Secret that is being deleted": {secretDeleted, "deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newRenewed(t, time.Minute)
			row.with(t, p)
			r, before := p.renewer(t), p.get(t, "aaaaaa")
			err := r.run(t.Context())
			if (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
				t.Errorf("got %v, want %q", err, row.err)
			}
			if after := p.get(t, "aaaaaa"); !reflect.DeepEqual(before, after) || counted(r.extended) != 0 {
				t.Errorf("it was %v, and is %v", before, after)
			}
			if err != nil && strings.Contains(err.Error(), tokenHalf) {
				t.Errorf("the error has the token: %v", err)
			}
		})
	}
	p := newRenewed(t, time.Minute)
	testkit.NoError(t, p.renewer(t).run(t.Context()))
	if p.end(t, "aaaaaa") != 15*time.Minute {
		t.Error("as they were: not extended")
	}
}

func poolDeleted(t *testing.T, p *renewing) {
	t.Helper()
	p.change(t, poolOf("v1beta2", "workers", 5), func(o client.Object) { o.SetFinalizers([]string{"example.com/kept"}) })
	testkit.NoError(t, p.home.Delete(t.Context(), poolOf("v1beta2", "workers", 5)))
}

func secretDeleted(t *testing.T, p *renewing) {
	t.Helper()
	p.edit(t, "aaaaaa", func(s *corev1.Secret) { s.Finalizers = []string{"example.com/kept"} })
	testkit.NoError(t, p.nodes.Delete(t.Context(), p.get(t, "aaaaaa")))
}
