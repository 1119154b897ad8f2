package members

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NodeExists returns a membership.FirstUseConfig.NodeExists: whether each of the readers has a
// Node of a name, asked in turn. After a cache, the API server is asked only about a Node that
// is in the cache. Only the names of Nodes are read.
func NodeExists(readers ...client.Reader) func(ctx context.Context, nodeName string) (bool, error) {
	return func(ctx context.Context, nodeName string) (bool, error) {
		for _, reader := range readers {
			o := new(metav1.PartialObjectMetadata)
			o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
			if err := reader.Get(ctx, client.ObjectKey{Name: nodeName}, o); err != nil {
				return false, client.IgnoreNotFound(err)
			}
		}
		return true, nil
	}
}
