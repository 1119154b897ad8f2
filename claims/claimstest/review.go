package claimstest

import (
	"context"
	"fmt"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
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
	var of *state
	if _, err := c.read(ctx, resourceReviews, func(now *state) { of = now.clone() }); err != nil {
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
