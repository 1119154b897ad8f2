package oid

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/refusal"
)

// caseless are the schemes of provider IDs in which ASCII letters have no case: an Azure ID names a
// resource (Azure Resource Manager), a vSphere ID is a UUID (RFC 9562, section 4). The machine, its
// cloud provider and the platform's API spell the ID of one machine differently.
var caseless = []string{"azure", "vsphere"}

// clouds are the schemes of the platforms whose evidence states provider IDs or identities of machines.
// The kinds of the identities have the same names.
var clouds = []string{"aws", "azure", "gce"}

// CheckProviderID checks a provider ID that an operator writes: it must be <scheme>://<the platform's
// name of the machine>, in a text that [MarshalProviderID] accepts. The scheme has letters, digits, "+",
// "-" and "."; the name is more than slashes and does not end with one (a cloud provider writes
// "vsphere://" while a machine has no UUID yet). Errors are as for [MarshalProviderID], or
// [refusal.CheckConfig].
func CheckProviderID(id string) error {
	if err := checkProviderID(id); err != nil {
		return err
	}
	const letters = "abcdefghijklmnopqrstuvwxyz"
	scheme, rest := split(id)
	if scheme == "" || !strings.Contains(letters, scheme[:1]) || strings.Trim(scheme, letters+"0123456789+-.") != "" ||
		rest == "" || rest[len(rest)-1] == '/' {
		return refusal.Config("providerID", refusal.Quote(id), "<scheme>://<the platform's name of the machine>")
	}
	return nil
}

// SameProviderID reports whether two provider IDs name the same machine. They may differ in the case of
// the scheme, for Azure and vSphere in the case of all ASCII letters. For AWS the instances must be
// equal, and the zones if both have one: aws:////i-1, aws:///us-east-2a/i-1 and aws://us-east-2a/i-1 name
// one machine. If they do not, quotedGot and quotedWant show where they differ, for an error.
func SameProviderID(got, want string) (same bool, quotedGot, quotedWant string) {
	if got == want {
		return true, "", ""
	}
	a, b := CanonicalProviderID(got), CanonicalProviderID(want)
	zone, _ := instance(split(got))
	other, _ := instance(split(want))
	if a == b && (zone == "" || other == "" || zone == other) {
		return true, "", ""
	}
	quotedGot, quotedWant = refusal.QuoteApart(got, want, CanonicalProviderID)
	return false, quotedGot, quotedWant
}

// CanonicalProviderID returns one spelling for all provider IDs of one machine. For AWS it has no zone.
func CanonicalProviderID(id string) string {
	scheme, rest := split(id)
	switch _, of := instance(scheme, rest); {
	case scheme == "":
		return id
	case of != "":
		return "aws:///" + of
	case slices.Contains(caseless, scheme):
		rest = names.Lower(rest)
	}
	return scheme + "://" + rest
}

// ContradictsProviderID reports whether a machine cannot have a provider ID, by the identity and the
// provider ID that its evidence states (stated is "" if it states none). Evidence of a cloud decides
// about provider IDs of the clouds, and about no others.
func ContradictsProviderID(id, machine, stated string) bool {
	scheme, rest := split(id)
	kind, name, _ := strings.Cut(machine, ":")
	of, _ := split(stated)
	of = cmp.Or(of, kind)
	switch {
	case id == names.NoProviderID:
		return stated != ""
	case scheme != of:
		return slices.Contains(clouds, of) && slices.Contains(clouds, scheme)
	case stated != "":
		same, _, _ := SameProviderID(id, stated)
		return !same
	}
	parts := strings.Split(name, "/")
	switch last := parts[len(parts)-1]; kind {
	case "gce":
		return !isInstanceOf(rest, parts[0], last)
	case "azure":
		return !strings.HasPrefix(names.Lower(rest), "/subscriptions/"+parts[0]+"/")
	case "aws":
		zone, id := instance(scheme, rest)
		return id != last || zone != "" && !strings.HasPrefix(zone, parts[len(parts)/2])
	}
	return false // the identity is no cloud's
}

// isInstanceOf reports whether <project>/<zone>/<instance> names the project and, if its last part is an
// instance's number instead of a name, that number.
func isInstanceOf(id, project, number string) bool {
	parts := strings.Split(id, "/")
	return len(parts) == 3 && parts[0] == project &&
		(strings.Trim(parts[2], "0123456789") != "" || parts[2] == number)
}

// split returns the scheme, in lower case, and the text after "://"; "" for an ID without "://".
func split(id string) (scheme, rest string) {
	if before, after, ok := strings.Cut(id, "://"); ok {
		return names.Lower(before), after
	}
	return "", ""
}

// instance reads the provider ID of an Amazon EC2 instance, as cloud-provider-aws and Cluster API spell
// it: slashes, an optional zone with a slash, and the instance ID. Other IDs give "".
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
