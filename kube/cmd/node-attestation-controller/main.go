// Command node-attestation-controller decides the certificate requests of nodes: it challenges
// hellos, and approves or denies answers and kubelets' requests for serving certificates. It
// accepts evidence of TPMs, and documents of clouds. It has no key that signs certificates.
//
// Its configuration file is described in kube/deploy/config.yaml. It exits with status 0 when
// told to (SIGTERM, SIGINT), and when the configuration has changed, so that it is restarted
// with the new one; with 1 after an error, such as a lost lease; and with 2 after a wrong
// command line.
package main

import (
	"os"

	"github.com/nodeattest/nodeattest/kube/program/controlplane"
)

func main() { os.Exit(controlplane.Controller(os.Args[1:], os.Stderr)) }
