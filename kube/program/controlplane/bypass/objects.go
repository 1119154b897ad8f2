package bypass

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Objects travel without their Go types, so that the scheme of the caller's clients does not
// have to know those.

// list lists a namespace's objects of a kind of RBAC; "" is the cluster.
func list[T any](ctx context.Context, reader client.Reader, namespace, kind string) ([]T, error) {
	var raw unstructured.UnstructuredList
	raw.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind(kind + "List"))
	if err := reader.List(ctx, &raw, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	all := make([]T, len(raw.Items))
	for i := range raw.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Items[i].Object, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// create has the API server fill in the status of a review.
func create(ctx context.Context, writer client.Writer, review *authorizationv1.SubjectAccessReview) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(review)
	if err != nil {
		return err
	}
	raw := &unstructured.Unstructured{Object: fields}
	raw.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"))
	if err := writer.Create(ctx, raw); err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, review)
}
