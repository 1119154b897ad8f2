package boundtokens

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/refusal"
)

// object is the part of an object that is compared with a token.
type object struct {
	metav1.TypeMeta
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		ServiceAccountName string `json:"serviceAccountName"`
		NodeName           string `json:"nodeName"`
		ProviderID         string `json:"providerID"`
	} `json:"spec"`
}

// ReadsLive implements [claims.LiveObjects].
func (*Cluster) ReadsLive() {}

// Get implements [claims.Objects] for serviceaccounts, pods and nodes, and for secrets with
// [Options].Secrets. Of service accounts and Secrets it asks for the metadata alone. No other resource is
// found. An answer of another object than the one that was asked for, or without a UID, gives
// [refusal.ErrRetry].
func (c *Cluster) Get(ctx context.Context, resource, namespace, name string) (*claims.Object, error) {
	if err := c.ready(); err != nil {
		return nil, err
	}
	kind, accept := map[string]string{"pods": "Pod", "nodes": "Node"}[resource], acceptWhole
	if resource == "serviceaccounts" || resource == "secrets" && c.secrets {
		kind, accept = "PartialObjectMetadata", acceptMetadata
	}
	if kind == "" || (namespace == "") != (resource == "nodes") {
		return nil, fmt.Errorf("boundtokens: %s of namespace %s are not read, and secrets only with Options.Secrets: %w",
			refusal.Quote(resource), refusal.Quote(namespace), claims.ErrNotFound)
	}
	t := target{of: corev1.SchemeGroupVersion.WithResource(resource), namespace: namespace, name: name}
	var got object
	err := c.get(ctx, t, accept, &got)
	switch {
	case errors.Is(err, errAbsent):
		return nil, claims.NewNotFound(resource, name)
	case err != nil:
		return nil, err
	case got.Kind != kind || got.Metadata.Namespace != namespace || got.Metadata.Name != name || got.Metadata.UID == "":
		return nil, another(t, got.Kind, &got.Metadata)
	}
	var deleted *time.Time
	if at := got.Metadata.DeletionTimestamp; at != nil {
		deleted = &at.Time
	}
	return &claims.Object{
		Name: name, Namespace: namespace, UID: string(got.Metadata.UID), Deleted: deleted,
		ServiceAccountName: got.Spec.ServiceAccountName, NodeName: got.Spec.NodeName, ProviderID: got.Spec.ProviderID,
	}, nil
}

// another is the error for an answer of another object than the one that was asked for.
func another(asked target, kind string, got *metav1.ObjectMeta) error {
	name := slices.DeleteFunc([]string{got.Namespace, got.Name}, func(s string) bool { return s == "" })
	return refusal.Retry(fmt.Errorf("boundtokens: get %s: the answer is of kind %s, %s with UID %s", asked,
		refusal.Quote(kind), refusal.Quotes(name), refusal.Quote(string(got.UID))))
}
