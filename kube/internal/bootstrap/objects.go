// Package bootstrap has the controllers of program bootstrap-controller, for clusters whose
// kube-controller-manager runs neither of its own two for bootstrap tokens: a signer, which keeps the
// signatures in ConfigMap cluster-info, a cleaner, which deletes the Secrets of expired tokens, and a
// publisher, which keeps the kubeconfig in cluster-info. Package bootstraptoken decides each write.
package bootstrap

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/kube/internal/clusterinfo"
	"github.com/nodeattest/nodeattest/secret"
)

// CacheOptions has a manager's cache hold the Secrets of bootstrap tokens and the one ConfigMap. The API
// server sends nothing else, and reading another kind is an error.
func CacheOptions() cache.Options {
	of := func(namespace string, selector fields.Selector) cache.ByObject {
		return cache.ByObject{Namespaces: map[string]cache.Config{namespace: {FieldSelector: selector}}}
	}
	return cache.Options{
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}:    of(bootstraptoken.Namespace, fields.OneTermEqualSelector("type", bootstraptoken.SecretType)),
			&corev1.ConfigMap{}: of(clusterinfo.Key().Namespace, fields.OneTermEqualSelector("metadata.name", clusterinfo.Key().Name)),
		},
		DefaultTransform:            lean,
		ReaderFailOnMissingInformer: true,
	}
}

// lean takes from an object what no controller reads.
func lean(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Secret:
		o.ObjectMeta = metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion, DeletionTimestamp: o.DeletionTimestamp}
	case *corev1.ConfigMap: // which is written back whole: the API server keeps its managed fields
		o.ManagedFields = nil
	}
	return object, nil
}

// tokens returns the Secrets of bootstrap tokens.
func tokens(ctx context.Context, reader client.Reader) ([]*bootstraptoken.Object, error) {
	var list corev1.SecretList
	if err := reader.List(ctx, &list, client.InNamespace(bootstraptoken.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	objects := make([]*bootstraptoken.Object, 0, len(list.Items))
	for i := range list.Items {
		s := &list.Items[i]
		o := &bootstraptoken.Object{
			Namespace: s.Namespace, Name: s.Name, UID: string(s.UID), ResourceVersion: s.ResourceVersion,
			Type: string(s.Type), Data: secret.New(s.Data),
		}
		if s.DeletionTimestamp != nil {
			o.Deleted = &s.DeletionTimestamp.Time
		}
		objects = append(objects, o)
	}
	return objects, nil
}
