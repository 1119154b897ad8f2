// Package kube is the root of a module that runs package nodeattest's join on a live
// Kubernetes cluster, with client-go and controller-runtime. Nothing about the join is decided
// here: each package is a thin adapter for the core module.
//
//   - api/v1alpha1: the custom resources in which the cluster keeps its state
//   - registry: a membership.Registry over them
//   - boundtokens: the API server's answers for a service that takes a pod's token from the pod's
//     own attested machine alone
//   - keyring: the challenge keys in a Secret
//   - controller: a reconciler that decides certificate requests, for use in your own manager
//   - signer: a reconciler that signs them with your own CA
//   - authenticator: the node's side, which gets the kubelet its certificates; certstore below
//     it stores them
//   - nodetls: the TLS client of what runs next to the kubelet, with the node's certificate
//   - deploy: the manifests and, in its folder node, the files of a node
//   - program/controlplane: node-attestation-controller, node-attestation-signer and
//     bootstrap-controller; program/node: kubelet-authenticator; and program/kubectl:
//     kubectl-nodeattest; for main functions that add kinds of evidence of their own. bypass,
//     below the first, searches for ways around attestation
//   - boundtokens/grpc, a module of its own: a gRPC server that takes a pod's token only from the pod's node
//   - cmd: these programs as they come
//
// # Kubernetes' modules
//
// The module requires the first of these versions. With them its programs are tested against the
// servers of Kubernetes v1.35.4, v1.36.3 and v1.37.2, and its packages with the second ones, too:
//
//	k8s.io/api                         v0.36.3  v0.37.2
//	k8s.io/apimachinery                v0.36.3  v0.37.2
//	k8s.io/client-go                   v0.36.3  v0.37.2
//	sigs.k8s.io/controller-runtime     v0.24.1  v0.25.2
//
// Where an importing module requires newer ones, as go get and go mod tidy add for packages that
// its go.mod does not name yet, it is built with those, and others than these are untested. Require
// the versions above before the first import:
//
//	go get k8s.io/api@v0.36.3 k8s.io/apimachinery@v0.36.3 k8s.io/client-go@v0.36.3
package kube
