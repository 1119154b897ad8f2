package membership

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"strconv"

	"github.com/nodeattest/nodeattest/attest"
)

// Scope is what machine identities a registry holds. One machine has
// several keys: an EK of each algorithm and any number of AKs. So that it does not
// count as several machines, one registry serves one road and, on attest.RoadEK, one
// algorithm of EKs.
//
// That is not enough where a vendor certifies two EKs of one algorithm in one TPM (the
// templates L-1 and H-1, or L-2 and H-2, of the TCG EK Credential Profile 2.6, annex B):
// nothing that the control plane sees tells them apart. [FirstUse] therefore wants a
// Machine UID for each newcomer on that road: a second name then takes a second Machine
// of the inventory.
type Scope struct {
	// Road is the road on which the identities were found; the zero value is
	// attest.RoadAK.
	Road attest.Road
	// EKAlgorithm is empty on attest.RoadAK, and on attest.RoadEK one of "RSA-2048",
	// "RSA-3072", "RSA-4096", "P-256", "P-384" and "P-521".
	EKAlgorithm string
}

// String returns "ak", or "ek" and the algorithm: "ek RSA-2048".
func (s Scope) String() string {
	if s.EKAlgorithm == "" {
		return s.Road.String()
	}
	return s.Road.String() + " " + s.EKAlgorithm
}

// Check returns an error with [CheckRegistryScope] for a scope that is none.
func (s Scope) Check() error {
	switch {
	case s == Scope{Road: attest.RoadAK}:
		return nil
	case s.Road == attest.RoadEK:
		switch s.EKAlgorithm {
		case "RSA-2048", "RSA-3072", "RSA-4096", "P-256", "P-384", "P-521":
			return nil
		}
	}
	return &attest.Error{Check: CheckRegistryScope, Got: s.String(), Want: "ak, or ek with an algorithm of EKs"}
}

// keyAlgorithm is the name that Scope has for the algorithm of a key; "" for kinds that
// no EK has.
func keyAlgorithm(key crypto.PublicKey) string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return "RSA-" + strconv.Itoa(k.N.BitLen())
	case *ecdsa.PublicKey:
		return k.Curve.Params().Name
	}
	return ""
}
