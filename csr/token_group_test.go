package csr

import (
	"strings"
	"testing"
)

// TestTokenGroup: a name comes back out of its group, and two names never have one group.
func TestTokenGroup(t *testing.T) {
	groups := map[string]string{}
	for _, name := range []string{"a", "a.b", "a-b", "node-1.example.com", "0.0", strings.Repeat("a", 253)} {
		group := TokenGroup(name)
		if got, ok := ofTokenGroup(group); got != name || !ok {
			t.Errorf("%s: got %q, %v", group, got, ok)
		}
		if other := groups[group]; other != "" {
			t.Errorf("%s is that of %s and %s", group, other, name)
		}
		groups[group] = name
	}
	for group, want := range map[string]string{tokenGroup: "", tokenGroup + ":": ".", tokenGroup + "a.b": "a.b", tokenGroup + "a::b": "a..b", tokenGroup + "A": "A"} {
		if got, ok := ofTokenGroup(group); got != want || !ok {
			t.Errorf("%s: got %q, %v, want %q", group, got, ok, want)
		}
	}
	for _, group := range []string{"", "system:bootstrappers", "system:bootstrappers:nodeattest:node", "system:bootstrappers:kubeadm:default-node-token", "x" + tokenGroup + "a"} {
		if name, ok := ofTokenGroup(group); ok || name != "" {
			t.Errorf("%s: got %q", group, name)
		}
	}
}
