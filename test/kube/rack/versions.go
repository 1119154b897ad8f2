package main

import (
	"context"
	"io"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/program/controlplane"
	nodeprogram "github.com/nodeattest/nodeattest/kube/program/node"
)

type (
	evidence     = authenticator.Evidence
	nodeEvidence = nodeprogram.Evidence
	plugin       = controlplane.Plugin
)

func controller(args []string, stderr io.Writer, p plugin) int {
	return controlplane.Controller(args, stderr, p)
}

func node(args []string, stdout, stderr io.Writer, e nodeEvidence) int {
	return nodeprogram.Main(args, stdout, stderr, e)
}

// kindOf makes evidence that is written in several versions.
func kindOf(provers []func(context.Context) (attest.Prover, error)) evidence {
	return authenticator.EvidenceOf(provider, provers...)
}
