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

func TestWant(t *testing.T) {
	for name, want := range map[string]string{
		"Node-1": "lower-case: node-1", "pool.Example": "lower-case: pool.example", "Node_1": "253 bytes", "": "253 bytes", strings.Repeat("A", MaxSize+1): "253 bytes",
	} {
		if got := Want(name); !strings.HasSuffix(got, want) {
			t.Errorf("%q: %s", name, got)
		}
	}
}
