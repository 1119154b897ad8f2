package controlplane

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
)

// TestRecordChanges: an operator's changes of records are reported by node, and changes of metadata and status are not.
func TestRecordChanges(t *testing.T) {
	scheme := runtime.NewScheme()
	testkit.MustDo(v1alpha1.AddToScheme(scheme))
	informers := &informertest.FakeInformers{Scheme: scheme}
	var changed []string
	testkit.MustDo(recordChanges(t.Context(), informers, func(node string) { changed = append(changed, node) }))
	informer := testkit.Must(informers.FakeInformerFor(context.Background(), new(v1alpha1.AttestedNode)))
	record := func(name, machine, label string) *v1alpha1.AttestedNode {
		return &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"label": label}}, Spec: v1alpha1.AttestedNodeSpec{Machine: machine}}
	}
	informer.Add(record("added", "ek:1", ""))
	informer.Update(record("labelled", "ek:1", "a"), record("labelled", "ek:1", "b"))
	informer.Update(record("changed", "ek:1", ""), record("changed", "ek:2", ""))
	informer.Delete(record("deleted", "ek:1", ""))
	if want := []string{"added", "changed", "deleted"}; !slices.Equal(changed, want) {
		t.Errorf("got %q, want %q", changed, want)
	}
}
