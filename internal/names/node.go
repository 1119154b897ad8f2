// Package names has the rules of names in certificates, inventories and records: of Nodes and
// namespaces (RFC 1123 as Kubernetes reads it), of serving certificates, and of printable text.
package names

import "strings"

const (
	// MaxNodeSize is the length in bytes of the longest DNS subdomain.
	MaxNodeSize = 253
	// MaxLabelSize is the length in bytes of the longest DNS label.
	MaxLabelSize = 63
)

// ValidNode reports whether name is a DNS subdomain, like the name of a Node, a pod or a service
// account: at most MaxNodeSize bytes of lower-case letters, digits, "-" and ".", where each part
// between dots begins and ends with a letter or a digit.
func ValidNode(name string) bool {
	if len(name) > MaxNodeSize {
		return false
	}
	alien := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' }
	for part := range strings.SplitSeq(name, ".") {
		if part == "" || part[0] == '-' || part[len(part)-1] == '-' || strings.ContainsFunc(part, alien) {
			return false
		}
	}
	return true
}

// Lower writes ASCII letters in lower case, and leaves all others.
func Lower(s string) string {
	upper := func(c rune) bool { return 'A' <= c && c <= 'Z' }
	if !strings.ContainsFunc(s, upper) {
		return s
	}
	b := []byte(s)
	for i, c := range b {
		if upper(rune(c)) {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// WantNode describes a valid node name, for an error about one that is not. Clouds name machines in capital
// letters, which the kubelet writes in lower case.
func WantNode(name string) string {
	if lower := Lower(name); ValidNode(lower) {
		return "a node name, which is lower-case: " + lower
	}
	return `a node name: lower-case letters, digits, "-" and ".", at most 253 bytes`
}

// ValidLabel reports whether name is a DNS label, like the name of a namespace: a subdomain of
// one part, of at most MaxLabelSize bytes.
func ValidLabel(name string) bool {
	return len(name) <= MaxLabelSize && ValidNode(name) && !strings.Contains(name, ".")
}
