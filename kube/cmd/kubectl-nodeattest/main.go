// Command kubectl-nodeattest is the kubectl plugin of this module: see package plugin for its
// commands, and for a plugin that also reads other kinds of evidence.
package main

import (
	"os"

	"github.com/nodeattest/nodeattest/kube/plugin"
)

func main() { os.Exit(plugin.Main()) }
