package csr

import "strings"

// The names under which Kubernetes, and this SDK, know a node. They are fixed:
// RBAC, the node authorizer and kube-apiserver's admission compare them byte for
// byte.
const (
	// NodeUserPrefix stands before a node's name in its user name, which is also
	// the common name of its certificates.
	NodeUserPrefix = "system:node:"
	// NodesGroup is the group of all nodes, and the one organization of their
	// certificates.
	NodesGroup = "system:nodes"
	// RecoveryUserPrefix stands before a node's name in the user name of its
	// recovery certificate, which may ask for a new client certificate and nothing
	// else.
	RecoveryUserPrefix = "nodeattest:recovery:"
	// RecoveryGroup is the one organization of recovery certificates.
	RecoveryGroup = "nodeattest:recovery"
	// BootstrapUserPrefix stands before a bootstrap token's id in the user name of
	// who comes with that token.
	BootstrapUserPrefix = "system:bootstrap:"
	// BootstrappersGroup is the group of all who come with a bootstrap token. A
	// token's own groups begin with this name and a colon.
	BootstrappersGroup = "system:bootstrappers"
	// AuthenticatedGroup is the group of everybody whom kube-apiserver has
	// authenticated.
	AuthenticatedGroup = "system:authenticated"
)

// MaxNodeNameSize is the length in bytes of the longest node name.
const MaxNodeNameSize = 253

// ValidNodeName reports whether name can be a Node's name: a DNS subdomain of RFC
// 1123 as Kubernetes reads it, which is 1 to [MaxNodeNameSize] bytes of lower-case
// letters, digits, "-" and ".", where each part between dots begins and ends with
// a letter or a digit. A part may be longer than 63 bytes.
func ValidNodeName(name string) bool {
	if len(name) > MaxNodeNameSize {
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

// SubjectNames returns the one common name and the one organization that a
// certificate for this purpose and node has, in a request and when issued. Both
// are "" where the purpose is none of the three or the name is no node name.
func SubjectNames(purpose Purpose, nodeName string) (commonName, organization string) {
	if !ValidNodeName(nodeName) {
		return "", ""
	}
	prefix, organization := purpose.subject()
	if prefix == "" {
		return "", ""
	}
	return prefix + nodeName, organization
}

// nodeNameAfter cuts the prefix off a user name or common name. It returns "" and
// false where what is left is no node name.
func nodeNameAfter(prefix, name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok || !ValidNodeName(rest) {
		return "", false
	}
	return rest, true
}
