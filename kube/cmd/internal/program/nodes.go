package program

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// CacheNodes has a manager keep the names of all Nodes in its cache, for NodeExists.
func CacheNodes(ctx context.Context, m manager.Manager) error {
	_, err := m.GetCache().GetInformer(ctx, aNode())
	return err
}

// NodeExists returns a function that reports whether there is a Node of a given name: whether
// each of the readers has it, asked in turn. After a cache, the API server is asked only about
// a Node that is in the cache.
func NodeExists(readers ...client.Reader) func(ctx context.Context, nodeName string) (bool, error) {
	return func(ctx context.Context, nodeName string) (bool, error) {
		for _, reader := range readers {
			if err := reader.Get(ctx, client.ObjectKey{Name: nodeName}, aNode()); err != nil {
				return false, client.IgnoreNotFound(err)
			}
		}
		return true, nil
	}
}

// aNode returns a Node without its contents.
func aNode() *metav1.PartialObjectMetadata {
	o := new(metav1.PartialObjectMetadata)
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return o
}
