// Command kubectl-nodeattest is the kubectl plugin of this module: see package app for its
// commands, and for a plugin that also reads other kinds of evidence.
package main

import (
	"os"

	"github.com/nodeattest/nodeattest/kube/cmd/kubectl-nodeattest/app"
)

func main() { os.Exit(app.Main()) }
