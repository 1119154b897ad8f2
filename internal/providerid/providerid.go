// Package providerid compares the provider IDs of Nodes, such as "gce://project/zone/name".
package providerid

import (
	"github.com/nodeattest/nodeattest/internal/nodename"
	"github.com/nodeattest/nodeattest/internal/plaintext"
)

// caseless begin the provider IDs in which ASCII letters have no case: of Azure the rest is the ID of
// a resource (Azure Resource Manager), and of vSphere a UUID (RFC 9562, section 4). The machine, its
// cloud provider and the platform's interface spell one machine in several ways.
var caseless = [...]string{"azure://", "vsphere://"}

// Equal reports whether two provider IDs name the same machine: they are the same text or, of
// Azure and vSphere, the same but for the case of ASCII letters.
func Equal(a, b string) bool { return a == b || len(a) == len(b) && Canonical(a) == Canonical(b) }

// Canonical is one spelling for those of one machine.
func Canonical(id string) string {
	for _, scheme := range caseless {
		if len(id) >= len(scheme) && nodename.Lower(id[:len(scheme)]) == scheme {
			return nodename.Lower(id)
		}
	}
	return id
}

// Apart quotes two provider IDs that differ, for an error; see [plaintext.Apart].
func Apart(got, want string) (string, string) { return plaintext.Apart(got, want, Canonical) }
