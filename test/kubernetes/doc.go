// Package kubernetes compares claims, bootstraptoken and csr with the Kubernetes packages
// that do the same. It has only tests, in a module of its own: k8s.io/kubernetes needs each
// of its staging modules replaced, which the tests in the parent module must not inherit.
// Built with go137.mod and the tag kubernetes137, it has the packages of Kubernetes 1.37.
package kubernetes
