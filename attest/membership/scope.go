package membership

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/refusal"
)

// Scope is the set of machine identities that a registry holds. One machine has several keys: an EK of
// each algorithm and any number of AKs. To count each machine once, a registry serves one kind of
// evidence on one road and, on attest.RoadEK, one algorithm of EKs.
//
// That is not enough where a vendor certifies two EKs of one algorithm in one TPM (the
// templates L-1 and H-1, or L-2 and H-2, of the TCG EK Credential Profile 2.6, annex B):
// the control plane cannot see that they belong together. [FirstUse] therefore
// requires a Machine UID for each newcomer on that road: a second name then takes a second
// Machine of the inventory.
type Scope struct {
	// Cluster is the name of the cluster whose machines these are, one of csr.Policy.ClusterIDs.
	// It is required and written into the registry for good, so choose one that outlives the
	// cluster's CA, and add it to the ClusterIDs that nodes use. Two clusters that share a registry
	// would each admit the other's machines.
	Cluster string
	// Provider is the kind of evidence; empty means "tpm".
	Provider string
	// Road is the road on which the identities were found; the zero value is
	// attest.RoadAK.
	Road attest.Road
	// IdentityClass is as in [attest.Result]: on attest.RoadEK the EK's algorithm, one
	// of "RSA-2048", "RSA-3072", "RSA-4096", "P-256", "P-384" and "P-521"; empty on
	// attest.RoadAK; on attest.RoadDocument the kind's own, mostly empty.
	IdentityClass string
}

// scopeOf returns the scope of a machine in a cluster.
func scopeOf(r *attest.Result, cluster string) Scope {
	s := Scope{Cluster: cluster, Provider: r.Provider, Road: r.Road, IdentityClass: r.IdentityClass}
	switch s.Provider {
	case defaultProvider:
		s.Provider = ""
	case "":
		s.Provider = "no provider"
	}
	return s
}

const defaultProvider = "tpm"

func (s Scope) provider() string { return cmp.Or(s.Provider, defaultProvider) }

// String returns "ak", "ek" and the algorithm ("ek RSA-2048") or, for a kind other than "tpm",
// its name and the road: "gce document". The cluster is not in it.
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

// ParseScope reads the text of String: a scope without a cluster, to be set. An error has
// [CheckRegistryScope].
func ParseScope(text string) (Scope, error) {
	var s Scope
	road, class, _ := strings.Cut(text, " ")
	if road != attest.RoadAK.String() && road != attest.RoadEK.String() {
		s.Provider = road
		road, class, _ = strings.Cut(class, " ")
	}
	for _, other := range []attest.Road{attest.RoadEK, attest.RoadDocument} {
		if road == other.String() {
			s.Road = other
		}
	}
	s.IdentityClass = class
	if s.checkIdentities() != nil || s.String() != text {
		return Scope{}, CheckRegistryScope.Refuse(refusal.Quote(text), wantScope())
	}
	return s, nil
}

// wantScope describes the texts of scopes, for errors.
func wantScope() string {
	return "ak, ek with " + strings.Join(ekAlgorithms[:], ", ") + ", or the name of another provider and document"
}

// Check returns an error with [CheckRegistryScope] for an invalid scope.
func (s Scope) Check() error {
	if err := der.CheckText("registry", "Scope.Cluster", s.Cluster, 1, der.MaxClusterIDSize); err != nil {
		return &attest.Error{Check: CheckRegistryScope, Got: "no usable Cluster in the Scope", Want: "the cluster's name", Err: err}
	}
	return s.checkIdentities()
}

// checkIdentities checks all but the cluster.
func (s Scope) checkIdentities() error {
	ok := s.Provider != defaultProvider && s.Provider != "" && names.ValidText(s.Provider, 63)
	switch s.Road {
	case attest.RoadEK:
		ok = (ok || s.Provider == "") && slices.Contains(ekAlgorithms[:], s.IdentityClass)
	case attest.RoadAK:
		ok = (ok || s.Provider == "") && s.IdentityClass == ""
	case attest.RoadDocument:
		ok = ok && (s.IdentityClass == "" || names.ValidText(s.IdentityClass, 63))
	default:
		ok = false
	}
	if !ok {
		return CheckRegistryScope.Refuse(s.String(), wantScope())
	}
	return nil
}

// ekAlgorithms are the algorithms of EKs.
var ekAlgorithms = [...]string{"RSA-2048", "RSA-3072", "RSA-4096", "P-256", "P-384", "P-521"}
