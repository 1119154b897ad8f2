// Command bootstrap-controller serves bootstrap tokens where kube-controller-manager runs neither its
// bootstrap signer nor its token cleaner. Its configuration names which controllers run: signer and
// publisher, which keep the signatures and the kubeconfig of ConfigMap cluster-info, or cleaner, which
// deletes the Secrets of expired tokens.
//
// The configuration file is described in kube/deploy/bootstrap/config.yaml. It exits with status 0 when
// told to (SIGTERM, SIGINT), and when the configuration has changed, so that it is restarted with the
// new one; with 1 after an error, such as a lost lease; and with 2 after a wrong command line.
package main

import (
	"os"

	"github.com/nodeattest/nodeattest/kube/program/controlplane"
)

func main() { os.Exit(controlplane.Bootstrap(os.Args[1:], os.Stderr)) }
