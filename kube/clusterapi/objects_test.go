package clusterapi

import (
	"context"
	"testing"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

const (
	namespace = "fleet"
	work      = "work" // the Cluster
)

// versions are the versions of Cluster API's objects that are tested.
var versions = []string{"v1beta1", "v1beta2"}

type fields = map[string]any

// objectOf makes an object of Cluster API in the namespace.
func objectOf(version, group, kind, name string, spec fields) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: fields{"spec": spec}}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetUID(testUID(name))
	o.SetLabels(map[string]string{clusterLabel: work})
	return o
}

// testUID is the UID of an object with a name.
func testUID(name string) types.UID { return types.UID("uid-of-" + name) }

// ownedBy makes an object's reference to its controller.
func ownedBy(version, kind, name string) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: coreGroup + "/" + version, Kind: kind, Name: name, UID: testUID(name), Controller: &yes}}
}

// clusterOf makes the Cluster, with annotations.
func clusterOf(version string, annotations map[string]string) *unstructured.Unstructured {
	o := objectOf(version, coreGroup, "Cluster", work, fields{})
	o.SetAnnotations(annotations)
	return o
}

// machineOf makes a Machine whose KubeadmConfig has its name.
func machineOf(version, name string) *unstructured.Unstructured {
	ref := fields{"kind": "KubeadmConfig", "name": name}
	if version == "v1beta1" {
		ref["apiVersion"], ref["namespace"] = bootstrapGroup+"/"+version, namespace
	} else {
		ref["apiGroup"] = bootstrapGroup
	}
	return objectOf(version, coreGroup, "Machine", name, fields{
		"clusterName": work, "bootstrap": fields{"configRef": ref, "dataSecretName": name + "-data"}, "providerID": "metal://" + name,
	})
}

// configOf makes the KubeadmConfig of a Machine, with a token.
func configOf(version, name, token string) *unstructured.Unstructured {
	o := objectOf(version, bootstrapGroup, "KubeadmConfig", name, fields{
		"files":             []any{fields{"content": "a password"}},
		"joinConfiguration": fields{"discovery": fields{"bootstrapToken": fields{"token": token + ".0123456789abcdef"}}},
	})
	o.SetOwnerReferences(ownedBy(version, "Machine", name))
	return o
}

// poolOf makes a MachinePool of some replicas whose KubeadmConfig has its name.
func poolOf(version, name string, replicas int64) *unstructured.Unstructured {
	spec := machineOf(version, name).Object["spec"].(fields)
	delete(spec, "providerID")
	return objectOf(version, coreGroup, poolKind, name, fields{"clusterName": work, "replicas": replicas, "template": fields{"spec": spec}})
}

// poolConfigOf makes the KubeadmConfig of a MachinePool, with a token.
func poolConfigOf(version, name, token string) *unstructured.Unstructured {
	o := configOf(version, name, token)
	o.SetOwnerReferences(ownedBy(version, poolKind, name))
	return o
}

// set changes a field of an object.
func set(t *testing.T, o *unstructured.Unstructured, value any, path ...string) {
	t.Helper()
	testkit.NoError(t, unstructured.SetNestedField(o.Object, value, path...))
}

// stored returns a client of a management cluster with objects, in one version, and its indexes.
func (i *Inventory) stored(t *testing.T, version string, objects []client.Object, wrap ...func(*fake.ClientBuilder)) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, kind := range []schema.GroupVersionKind{i.kinds.machine, i.kinds.config, i.kinds.cluster, i.kinds.pool} {
		scheme.AddKnownTypeWithName(kind, new(unstructured.Unstructured))
		scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), new(unstructured.UnstructuredList))
	}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	testkit.NoError(t, i.index(t.Context(), indexer{builder}))
	for _, o := range objects {
		builder.WithObjects(o.DeepCopyObject().(client.Object))
	}
	for _, f := range wrap {
		f(builder)
	}
	return builder.Build()
}

// indexer adds indexes to a fake client.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, f client.IndexerFunc) error {
	i.WithIndex(o, field, f)
	return nil
}

// newInventory makes an inventory over stored objects. What the cache is to have is cached, or all of
// them if that is nil.
func newInventory(t *testing.T, version string, records membership.Lookups, objects, cached []client.Object) *Inventory {
	t.Helper()
	core, bootstrap := schema.GroupVersion{Group: coreGroup, Version: version}, schema.GroupVersion{Group: bootstrapGroup, Version: version}
	i := &Inventory{namespace: namespace, cluster: work, records: records, lists: rate.NewLimiter(rate.Every(listInterval), listBurst),
		kinds: kinds{machine: core.WithKind("Machine"), config: bootstrap.WithKind("KubeadmConfig"), cluster: core.WithKind("Cluster"), pool: core.WithKind(poolKind)}}
	if cached == nil {
		cached = objects
	}
	var leaned []client.Object
	for _, o := range cached {
		leaned = append(leaned, testkit.Must(lean(o.DeepCopyObject())).(client.Object))
	}
	i.live, i.cached = i.stored(t, version, objects), i.stored(t, version, leaned)
	return i
}
