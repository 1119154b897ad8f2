package bootstrap

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/kube/internal/clusterinfo"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/kube/internal/files"
)

// followInterval is how often the publisher looks at its CA file.
const followInterval = 10 * time.Second

// A publisher keeps the kubeconfig in cluster-info: this key of its data and no other.
type publisher struct {
	client   client.Client // which reads from the cache
	of       *Publication
	reporter *reporter
}

// errMissing says that there is no ConfigMap, which the account has no right to create.
var errMissing = errors.New("ConfigMap kube-public/cluster-info does not exist: apply the component bootstrap again; it is published once it does")

// look publishes the configured server with the CAs that are in the file now. It reads the file again
// after followInterval.
func (p *publisher) look(ctx context.Context, _ everything) (reconcile.Result, error) {
	changed, err := p.publish(ctx)
	switch {
	case apierrors.IsConflict(err):
		p.reporter.writes.WithLabelValues("conflict").Inc()
		return reconcile.Result{RequeueAfter: conflictPause}, nil
	case err != nil:
		object := new(corev1.ConfigMap)
		object.Namespace, object.Name = clusterinfo.Key().Namespace, clusterinfo.Key().Name
		return p.reporter.leave(ctx, object, err, followInterval)
	}
	p.reporter.report(ctx)
	if changed {
		p.reporter.writes.WithLabelValues("done").Inc()
		log.FromContext(ctx).Info("cluster-info published", "server", p.of.Server)
	}
	return reconcile.Result{RequeueAfter: followInterval}, nil
}

func (p *publisher) publish(ctx context.Context) (changed bool, err error) {
	bundle, err := files.Read(p.of.CAFile, configfile.MaxSize)
	var cas []*x509.Certificate
	if err == nil {
		cas, err = bootstraptoken.ParseCAs(bundle)
	}
	if err != nil {
		return false, fmt.Errorf("publisher.caFile %s cannot be used, and the published kubeconfig stays: %w", p.of.CAFile, err)
	}
	if err := p.client.Get(ctx, clusterinfo.Key(), new(corev1.ConfigMap)); apierrors.IsNotFound(err) {
		return false, errMissing
	}
	info := &bootstraptoken.ClusterInfo{Server: p.of.Server, CAs: cas}
	return clusterinfo.Write(ctx, p.client, info, clusterinfo.Options{Replace: p.of.Replace, Servers: p.of.Servers})
}
