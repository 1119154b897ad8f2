package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/attest"
)

// rotateAfter is how long a challenge key is in use.
const rotateAfter = 30 * 24 * time.Hour

// A ringReader keeps the key ring fresh from a Secret that all replicas share. It makes the
// first key and each later one; if several replicas do so at the same time, one wins.
type ringReader struct {
	client.Client               // writes
	reader        client.Reader // bypasses the cache, which may be stale
	secret        client.ObjectKey
	ring          *attest.KeyRing
}

// NeedLeaderElection says that every replica reads the ring.
func (*ringReader) NeedLeaderElection() bool { return false }

// Start reads the Secret until the context is done. While it cannot be read the ring grows
// stale, and everything has to be retried.
func (r *ringReader) Start(ctx context.Context) error { //goroutine: the API server's client alone
	tick := time.NewTicker(attest.MaxRingAge / 3)
	defer tick.Stop()
	for {
		if err := r.read(ctx, time.Now()); err != nil {
			log.FromContext(ctx).Error(err, "the key ring could not be read")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (r *ringReader) read(ctx context.Context, now time.Time) error {
	var secret corev1.Secret
	err := r.reader.Get(ctx, r.secret, &secret)
	if apierrors.IsNotFound(err) {
		data, err := attest.MarshalRingKeys([]attest.RingKey{attest.NewRingKey(now)})
		if err != nil {
			return err
		}
		secret.ObjectMeta, secret.Data = metav1.ObjectMeta{Namespace: r.secret.Namespace, Name: r.secret.Name}, data
		if err := r.Create(ctx, &secret); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	keys, err := attest.ParseRingKeys(secret.Data)
	if err != nil {
		return err
	}
	if err := r.ring.Refresh(keys, now); err != nil {
		return err
	}
	keys, due := attest.RotateKeys(keys, now, rotateAfter)
	if !due {
		return nil
	}
	if secret.Data, err = attest.MarshalRingKeys(keys); err != nil {
		return err
	}
	if err := r.Update(ctx, &secret); err != nil { // a conflict: another replica was first
		return err
	}
	return r.ring.Refresh(keys, now)
}
