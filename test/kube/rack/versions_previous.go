//go:build previous

package main

import (
	"context"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/kube/authenticator"
)

// kindOf makes a kind that writes one version.
func kindOf(provers []func(context.Context) (attest.Prover, error)) authenticator.Kind {
	return authenticator.KindOf(provider, provers[0])
}
