// Package kube is the root of a module that runs package nodeattest's join on a live
// Kubernetes cluster, with client-go and controller-runtime. Nothing about the join is decided
// here: each package is a thin adapter for the core module.
//
//   - api/v1alpha1: the custom resources in which the cluster keeps its state
//   - registry: a membership.Registry over them
//   - keyring: the challenge keys in a Secret
//   - controller: a reconciler that decides certificate requests, for use in your own manager
//   - signer: a reconciler that signs them with your own CA
//   - bypass: a search for ways around attestation
//   - authenticator: the node's side, which gets the kubelet its certificates; certstore below
//     it stores them
//   - explain: what became of a request, rule by rule, and who has to act
//   - deploy: the manifests and, in its folder node, the files of a node
//   - cmd: the programs node-attestation-controller, node-attestation-signer,
//     kubelet-authenticator and kubectl-nodeattest, which is also a package for plugins that
//     read other kinds of evidence
package kube
