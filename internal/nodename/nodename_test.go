package nodename

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
			if got := Valid(tt.name); got != tt.subdomain {
				t.Errorf("Valid(%q) = %v", tt.name, got)
			}
		})
	}
}
