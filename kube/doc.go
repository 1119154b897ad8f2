// Package kube is the root of a module that puts package nodeattest's join on a live
// Kubernetes cluster, with client-go and controller-runtime. Nothing of the join is
// decided here: each package is a thin adapter of the core module.
//
//   - api/v1alpha1: the custom resources in which the cluster keeps its state
//   - registry: a membership.Registry over them
//   - keyring: the challenge keys in a Secret
//   - controller: a reconciler that decides about certificate requests, for a manager of
//     one's own
//   - signer: a reconciler that signs them with a CA of one's own
//   - bypass: a search for ways around attestation
//   - deploy: the manifests
//   - cmd/node-attestation-controller and cmd/node-attestation-signer: the programs
package kube
