// Package kubernetes puts claims, bootstraptoken and csr beside the packages of Kubernetes that
// do the same. It has tests only, in a module of its own: k8s.io/kubernetes needs each of
// its staging modules replaced, which the tests in the module above must not inherit.
package kubernetes
