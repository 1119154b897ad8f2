// Package e2e has tests of the SDK against a real kube-apiserver, with its own etcd
// and the client-go calls that any controller would make. They show what only the
// real server can: its stored objects and its authorization.
//
// The binaries are built once from the module proxy by scripts/kube-binaries.sh.
// If they are missing, the tests skip and name that command. `make e2e` runs both.
package e2e
