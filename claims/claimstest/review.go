package claimstest

import (
	"context"
	"fmt"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/jws"
)

// ReviewConfig is [Cluster.ValidatorConfig] for a service that has the API server review tokens: with
// [Cluster.Review] in place of Issuers. Of the Objects, the Nodes alone are then read.
func (c *Cluster) ReviewConfig() claims.ValidatorConfig {
	config := c.ValidatorConfig()
	config.Issuers, config.Review = nil, c.Review
	return config
}

// Review answers as kube-apiserver answers a TokenReview (package apiserver): the token must be the
// cluster's own and for one of the audiences, or for the API server where none are given, and its service
// account and the object that it is bound to must exist. Otherwise the error has [claims.CheckReview].
// As in kube-apiserver, the Node of a pod's token need not exist.
//
// The faults of "tokenreviews" are its own; faults of objects and keys do not reach it. A Stale one
// is a review from the API server's cache: an object that was deleted since is taken for an existing one.
func (c *Cluster) Review(ctx context.Context, token string, audiences []string) (*claims.Review, error) {
	var of frozen
	if _, err := c.read(ctx, resourceReviews, func(now *state) { of.state = now.clone() }); err != nil {
		return nil, err
	}
	validator, err := apiserver.NewValidator(apiserver.ValidatorConfig{
		Issuers: []string{c.Issuer()}, Audiences: []string{c.Issuer()}, Keys: of, Objects: of, Now: c.now,
	})
	if err != nil {
		return nil, err
	}
	result, err := validator.Validate(ctx, token, audiences...)
	if err != nil {
		return nil, fmt.Errorf("claimstest: %w: %w", claims.CheckReview, err)
	}
	return &claims.Review{
		Username: result.Username(), UID: result.UID(), Groups: append(result.Groups(), "system:authenticated"),
		Extra: result.Extra(), Audiences: result.Audiences,
	}, nil
}

// frozen are the keys and objects of a state that does not change.
type frozen struct{ *state }

// ReadsLive implements claims.LiveObjects.
func (frozen) ReadsLive() {}

// Get implements claims.Objects.
func (f frozen) Get(_ context.Context, resource, namespace, name string) (*claims.Object, error) {
	if object := f.get(resource, namespace, name); object != nil {
		return object, nil
	}
	return nil, claims.NewNotFound(resource, name)
}

// Keys implements jws.KeySet.
func (f frozen) Keys(_ context.Context, keyID string) ([]*jws.Key, error) {
	return f.keysOf(keyID), nil
}
