// Package kube has the tests of module kube against a real kube-apiserver and etcd, which
// scripts/kube-binaries.sh builds from the module proxy. It exports nothing.
package kube
