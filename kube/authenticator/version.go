package authenticator

import (
	"context"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/evidence"
	"github.com/nodeattest/nodeattest/refusal"
)

// A versionError is the denial of evidence whose version the control plane does not read. Whoever
// may deny requests can write one, with any annotations: it is worth one more try in each attempt,
// in a version that the node's own configuration allows, and nothing of it is remembered.
type versionError struct {
	error
	annotations map[string]string
}

func (e *versionError) Unwrap() error { return e.error }

// versionDenied is the reason of such a denial.
var versionDenied = (&refusal.Error{Check: csr.CheckProviderVersion}).Reason()

// versions are those of a kind, or none without one.
func versions(k Kind, minimum int) *evidence.Versions {
	v := &evidence.Versions{Minimum: minimum}
	if k == nil {
		return v
	}
	v.Provider, v.Open = k.Provider(), []evidence.Opener{func(ctx context.Context) (attest.Prover, error) { return k.Open(ctx) }}
	if of, ok := k.(proverKind); ok {
		if v.Open = of.open; v.Open == nil {
			v.Open = []evidence.Opener{}
		}
	}
	return v
}
