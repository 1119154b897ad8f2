package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodeattest/nodeattest/bootstraptoken"
)

// maxErrors is how many failed deletions are logged at a time.
const maxErrors = 3

// A cleaner deletes the Secrets of expired tokens.
type cleaner struct {
	client   client.Client // which reads from the cache
	now      func() time.Time
	reporter *reporter
}

// look deletes the Secrets that bootstraptoken.Sweep names.
func (c *cleaner) look(ctx context.Context, _ everything) (reconcile.Result, error) {
	objects, err := tokens(ctx, c.client)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := c.now()
	sweeping, err := bootstraptoken.Sweep(objects, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	c.reporter.report(ctx, refusedSecrets(sweeping.Refused, objects)...)
	next := sweeping.Next
	var failed []error
	for _, o := range sweeping.Delete {
		err := c.remove(ctx, o)
		switch {
		case apierrors.IsConflict(err): // it was given more time, or made again
			c.reporter.writes.WithLabelValues("conflict").Inc()
			if soon := now.Add(conflictPause); next.IsZero() || soon.Before(next) {
				next = soon
			}
		case err != nil:
			c.reporter.writes.WithLabelValues("failed").Inc()
			failed = append(failed, fmt.Errorf("cannot delete the expired Secret %s: %w", o.Name, err))
		}
	}
	if more := len(failed) - maxErrors; more > 0 {
		failed = append(failed[:maxErrors], fmt.Errorf("and %d more", more))
	}
	if len(failed) != 0 {
		return reconcile.Result{}, errors.Join(failed...)
	}
	return at(next, now), nil
}

// remove deletes exactly the Secret that was read. One that is gone is not an error.
func (c *cleaner) remove(ctx context.Context, o *bootstraptoken.Object) error {
	s := new(corev1.Secret)
	s.Namespace, s.Name = o.Namespace, o.Name
	uid := types.UID(o.UID)
	err := c.client.Delete(ctx, s, client.Preconditions{UID: &uid, ResourceVersion: &o.ResourceVersion})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		c.reporter.writes.WithLabelValues("done").Inc()
		log.FromContext(ctx).Info("Secret of an expired bootstrap token deleted", "secret", o.Name, "uid", o.UID)
	}
	return err
}
