// Package bypass finds the ways around attestation: rights by which somebody becomes a
// node who has not attested. Kubernetes' own approver grants a plain request of a bootstrap
// token where a binding of kubeadm says so; an approver of somebody else's does; and who may
// impersonate a node needs no certificate.
//
// [Finder.Find] walks the ClusterRoleBindings, so that it can name the one to blame, and
// then has the API server review the access of nodes and of bootstrap tokens, since it may
// have other authorizers. A [Watch] does so all the time, for a readiness check, with an
// Event for each binding.
package bypass
