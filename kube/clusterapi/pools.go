package clusterapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/refusal"
)

const (
	// ConfigMapPools is the name of the ConfigMap on the workload cluster that says which MachinePools are
	// shut: a key is the name of one, and its value the time (RFC 3339) since when. A pool that is made
	// again under the name is shut, too.
	ConfigMapPools = "cluster-api-pools"
	// LabelPoolUID is the label of a bootstrap token's Secret that is renewed: the UID of its MachinePool.
	LabelPoolUID = "nodeattest.github.io/cluster-api-pool-uid"
	// AnnotationPool, on the same Secret, is the pool: <namespace>/<Cluster>/<name>. A Secret with it
	// that has lost the label is left alone.
	AnnotationPool = "nodeattest.github.io/cluster-api-pool"
)

// Pools connects the MachinePools of Cluster API with the workload cluster.
//
// With Renew, the leader extends the bootstrap tokens of pools, as bootstraptoken.Renew decides, so that the
// bootstrap provider replaces none of them and machines with old launch data join. A token is
// extended while its pool lives, is not shut, and its Cluster's nodes attest; nothing is extended while the pool or the
// Cluster is paused, being deleted, or cannot be read. Its Secret must have the token of the pool's
// KubeadmConfig, and no owner. It gets [LabelPoolUID] and [AnnotationPool] by a first write; one that
// has lost the label since, or has another pool's, stays as it is. Each write is over the version that was read.
// The Secrets of a pool that is shut are deleted, where they have the label or are older than the mark.
// With Renew, every replica knows a token by its Secret's label and annotations after the bootstrap provider has
// replaced it: who may write them may say of which pool a token is.
//
// Renew needs get, list, update and delete on secrets in kube-system of the workload cluster
// (kube/deploy/clusterapi-pool-tokens-nodes keeps it to bootstrap tokens), and list on machinepools in the
// Cluster's namespace. Each Pools needs get on the ConfigMap.
type Pools struct {
	// Reader reads the workload cluster, past caches. It is required.
	Reader client.Reader
	// Namespace is that of [ConfigMapPools]. It is required.
	Namespace string
	// Renew has the leader renew tokens. It needs Writer and Metrics.
	Renew bool
	// TTL is how long a token lives that is extended now; zero: 15 minutes, which is Cluster API's. It
	// has to be no less than the bootstrap provider's --bootstrap-token-ttl, or the provider replaces tokens
	// first. At least 30 s.
	TTL time.Duration
	// Writer writes to the workload cluster.
	Writer client.Writer
	// Metrics gets the metrics of tokens.
	Metrics prometheus.Registerer
}

const (
	defaultPoolTTL = 15 * time.Minute
	minPoolTTL     = 30 * time.Second
)

func (p *Pools) check() error {
	switch {
	case p == nil:
		return nil
	case p.Reader == nil || len(validation.IsDNS1123Label(p.Namespace)) != 0:
		return refusal.Config("Pools", "no Reader, or Namespace "+refusal.Quote(p.Namespace), "a Reader and a namespace of the workload cluster")
	case p.Renew && (p.Writer == nil || p.Metrics == nil):
		return refusal.Config("Pools", "Renew without Writer or Metrics", "both")
	case p.TTL != 0 && p.TTL < minPoolTTL:
		return refusal.Config("Pools.TTL", p.TTL.String(), "0, or "+minPoolTTL.String()+" or more")
	}
	return nil
}

func (p *Pools) ttl() time.Duration { return cmp.Or(p.TTL, defaultPoolTTL) }

// shut reports whether a pool of the namespace is shut, by its name. While that is not known there is an error.
func (i *Inventory) shut(ctx context.Context, pool string) (bool, error) {
	_, is, err := i.shutSince(ctx, pool)
	return is, err
}

// shutSince is shut, with the time of the mark; zero where its value is no time.
func (i *Inventory) shutSince(ctx context.Context, pool string) (since time.Time, is bool, err error) {
	if i.pools == nil {
		return since, false, errors.New("Config.Pools is nil, so it is not known whether MachinePool " + pool + " is shut")
	}
	var marks corev1.ConfigMap
	if err := i.pools.Reader.Get(ctx, client.ObjectKey{Namespace: i.pools.Namespace, Name: ConfigMapPools}, &marks); err != nil {
		return since, false, fmt.Errorf("it is not known whether MachinePool %s is shut: ConfigMap %s/%s of the nodes' cluster, which kube/deploy/clusterapi-pools-nodes has: %w",
			pool, i.pools.Namespace, ConfigMapPools, err)
	}
	text, is := marks.Data[pool]
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		since = at
	}
	_, binary := marks.BinaryData[pool]
	return since, is || binary, nil
}
