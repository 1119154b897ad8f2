package names

import "strings"

// tokenGroup begins the extra group of a bootstrap token that is for one node.
const tokenGroup = "system:bootstrappers:nodeattest:node:"

// TokenGroup returns the extra group of a bootstrap token that is for the node of this name. A
// colon, which no name has, stands for a dot, which no group of a token has. kube-apiserver
// refuses the token if the name has more than 240 bytes.
func TokenGroup(name string) string { return tokenGroup + strings.ReplaceAll(name, ".", ":") }

// OfTokenGroup returns what a group of that form has as the name, ValidNode or not, and whether the
// group has that form.
func OfTokenGroup(group string) (name string, ok bool) {
	if name, ok = strings.CutPrefix(group, tokenGroup); !ok {
		return "", false
	}
	return strings.ReplaceAll(name, ":", "."), true
}
