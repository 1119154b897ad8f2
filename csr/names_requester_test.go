package csr_test

import (
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
)

func TestRequester(t *testing.T) {
	for _, c := range []struct {
		user   string
		groups []string
		want   csr.Requester
		rule   csr.Check
	}{
		{"system:bootstrap:abc123", []string{"system:bootstrappers", "system:authenticated"}, csr.Requester{Class: csr.RequesterBootstrap, TokenID: "abc123"}, ""},
		{"system:bootstrap:abc123", []string{"system:bootstrappers", "system:authenticated", "system:bootstrappers:nodeattest:node:node-1:example:com"}, csr.Requester{Class: csr.RequesterBootstrap, NodeName: "node-1.example.com", TokenID: "abc123"}, ""},
		{"system:bootstrap:abc123", []string{"system:bootstrappers", "system:authenticated", "system:bootstrappers:nodeattest:node:node-1..x"}, csr.Requester{}, csr.CheckRequestGroups},
		{"system:node:a.b", []string{"system:authenticated", "system:nodes"}, csr.Requester{Class: csr.RequesterNode, NodeName: "a.b"}, ""},
		{"nodeattest:recovery:a", []string{"nodeattest:recovery", "system:authenticated"}, csr.Requester{Class: csr.RequesterRecovery, NodeName: "a"}, ""},
		{"system:node:a", []string{"system:bootstrappers", "system:authenticated"}, csr.Requester{}, csr.CheckRequestGroups},
		{"system:node:a", nil, csr.Requester{}, csr.CheckRequestGroups},
		{"system:node:", nil, csr.Requester{}, csr.CheckRequestUsername},
		{"", nil, csr.Requester{}, csr.CheckRequestUsername},
	} {
		t.Run(c.user, func(t *testing.T) {
			got, err := (&csr.User{Username: c.user, Groups: c.groups}).Requester()
			if got != c.want || c.rule == "" && err != nil || c.rule != "" && !errors.Is(err, c.rule) {
				t.Errorf("Requester(%q, %q) = %+v, %v; want %+v, %s", c.user, c.groups, got, err, c.want, c.rule)
			}
		})
	}
}

func TestRequesterClassString(t *testing.T) {
	for class, want := range map[csr.RequesterClass]string{
		0: "requester(0)", csr.RequesterBootstrap: "bootstrap", csr.RequesterNode: "node", csr.RequesterRecovery: "recovery",
	} {
		if got := class.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
