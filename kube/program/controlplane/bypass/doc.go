// Package bypass finds the ways around attestation: rights by which an account that has not
// attested becomes a node. Kubernetes' own approver grants a plain request of a bootstrap
// token if a binding of kubeadm says so; another approver may do the same; and anyone
// who may impersonate a node needs no certificate.
//
// Which rights those are was found by a search over the verbs and resources of an API server;
// docs/enforcing.md lists them, and the few that are not looked for. Distributions that certify
// nodes themselves are found by the marks of their Nodes.
//
// [Finder.Find] walks the bindings, so that it can name the one to blame. It then has the API
// server review the access of nodes and of bootstrap tokens, since there may be other
// authorizers, and looks whether the admission policies are in force that guard approvals. A
// [Watch] does so continuously, for a readiness check, with an Event for each binding.
package bypass
