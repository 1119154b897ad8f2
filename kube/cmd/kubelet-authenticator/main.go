// Kubelet-authenticator gets a node's kubelet its certificates, using evidence about the
// machine:
//
//	kubelet-authenticator credential   what the kubelet's exec credential plugin runs
//	kubelet-authenticator daemon       renews on its own clock, as a systemd service
//	kubelet-authenticator status       says what there is and what is wrong; -o json
//	kubelet-authenticator rotate       renews now
//	kubelet-authenticator enrol        has the operator's CA certify the AK (command ak-ca)
//
// The flag --config, before the command, names the configuration file; kube/deploy/node has an
// example, and the unit. The exit status is 1 after an error and 2 after a wrong command line.
package main

import (
	"os"

	"github.com/nodeattest/nodeattest/kube/program/node"
)

func main() { os.Exit(node.Main(os.Args[1:], os.Stdout, os.Stderr)) }
