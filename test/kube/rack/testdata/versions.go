// The names that the rack uses, as the commit before has them: in that
// commit's tree TestVersions replaces ../versions.go by this file.

package main

import (
	"context"
	"io"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/nodeprogram"
	"github.com/nodeattest/nodeattest/kube/program"
)

type (
	evidence     = authenticator.Kind
	nodeEvidence = nodeprogram.Kind
	plugin       = program.Kind
)

func controller(args []string, stderr io.Writer, p plugin) int {
	return program.Controller(args, stderr, p)
}

func node(args []string, stdout, stderr io.Writer, e nodeEvidence) int {
	return nodeprogram.Main(args, stdout, stderr, e)
}

// kindOf makes evidence that is written in one version.
func kindOf(provers []func(context.Context) (attest.Prover, error)) evidence {
	return authenticator.KindOf(provider, provers[0])
}
