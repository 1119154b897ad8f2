package requests

import "strings"

// Note returns a text that fits into an Event.
func Note(text string) string {
	if len(text) > maxNote {
		return strings.ToValidUTF8(text[:maxNote], "")
	}
	return text
}

// maxNote is the length of the longest note of an Event (events.k8s.io/v1).
const maxNote = 1024
