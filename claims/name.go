package claims

import "strings"

// The lengths in bytes of the longest names (RFC 1123 as Kubernetes reads it).
const (
	maxLabelSize     = 63
	maxSubdomainSize = 253
)

// validNamespace reports whether name can be a namespace's: one DNS label.
func validNamespace(name string) bool {
	return len(name) <= maxLabelSize && validName(name) && !strings.Contains(name, ".")
}

// validName reports whether name can be that of a service account or a Node: a DNS
// subdomain of lower-case letters, digits, "-" and ".", where each part between dots
// begins and ends with a letter or a digit.
func validName(name string) bool {
	if len(name) > maxSubdomainSize {
		return false
	}
	previous := byte('.')
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z' || '0' <= c && c <= '9':
		case c == '-' && previous != '.':
		case c == '.' && previous != '.' && previous != '-':
		default:
			return false
		}
		previous = c
	}
	return previous != '.' && previous != '-'
}
