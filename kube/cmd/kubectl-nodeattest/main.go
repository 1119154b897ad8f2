// Command kubectl-nodeattest is the kubectl plugin of this module: package kubectl
// describes its commands, and is for plugins that know other kinds of evidence.
package main

import (
	"os"

	"github.com/nodeattest/nodeattest/kube/program/kubectl"
)

func main() {
	os.Exit(kubectl.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
