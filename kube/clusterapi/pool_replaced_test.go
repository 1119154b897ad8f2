package clusterapi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
)

// replacedToken is a workload cluster with a token, aaaaaa, that was renewed for the pool workers and that the
// bootstrap provider has replaced, and a program that starts now.
func replacedToken(t *testing.T) *renewing {
	t.Helper()
	p := newRenewed(t, 10*time.Minute)
	testkit.NoError(t, p.renewer(t).run(t.Context()))
	p.change(t, poolConfigOf("v1beta2", "workers", "aaaaaa"), func(o client.Object) {
		set(t, o.(*unstructured.Unstructured), "bbbbbb."+tokenHalf, "spec", "joinConfiguration", "discovery", "bootstrapToken", "token")
	})
	p.slots = &Slots{Nodes: objectstore.New(), inventory: p.Inventory}
	return p
}

// labelledSecret is the Secret of a token that was renewed for a pool, with a KubeadmConfig of its name.
func labelledSecret(id, pool string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: bootstraptoken.Namespace, Name: "bootstrap-token-" + id, Labels: map[string]string{LabelPoolUID: string(testUID(pool))},
			Annotations: map[string]string{AnnotationPool: namespace + "/" + work + "/" + pool, annotationConfig: pool}},
		Type: bootstraptoken.SecretType,
		Data: map[string][]byte{"token-id": []byte(id), "token-secret": []byte(tokenHalf), "usage-bootstrap-authentication": []byte("true")},
	}
}

// asks has a machine ask with the token.
func (p *renewing) asks(t *testing.T) (*csr.Machine, error) {
	t.Helper()
	return p.Machine(t.Context(), question(t, csr.User{Username: "system:bootstrap:aaaaaa", Groups: bootstrap.Groups}, ""))
}

// TestReplacedAfterRestart: a token that was replaced before the program started leads to its pool by the
// label and the annotations of its Secret, and each change of them, or of the pool, is refused.
func TestReplacedAfterRestart(t *testing.T) {
	p := replacedToken(t)
	for range 2 * listBurst { // more often than the management cluster may be asked for lists
		testkit.Must(p.asks(t))
	}
	if m, err := p.asks(t); err != nil || m.Name != "fleet/workers" || m.UID != "" || !m.BootstrapReady {
		t.Fatalf("got %+v, %v", m, err)
	}
	secret := func(how func(s *corev1.Secret)) func(t *testing.T, p *renewing) {
		return func(t *testing.T, p *renewing) { p.edit(t, "aaaaaa", how) }
	}
	pool := func(how func(o client.Object)) func(t *testing.T, p *renewing) {
		return func(t *testing.T, p *renewing) { p.change(t, poolOf("v1beta2", "workers", 5), how) }
	}
	note := func(name, value string) func(t *testing.T, p *renewing) {
		return secret(func(s *corev1.Secret) { s.Annotations[name] = value })
	}
	for name, row := range map[string]struct {
		change func(t *testing.T, p *renewing)
		says   string
	}{
		"no renewal":             {func(_ *testing.T, p *renewing) { p.pools.Renew = false }, "is of no Machine"},
		"no slots":               {func(_ *testing.T, p *renewing) { p.slots = nil }, "is of no Machine"},
		"no Secret":              {func(t *testing.T, p *renewing) { testkit.NoError(t, p.nodes.Delete(t.Context(), p.get(t, "aaaaaa"))) }, "is of no Machine"},
		"no label":               {secret(func(s *corev1.Secret) { s.Labels = nil }), "is of no Machine"},
		"an empty label":         {secret(func(s *corev1.Secret) { s.Labels[LabelPoolUID] = "" }), "no MachinePool has the UID"},
		"the UID of no pool":     {secret(func(s *corev1.Secret) { s.Labels[LabelPoolUID] = "uid-of-others" }), `no MachinePool has the UID "uid-of-others"`},
		"another pool's name":    {note(AnnotationPool, "fleet/work/others"), `the annotation of "fleet/work/others"`},
		"another Cluster's":      {note(AnnotationPool, "fleet/other/workers"), `the annotation of "fleet/other/workers"`},
		"no KubeadmConfig":       {secret(func(s *corev1.Secret) { delete(s.Annotations, annotationConfig) }), "is not the owner of KubeadmConfig"},
		"another KubeadmConfig":  {note(annotationConfig, "others"), "is not the owner of KubeadmConfig others"},
		"an owner":               {secret(func(s *corev1.Secret) { s.OwnerReferences = ownedBy("v1", "Tool", "mine") }), "has an owner"},
		"another type":           {secret(func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }), `type: got "Opaque"`},
		"another token's data":   {secret(func(s *corev1.Secret) { s.Data["token-id"] = []byte("cccccc") }), "bootstrap token aaaaaa has the label"},
		"a Secret being deleted": {secretDeleted, "deleted"},
		"the pool has other data": {pool(func(o client.Object) {
			set(t, o.(*unstructured.Unstructured), "later", "spec", "template", "spec", "bootstrap", "configRef", "name")
		}), "it refers to"},
		"the pool is being deleted": {poolDeleted, "is being deleted"},
		"the pool is made again": {func(t *testing.T, p *renewing) {
			testkit.NoError(t, p.home.Delete(t.Context(), poolOf("v1beta2", "workers", 5)))
			again := poolOf("v1beta2", "workers", 5)
			again.SetUID("later")
			testkit.NoError(t, p.home.Create(t.Context(), again))
		}, `no MachinePool has the UID "uid-of-workers"`},
	} {
		t.Run(name, func(t *testing.T) {
			p := replacedToken(t)
			row.change(t, p)
			if m, err := p.asks(t); m != nil || !errors.Is(err, csr.ErrNoMachine) || !strings.Contains(err.Error(), row.says) || strings.Contains(err.Error(), tokenHalf) {
				t.Errorf("got %+v, %v, want %q", m, err, row.says)
			}
		})
	}
}

// TestForgedLabel: the label has no say about a token that stands in a KubeadmConfig, which its Machine or pool alone has.
func TestForgedLabel(t *testing.T) {
	for name, row := range map[string]struct {
		objects []client.Object
		want    string
	}{
		"a Machine's token":      {[]client.Object{machineOf("v1beta2", "one"), configOf("v1beta2", "one", "aaaaaa")}, "fleet/one"},
		"another pool's token":   {[]client.Object{poolOf("v1beta2", "others", 5), poolConfigOf("v1beta2", "others", "aaaaaa")}, "fleet/others"},
		"the token of no object": {[]client.Object{configOf("v1beta2", "one", "aaaaaa")}, ""},
	} {
		p := replacedToken(t)
		for _, o := range row.objects {
			testkit.NoError(t, p.home.Create(t.Context(), o))
		}
		m, err := p.asks(t)
		if row.want == "" && (m != nil || !errors.Is(err, csr.ErrNoMachine)) || row.want != "" && (err != nil || m.Name != row.want) {
			t.Errorf("%s: got %+v, %v, want %q", name, m, err, row.want)
		}
	}
}

// A lostReader fails.
type lostReader struct{ client.Reader }

func (lostReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errFault
}

// TestReplacedUnread: while the Secret cannot be read, nothing is decided.
func TestReplacedUnread(t *testing.T) {
	p := replacedToken(t)
	p.pools.Reader = lostReader{p.nodes}
	if m, err := p.asks(t); m != nil || !errors.Is(err, errFault) || errors.Is(err, csr.ErrNoMachine) {
		t.Errorf("got %+v, %v", m, err)
	}
}
