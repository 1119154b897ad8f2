// Package providerid compares the provider IDs of Nodes, such as "gce://project/zone/name".
package providerid

import (
	"github.com/nodeattest/nodeattest/internal/nodename"
	"github.com/nodeattest/nodeattest/internal/plaintext"
)

// azure begins the provider IDs of Azure: the rest is the ID of a resource, in which ASCII letters
// have no case (Azure Resource Manager). The machine, its cloud provider and Azure's interface
// spell one machine in three ways.
const azure = "azure://"

// Equal reports whether two provider IDs name the same machine: they are the same text or, of
// Azure, the same but for the case of ASCII letters.
func Equal(a, b string) bool { return a == b || len(a) == len(b) && canonical(a) == canonical(b) }

// canonical is one spelling for those of one machine.
func canonical(id string) string {
	if len(id) < len(azure) || nodename.Lower(id[:len(azure)]) != azure {
		return id
	}
	return nodename.Lower(id)
}

// Apart quotes two provider IDs that differ, for an error; see [plaintext.Apart].
func Apart(got, want string) (string, string) { return plaintext.Apart(got, want, canonical) }
