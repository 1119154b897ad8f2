//go:build !previous

package main

import (
	"context"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/kube/authenticator"
)

// kindOf makes a kind that writes several versions.
func kindOf(provers []func(context.Context) (attest.Prover, error)) authenticator.Evidence {
	return authenticator.EvidenceOf(provider, provers...)
}
