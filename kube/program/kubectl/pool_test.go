package kubectl

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/clusterapi"
)

// pools are the marks of pools.
func pools(marks map[string]string, binary map[string][]byte) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: clusterapi.ConfigMapPools}, Data: marks, BinaryData: binary}
}

// marksOf reads the marks.
func (o *operated) marksOf(t *testing.T) map[string]string {
	t.Helper()
	m := pools(nil, nil)
	testkit.NoError(t, o.client.Get(t.Context(), client.ObjectKeyFromObject(m), m))
	if len(m.BinaryData) != 0 {
		t.Errorf("binary marks: %v", m.BinaryData)
	}
	return m.Data
}

// TestPool: a pool is marked with the time, anew each time, and opened again; other marks stay.
func TestPool(t *testing.T) {
	const now, before = "2026-03-02T12:00:00Z", "2026-03-01T12:00:00Z"
	for name, row := range map[string]struct {
		run    func(p *plugin, ctx context.Context, pool string) error
		marks  *corev1.ConfigMap
		pool   string
		want   map[string]string
		says   string
		failed string
	}{
		"shut":           {(*plugin).shutPool, pools(map[string]string{"b": before}, nil), "a", map[string]string{"a": now, "b": before}, "MachinePool a is shut", ""},
		"shut the first": {(*plugin).shutPool, pools(nil, nil), "a", map[string]string{"a": now}, "is shut", ""},
		"shut again":     {(*plugin).shutPool, pools(map[string]string{"a": before}, nil), "a", map[string]string{"a": now}, "is shut", ""},
		"shut, binary":   {(*plugin).shutPool, pools(nil, map[string][]byte{"a": {0xff}}), "a", map[string]string{"a": now}, "is shut", ""},
		"open":           {(*plugin).openPool, pools(map[string]string{"a": before, "b": before}, nil), "a", map[string]string{"b": before}, "MachinePool a is open", ""},
		"open, no time":  {(*plugin).openPool, pools(map[string]string{"a": ""}, nil), "a", nil, "is open", ""},
		"open, binary":   {(*plugin).openPool, pools(nil, map[string][]byte{"a": {0xff}}), "a", nil, "is open", ""},
		"open, not shut": {(*plugin).openPool, pools(map[string]string{"b": before}, nil), "a", map[string]string{"b": before}, "MachinePool a was not shut", ""},
		"a bad name":     {(*plugin).shutPool, pools(nil, nil), "A/b", nil, "", `"A/b" is no name of a MachinePool`},
		"no component":   {(*plugin).shutPool, nil, "a", nil, "", "lacks the component clusterapi-pools-nodes"},
		"none to open":   {(*plugin).openPool, nil, "a", nil, "", "lacks the component clusterapi-pools-nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			if row.marks != nil {
				objects = append(objects, row.marks)
			}
			o := operates(t, "", objects...)
			err := row.run(o.plugin, t.Context(), row.pool)
			if (err == nil) != (row.failed == "") || err != nil && !strings.Contains(err.Error(), row.failed) {
				t.Errorf("got %v, want %q", err, row.failed)
			}
			if !strings.Contains(o.out.String(), row.says) || row.says == "" && o.out.Len() != 0 {
				t.Errorf("it says %q, want %q", &o.out, row.says)
			}
			if row.marks != nil && !maps.Equal(o.marksOf(t), row.want) {
				t.Errorf("the marks are %v, want %v", o.marksOf(t), row.want)
			}
		})
	}
}

// marking has another writer mark a pool before each of the first writes.
type marking struct {
	client.Client
	times int
}

func (m *marking) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	if m.times--; m.times >= 0 {
		return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, o.GetName(), errors.New("written meanwhile"))
	}
	return m.Client.Update(ctx, o, options...)
}

// TestPoolConflict: the mark is written over other writers' marks, and an error says if it is not.
func TestPoolConflict(t *testing.T) {
	o := operates(t, "", pools(nil, nil))
	o.client = &marking{o.client, writeTries - 1}
	if err := o.shutPool(t.Context(), "a"); err != nil || len(o.marksOf(t)) != 1 {
		t.Errorf("got %v, %v", err, o.marksOf(t))
	}
	o = operates(t, "", pools(nil, nil))
	o.client = &marking{o.client, writeTries}
	if err := o.shutPool(t.Context(), "a"); !apierrors.IsConflict(err) || o.out.Len() != 0 || len(o.marksOf(t)) != 0 {
		t.Errorf("got %v, %q, %v", err, &o.out, o.marksOf(t))
	}
}
