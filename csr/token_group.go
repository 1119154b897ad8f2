package csr

import "strings"

// tokenGroup is the prefix of the extra group of a bootstrap token that is for one node.
const tokenGroup = "system:bootstrappers:nodeattest:node:"

// TokenGroup returns the extra group of a bootstrap token that is for one node. A token's group cannot
// contain a dot, so colons replace those of the name. kube-apiserver refuses the token if the name has
// more than 240 bytes.
func TokenGroup(nodeName string) string { return tokenGroup + strings.ReplaceAll(nodeName, ".", ":") }

// ofTokenGroup returns the node name in a group that [TokenGroup] made, and whether the group has that
// form. The name need not be valid.
func ofTokenGroup(group string) (name string, ok bool) {
	if name, ok = strings.CutPrefix(group, tokenGroup); !ok {
		return "", false
	}
	return strings.ReplaceAll(name, ":", "."), true
}
