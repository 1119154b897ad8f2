// Command kubectl-nodeattest is the kubectl plugin of this module: package operatorprogram
// describes its commands, and is for plugins that know other kinds of evidence.
package main

import (
	"os"

	"github.com/nodeattest/nodeattest/kube/operatorprogram"
)

func main() {
	os.Exit(operatorprogram.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
