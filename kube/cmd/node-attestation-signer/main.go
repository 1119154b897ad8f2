// Command node-attestation-signer signs approved certificate requests of nodes with its own
// CA, after verifying the evidence again. It is for the signers that the configuration names
// and that are not Kubernetes' own.
//
// Its configuration file is that of the node-attestation-controller, described in
// kube/deploy/config.yaml. It exits with status 0 when told to (SIGTERM, SIGINT), and when the
// configuration has changed, so that it is restarted with the new one; with 1 after an error,
// such as a lost lease; and with 2 after a wrong command line.
package main

import (
	"os"

	"github.com/nodeattest/nodeattest/kube/program/controlplane"
)

func main() { os.Exit(controlplane.Signer(os.Args[1:], os.Stderr)) }
