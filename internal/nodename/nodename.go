// Package nodename says which names Kubernetes takes for Nodes, for service accounts and
// for namespaces (RFC 1123 as Kubernetes reads it).
package nodename

import "strings"

const (
	// MaxSize is the length in bytes of the longest DNS subdomain.
	MaxSize = 253
	// MaxLabelSize is the length in bytes of the longest DNS label.
	MaxLabelSize = 63
)

// Valid reports whether name is a DNS subdomain, as the name of a Node, a pod or a service
// account is: lower-case letters, digits, "-" and ".", where each part between dots begins
// and ends with a letter or a digit, of at most MaxSize bytes.
func Valid(name string) bool {
	if len(name) > MaxSize {
		return false
	}
	previous := byte('.') // which the empty name ends with, too
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

// ValidLabel reports whether name is a DNS label, as the name of a namespace is: a
// subdomain of one part, of at most MaxLabelSize bytes.
func ValidLabel(name string) bool {
	return len(name) <= MaxLabelSize && Valid(name) && !strings.Contains(name, ".")
}
