// Package kube is the root of a module that puts package nodeattest's join on a live
// Kubernetes cluster, with client-go and controller-runtime. Nothing of the join is
// decided here: each package is a thin adapter of the core module.
//
//   - api/v1alpha1: the custom resources in which the cluster keeps its state
//   - registry: a membership.Registry over them
//   - controller: a reconciler of certificate requests, for a manager of one's own
//   - deploy: the manifests
package kube
