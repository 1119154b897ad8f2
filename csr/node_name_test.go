package csr_test

import (
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
)

func TestValidNodeName(t *testing.T) {
	for _, good := range []string{"a", "0", "node-1", "a.b", "1.2.3.4", "a--b", "ip-10-0-0-1.eu-west-1.compute.internal",
		strings.Repeat("a", 253), strings.Repeat("a", 100) + ".b"} {
		if !csr.ValidNodeName(good) {
			t.Errorf("%q refused", good)
		}
	}
	for _, bad := range []string{"", ".", "-", "a.", ".a", "a..b", "-a", "a-", "a.-b", "a-.b", "A", "a_b", "a b", "a/b",
		"a:b", "a\x00", "a\n", "ä", "\xff", "*", strings.Repeat("a", 254)} {
		if csr.ValidNodeName(bad) {
			t.Errorf("%q accepted", bad)
		}
	}
}

func TestSubjectNames(t *testing.T) {
	for _, c := range []struct {
		purpose csr.Purpose
		node    string
		cn, o   string
	}{
		{csr.PurposeClient, "n", "system:node:n", "system:nodes"},
		{csr.PurposeServing, "n", "system:node:n", "system:nodes"},
		{csr.PurposeRecovery, "n", "nodeattest:recovery:n", "nodeattest:recovery"},
		{csr.PurposeClient, "", "", ""},
		{csr.PurposeClient, "N", "", ""},
		{0, "n", "", ""},
		{4, "n", "", ""},
	} {
		if cn, o := csr.SubjectNames(c.purpose, c.node); cn != c.cn || o != c.o {
			t.Errorf("SubjectNames(%v, %q) = %q, %q; want %q, %q", c.purpose, c.node, cn, o, c.cn, c.o)
		}
	}
}
