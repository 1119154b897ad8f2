// Command node-attestation-controller decides about the certificate requests of nodes: it
// challenges hellos, and approves or denies answers and kubelets' requests for serving
// certificates. It takes evidence of TPMs, and
// documents of clouds. It holds no key that signs certificates.
//
// Its configuration file is described in kube/deploy/config.yaml. It ends with status 0 when
// it is told to (SIGTERM, SIGINT) and when the configuration has changed, to be started
// again with it; with 1 after an error, such as a lost lease, and with 2 after a wrong
// command line.
package main

import (
	"os"

	"github.com/nodeattest/nodeattest/kube/cmd/internal/program"
	"github.com/nodeattest/nodeattest/kube/controller"
)

func main() {
	os.Exit(program.Main(controller.Name, os.Args[1:], os.Stderr, run))
}
