package clusterapi

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/refusal"
)

// annotationConfig, on the Secret of a token that is renewed, is the KubeadmConfig that had the token when the
// Secret got its label.
const annotationConfig = "nodeattest.github.io/cluster-api-pool-config"

// tokenSecret reads the Secret of a bootstrap token of the workload cluster.
func (p *Pools) tokenSecret(ctx context.Context, id string) (*corev1.Secret, error) {
	s := new(corev1.Secret)
	return s, p.Reader.Get(ctx, client.ObjectKey{Namespace: bootstraptoken.Namespace, Name: tokenName + id}, s)
}

// replaced returns the MachinePool of a token that stands in no KubeadmConfig and that this program has seen in none,
// by the label and the annotations that the renewal of tokens gave its Secret while it stood in the pool's; nil
// without them. The admission policy of kube/deploy/clusterapi-pool-tokens-nodes lets the controller's account alone
// write them. From then on the token is known like one that this program has seen.
func (i *Inventory) replaced(ctx context.Context, id string) (*unstructured.Unstructured, error) {
	if i.slots == nil || i.pools == nil || !i.pools.Renew {
		return nil, nil
	}
	s, err := i.pools.tokenSecret(ctx, id)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	uid, labelled := s.Labels[LabelPoolUID]
	if !labelled {
		return nil, nil
	}
	if _, err := tokenIn(s); err != nil {
		return nil, none("bootstrap token %s has the label of MachinePool UID %s: %v", id, refusal.Quote(uid), err)
	}
	p, err := i.poolOfConfig(ctx, types.UID(uid), s.Annotations[annotationConfig])
	if err != nil {
		return nil, err
	}
	if of := s.Annotations[AnnotationPool]; of != i.origin(p).String() {
		return nil, none("bootstrap token %s has the label of MachinePool %s and the annotation of %s", id, p.GetName(), refusal.Quote(of))
	}
	i.tokens.remember(id, s.Annotations[annotationConfig], p.GetUID()) // no more lists and reads for it
	return p, nil
}
