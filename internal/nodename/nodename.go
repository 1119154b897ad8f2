// Package nodename says which names Kubernetes takes for Nodes, for service accounts and
// for namespaces (RFC 1123 as Kubernetes reads it).
package nodename

import (
	"regexp"
	"strings"
)

const (
	// MaxSize is the length in bytes of the longest DNS subdomain.
	MaxSize = 253
	// MaxLabelSize is the length in bytes of the longest DNS label.
	MaxLabelSize = 63
)

// Valid reports whether name is a DNS subdomain, as the name of a Node, a pod or a service
// account is: lower-case letters, digits, "-" and ".", where each part between dots begins
// and ends with a letter or a digit, of at most MaxSize bytes.
func Valid(name string) bool { return len(name) <= MaxSize && subdomain.MatchString(name) }

var subdomain = regexp.MustCompile(`\A[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\z`)

// ValidLabel reports whether name is a DNS label, as the name of a namespace is: a
// subdomain of one part, of at most MaxLabelSize bytes.
func ValidLabel(name string) bool {
	return len(name) <= MaxLabelSize && Valid(name) && !strings.Contains(name, ".")
}
