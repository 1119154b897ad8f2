package bootstrap

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/kube/internal/clusterinfo"
)

// A signer keeps the signatures of cluster-info: the keys jws-kubeconfig-* of its data and no other.
type signer struct {
	client   client.Client // which reads from the cache
	now      func() time.Time
	reporter *reporter
	replaced string // the resourceVersion over which it wrote last: the cache may have it for a moment
}

// look signs cluster-info as bootstraptoken.Sign says. Without the ConfigMap or its kubeconfig there is
// nothing to sign until one of them comes.
func (s *signer) look(ctx context.Context, _ everything) (reconcile.Result, error) {
	var info corev1.ConfigMap
	if err := s.client.Get(ctx, clusterinfo.Key(), &info); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if info.ResourceVersion == s.replaced {
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	}
	objects, err := tokens(ctx, s.client)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := s.now()
	signing, err := bootstraptoken.Sign(info.Data, objects, now)
	if err != nil {
		return s.reporter.leave(ctx, &info, err, 0)
	}
	s.reporter.report(ctx, refusedSecrets(signing.Refused, objects)...)
	if signing.Changed {
		if result, err := s.write(ctx, &info, signing.Data); err != nil || result.RequeueAfter != 0 {
			return result, err
		}
	}
	return at(signing.Next, now), nil
}

// write replaces the data of exactly the ConfigMap that was read.
func (s *signer) write(ctx context.Context, info *corev1.ConfigMap, data map[string]string) (reconcile.Result, error) {
	read := info.ResourceVersion
	info.Data = data
	err := s.client.Update(ctx, info)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		s.reporter.writes.WithLabelValues("conflict").Inc()
		log.FromContext(ctx).Info("cluster-info changed or deleted before its signatures were written; it is signed again if it still exists")
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	case err != nil:
		s.reporter.writes.WithLabelValues("failed").Inc()
		return reconcile.Result{}, err
	}
	s.replaced = read
	s.reporter.writes.WithLabelValues("done").Inc()
	log.FromContext(ctx).Info("cluster-info signed", "keys", len(data))
	return reconcile.Result{}, nil
}
