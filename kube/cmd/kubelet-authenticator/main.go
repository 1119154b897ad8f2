// Kubelet-authenticator gets the certificates of a node's kubelet, with evidence about the machine:
//
//	kubelet-authenticator credential   is the kubelet's exec credential plugin
//	kubelet-authenticator daemon       renews the certificates, as a systemd service
//	kubelet-authenticator status       prints the certificates and problems; -o json
//	kubelet-authenticator rotate       renews the certificates now
//	kubelet-authenticator enrol        has the operator's CA certify the AK (command ak-ca)
//	kubelet-authenticator identity     prints the machine's identity before it joins; -o inventory
//	kubelet-authenticator doctor       examines machine, cluster and kubelet, and writes nothing
//	kubelet-authenticator migrate      has the kubelet of a node that kubeadm joined use the plugin
//
// The flag --config, before the command, names the configuration file; kube/deploy/node has an
// example, and the unit. kubelet-authenticator --help lists all commands. The exit status is 1 after an
// error, 2 after a wrong command line, 3 if migrate gets no certificate in time (nothing was changed),
// and 4 to 6 if doctor finds a fault.
package main

import (
	"os"

	"github.com/nodeattest/nodeattest/kube/program/node"
)

func main() { os.Exit(node.Main(os.Args[1:], os.Stdout, os.Stderr)) }
