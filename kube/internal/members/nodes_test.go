package members

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nodes is a reader of Nodes that answers with an error, or with one Node.
type nodes struct {
	client.Reader
	err   error
	asked int
}

func (n *nodes) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	n.asked++
	if kind := o.(*metav1.PartialObjectMetadata).GroupVersionKind(); kind != (schema.GroupVersionKind{Version: "v1", Kind: "Node"}) || key.Name != "node-1" {
		return errors.New("asked for " + kind.String() + " " + key.Name)
	}
	return n.err
}

// TestNodeExists asks a cache, and then the API server about Nodes in the cache.
func TestNodeExists(t *testing.T) {
	none, broken := apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "node-1"), errors.New("broken")
	for name, row := range map[string]struct {
		cache, live error
		want        bool
		err         error
		asked       int // the API server
	}{
		"in neither":             {none, broken, false, nil, 0},
		"in both":                {nil, nil, true, nil, 1},
		"gone since":             {nil, none, false, nil, 1},
		"perhaps gone since":     {nil, broken, false, broken, 1},
		"no cache can be looked": {broken, nil, false, broken, 0},
	} {
		t.Run(name, func(t *testing.T) {
			cache, live := &nodes{err: row.cache}, &nodes{err: row.live}
			got, err := NodeExists(cache, live)(t.Context(), "node-1")
			if got != row.want || !errors.Is(err, row.err) || live.asked != row.asked || cache.asked != 1 {
				t.Errorf("got %t, %v after asking the API server %d times, want %t, %v after %d", got, err, live.asked, row.want, row.err, row.asked)
			}
		})
	}
}
