package names

import (
	"fmt"
	"strings"
	"testing"
)

func TestValidNames(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		namespace, subdomain bool
	}{
		{"", false, false},
		{"a", true, true},
		{"0", true, true},
		{"a-b", true, true},
		{"a.b", false, true},
		{"-a", false, false},
		{"a-", false, false},
		{".a", false, false},
		{"a.", false, false},
		{"a..b", false, false},
		{"a.-b", false, false},
		{"a-.b", false, false},
		{"A", false, false},
		{"a_b", false, false},
		{"a/b", false, false},
		{"a:b", false, false},
		{"ä", false, false},
		{strings.Repeat("a", 63), true, true},
		{strings.Repeat("a", 64), false, true},
		{strings.Repeat("a", 253), false, true},
		{strings.Repeat("a", 254), false, false},
	} {
		t.Run(fmt.Sprint(tt.namespace), func(t *testing.T) {
			if got := ValidLabel(tt.name); got != tt.namespace {
				t.Errorf("ValidLabel(%q) = %v", tt.name, got)
			}
			if got := ValidNode(tt.name); got != tt.subdomain {
				t.Errorf("Valid(%q) = %v", tt.name, got)
			}
		})
	}
}

// Only ASCII letters have a case: others fold to them, as the Kelvin sign does to a k.
func TestLower(t *testing.T) {
	for s, want := range map[string]string{"": "", "node-1": "node-1", "Node-1.EXAMPLE": "node-1.example", "@[`{": "@[`{", "A\u212a\u00c4": "a\u212a\u00c4", "A\xff": "a\xff", "\xff": "\xff"} {
		if got := Lower(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}

func TestValidNode(t *testing.T) {
	for _, good := range []string{"a", "0", "node-1", "a.b", "1.2.3.4", "a--b", "ip-10-0-0-1.eu-west-1.compute.internal",
		strings.Repeat("a", 253), strings.Repeat("a", 100) + ".b"} {
		if !ValidNode(good) {
			t.Errorf("%q refused", good)
		}
	}
	for _, bad := range []string{"", ".", "-", "a.", ".a", "a..b", "-a", "a-", "a.-b", "a-.b", "A", "a_b", "a b", "a/b",
		"a:b", "a\x00", "a\n", "ä", "\xff", "*", strings.Repeat("a", 254)} {
		if ValidNode(bad) {
			t.Errorf("%q accepted", bad)
		}
	}
}

func TestWantNode(t *testing.T) {
	for name, want := range map[string]string{
		"Node-1": "lower-case: node-1", "pool.Example": "lower-case: pool.example", "Node_1": "253 bytes", "": "253 bytes", strings.Repeat("A", MaxNodeSize+1): "253 bytes",
	} {
		if got := WantNode(name); !strings.HasSuffix(got, want) {
			t.Errorf("%q: %s", name, got)
		}
	}
}
