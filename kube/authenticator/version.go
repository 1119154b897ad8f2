package authenticator

import (
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/evidence"
	"github.com/nodeattest/nodeattest/refusal"
)

// A versionError is the denial of evidence whose version the control plane does not read. Any account
// that may deny requests can write one, with any annotations: so it leads to one more request in each
// attempt, in a version that the node's own configuration allows, and is not stored.
type versionError struct {
	error
	annotations map[string]string
}

func (e *versionError) Unwrap() error { return e.error }

// versionDenied is the reason of such a denial.
var versionDenied = (&refusal.Error{Check: csr.CheckProviderVersion}).Reason()

// versions returns the versions of the evidence's data format; e is nil without evidence.
func versions(e Evidence, minimum int) *evidence.Versions {
	v := &evidence.Versions{Minimum: minimum}
	if e == nil {
		return v
	}
	v.Provider, v.Open = e.Provider(), []evidence.Opener{e.Open}
	if all, ok := e.(versioned); ok {
		v.Open = append([]evidence.Opener{}, all.open...)
	}
	return v
}
