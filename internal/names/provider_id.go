package names

// NoProviderID stands in an inventory or a list for a machine that has no provider ID and never will. The
// empty text says that the provider ID is not known yet.
const NoProviderID = "none"

// KnownProviderID returns the provider ID in an inventory or a list, or "" for [NoProviderID].
func KnownProviderID(id string) string {
	if id == NoProviderID {
		return ""
	}
	return id
}
