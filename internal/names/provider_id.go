// Package providerid reads and compares the provider IDs of Nodes, such as "gce://project/zone/name".
package names

import (
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/oid"
)

// NoProviderID is what an inventory or a list has in the place of a provider ID for a machine that has none
// and never will. The empty text says that none is known yet.
const NoProviderID = "none"

// KnownProviderID is a provider ID as an inventory or a list has it, or "" for [NoProviderID].
func KnownProviderID(id string) string {
	if id == NoProviderID {
		return ""
	}
	return id
}

// caseless are the schemes of provider IDs in which ASCII letters have no case: of Azure the rest is the
// ID of a resource (Azure Resource Manager), and of vSphere a UUID (RFC 9562, section 4). The machine, its
// cloud provider and the platform's interface spell one machine in several ways.
var caseless = []string{"azure", "vsphere"}

// clouds are the schemes of platforms each of which states its machines' provider IDs or identities in
// evidence. The kinds of those identities have the same names.
var clouds = []string{"aws", "azure", "gce"}

// ValidProviderID reports whether a text is <scheme>://<the platform's name of the machine>: a scheme of letters,
// digits, "+", "-" and ".", and a name that is more than slashes and does not end with one (a cloud
// provider writes "vsphere://" while a machine has no UUID yet).
func ValidProviderID(id string) bool {
	scheme, rest, _ := strings.Cut(id, "://")
	const letters = "abcdefghijklmnopqrstuvwxyz"
	scheme = Lower(scheme)
	return scheme != "" && strings.Contains(letters, scheme[:1]) && strings.Trim(scheme, letters+"0123456789+-.") == "" &&
		rest != "" && rest[len(rest)-1] != '/' && ValidText(id, oid.MaxProviderIDSize)
}

// EqualProviderIDs reports whether two provider IDs name the same machine: they are the same text but for the case
// of the scheme and, of Azure and vSphere, of all ASCII letters. Of AWS it is the instance that counts,
// and its zone where both have one: aws:////i-1, aws:///us-east-2a/i-1 and aws://us-east-2a/i-1 are one.
func EqualProviderIDs(a, b string) bool {
	if a == b {
		return true
	}
	here, _ := instance(split(a))
	there, _ := instance(split(b))
	return CanonicalProviderID(a) == CanonicalProviderID(b) && (here == "" || there == "" || here == there)
}

// CanonicalProviderID is one spelling for those of one machine. Of AWS it has no zone.
func CanonicalProviderID(id string) string {
	scheme, rest := split(id)
	switch _, of := instance(scheme, rest); {
	case scheme == "":
		return id
	case of != "":
		return "aws:///" + of
	case slices.Contains(caseless, scheme):
		rest = Lower(rest)
	}
	return scheme + "://" + rest
}

// ProviderIDsApart quotes two provider IDs that differ, for an error; see [Apart].
func ProviderIDsApart(got, want string) (string, string) {
	return Apart(got, want, CanonicalProviderID)
}

// ContradictsProviderID reports whether a provider ID cannot be that of a machine, by the identity that its
// evidence shows and the provider ID that the evidence states, "" if it states none. Evidence of a cloud
// knows the provider IDs of that cloud, and that its machine has none of another. Of other platforms it
// knows nothing.
func ContradictsProviderID(id, machine, stated string) bool {
	scheme, rest := split(id)
	kind, name, _ := strings.Cut(machine, ":")
	of, _ := split(stated)
	if of == "" {
		of = kind
	}
	switch {
	case id == NoProviderID:
		return stated != ""
	case scheme != of:
		return slices.Contains(clouds, of) && slices.Contains(clouds, scheme)
	case stated != "":
		return !EqualProviderIDs(id, stated)
	}
	parts := strings.Split(name, "/")
	switch last := parts[len(parts)-1]; kind {
	case "gce":
		return !isInstanceOf(rest, parts[0], last)
	case "azure":
		return !strings.HasPrefix(Lower(rest), "/subscriptions/"+parts[0]+"/")
	case "aws":
		zone, id := instance(scheme, rest)
		return id != last || zone != "" && !strings.HasPrefix(zone, parts[len(parts)/2])
	}
	return false // the identity is no cloud's
}

// isInstanceOf reports whether <project>/<zone>/<instance> is of a project and, where it has an instance's
// number in the place of the name, of that instance.
func isInstanceOf(id, project, number string) bool {
	parts := strings.Split(id, "/")
	return len(parts) == 3 && parts[0] == project &&
		(strings.Trim(parts[2], "0123456789") != "" || parts[2] == number)
}

// split returns the scheme, in lower case, and what follows "://"; "" for a text without them.
func split(id string) (scheme, rest string) {
	if before, after, ok := strings.Cut(id, "://"); ok {
		return Lower(before), after
	}
	return "", ""
}

// instance reads the provider ID of an instance of Amazon EC2, as cloud-provider-aws and Cluster API
// spell it: slashes, perhaps its zone and one, and its ID. Others give "".
func instance(scheme, rest string) (zone, id string) {
	if scheme != "aws" {
		return "", ""
	}
	id = strings.TrimLeft(rest, "/")
	if before, after, ok := strings.Cut(id, "/"); ok {
		zone, id = before, after
	}
	if len(id) <= len("i-") || id[:2] != "i-" || strings.Contains(id, "/") {
		return "", ""
	}
	return zone, id
}
