package csr_test

import (
	"fmt"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
)

func TestSubjectNames(t *testing.T) {
	for row, c := range []struct {
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
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			if cn, o := c.purpose.SubjectNames(c.node); cn != c.cn || o != c.o {
				t.Errorf("SubjectNames(%v, %q) = %q, %q; want %q, %q", c.purpose, c.node, cn, o, c.cn, c.o)
			}
		})
	}
}
