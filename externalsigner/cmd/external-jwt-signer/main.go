// Command external-jwt-signer signs the service-account tokens of a cluster for kube-apiserver
// (--service-account-signing-endpoint), with a key in a file or in a TPM.
//
// Its configuration file is described in externalsigner/deploy/config.yaml. It exits with status 0 when
// told to (SIGTERM, SIGINT), and when the configuration has changed, so that it is restarted with the new
// one; with 1 after an error; and with 2 after a wrong command line.
//
//	external-jwt-signer kubeadm-patch MANIFEST
//
// prints a patch for kubeadm's --patches.
package main

import (
	"os"

	"github.com/nodeattest/nodeattest/externalsigner/program"
)

func main() { os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr)) }
