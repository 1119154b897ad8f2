package membership

import (
	"slices"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/plaintext"
)

// Scope is what machine identities a registry holds. One machine has
// several keys: an EK of each algorithm and any number of AKs. So that it does not
// count as several machines, one registry serves one kind of evidence on one road and, on
// attest.RoadEK, one algorithm of EKs.
//
// That is not enough where a vendor certifies two EKs of one algorithm in one TPM (the
// templates L-1 and H-1, or L-2 and H-2, of the TCG EK Credential Profile 2.6, annex B):
// nothing that the control plane sees tells them apart. [FirstUse] therefore wants a
// Machine UID for each newcomer on that road: a second name then takes a second Machine
// of the inventory.
type Scope struct {
	// Provider is the kind of evidence; empty means "tpm".
	Provider string
	// Road is the road on which the identities were found; the zero value is
	// attest.RoadAK.
	Road attest.Road
	// IdentityClass is that of [attest.Result]: on attest.RoadEK the EK's algorithm, one
	// of "RSA-2048", "RSA-3072", "RSA-4096", "P-256", "P-384" and "P-521"; empty on
	// attest.RoadAK.
	IdentityClass string
}

// scopeOf is the scope that a machine belongs to.
func scopeOf(r *attest.Result) Scope {
	s := Scope{Provider: r.Provider, Road: r.Road, IdentityClass: r.IdentityClass}
	switch s.Provider {
	case defaultProvider:
		s.Provider = ""
	case "":
		s.Provider = "no provider"
	}
	return s
}

const defaultProvider = "tpm"

func (s Scope) provider() string {
	if s.Provider == "" {
		return defaultProvider
	}
	return s.Provider
}

// String returns "ak", "ek" and the algorithm, "ek RSA-2048", or, of another kind than
// "tpm", its name and the road: "gce document".
func (s Scope) String() string {
	out := s.Road.String()
	if s.Provider != "" {
		out = s.Provider + " " + out
	}
	if s.IdentityClass != "" {
		out += " " + s.IdentityClass
	}
	return out
}

// Check returns an error with [CheckRegistryScope] for a scope that is none.
func (s Scope) Check() error {
	ok := s.Provider != defaultProvider && s.Provider != "" && plaintext.Valid(s.Provider, 63)
	switch s.Road {
	case attest.RoadEK:
		ok = (ok || s.Provider == "") && slices.Contains(ekAlgorithms[:], s.IdentityClass)
	case attest.RoadAK:
		ok = (ok || s.Provider == "") && s.IdentityClass == ""
	case attest.RoadDocument:
		ok = ok && (s.IdentityClass == "" || plaintext.Valid(s.IdentityClass, 63))
	default:
		ok = false
	}
	if !ok {
		return &attest.Error{Check: CheckRegistryScope, Got: s.String(), Want: "ak, ek with an algorithm of EKs, or the documents of another provider"}
	}
	return nil
}

// ekAlgorithms are those that an EK may have.
var ekAlgorithms = [...]string{"RSA-2048", "RSA-3072", "RSA-4096", "P-256", "P-384", "P-521"}
