package nodename

import (
	"strings"
	"testing"
)

func TestValid(t *testing.T) {
	for _, good := range []string{"a", "0", "node-1", "a.b", "1.2.3.4", "a--b", "ip-10-0-0-1.eu-west-1.compute.internal",
		strings.Repeat("a", 253), strings.Repeat("a", 100) + ".b"} {
		if !Valid(good) {
			t.Errorf("%q refused", good)
		}
	}
	for _, bad := range []string{"", ".", "-", "a.", ".a", "a..b", "-a", "a-", "a.-b", "a-.b", "A", "a_b", "a b", "a/b",
		"a:b", "a\x00", "a\n", "ä", "\xff", "*", strings.Repeat("a", 254)} {
		if Valid(bad) {
			t.Errorf("%q accepted", bad)
		}
	}
}
