package audit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/refusal"
)

// admins is the certificate of an account that is no node.
var admins = "X509SHA256=" + strings.Repeat("ab", 32)

func TestNodeRefuses(t *testing.T) {
	as := func(user string) members {
		return members{"user": members{"username": user}}
	}
	self := issue(1, tokenA, account, tokenA)
	for name, row := range map[string]struct {
		from   string
		events []members
		want   refusal.Check
		parts  []string
	}{
		"an administrator asked": {tokenA, []members{issue(1, tokenA, "admin", admins)}, checkNotNode, []string{"got admin with " + admins}},
		"an administrator as a node": {tokenA, []members{issue(1, tokenA, "admin", admins, members{"impersonatedUser": members{"username": node}})},
			checkNotNode, []string{"got admin with"}},
		"by a token of another issuer": {tokenA, []members{issue(1, tokenA, "oidc:alice", tokenB)}, checkNotNode, []string{"got oidc:alice with " + tokenB}},
		"a token of another issuer":    {tokenA, []members{request(1, "oidc:alice", tokenA)}, checkNotNode, []string{"got oidc:alice with " + tokenA}},
		"another issuer's odd ID":      {tokenA, []members{issue(1, tokenA, "alice", "JTI="+strings.Repeat("x", 1001))}, checkNotNode, []string{"got alice"}},
		"a bootstrap token":            {tokenA, []members{issue(1, tokenA, "", "", as("system:bootstrap:abcdef"))}, checkNoCredential, []string{"system:bootstrap:abcdef at 2026-11-27T12:01:00Z"}},
		"two credential IDs": {tokenA, []members{issue(1, tokenA, "", "", members{"user": members{"username": node,
			"extra": members{extraCredentialID: []string{certificate, certificate}}}})}, checkNoCredential, []string{node}},
		"no name of a node":       {tokenA, []members{issue(1, tokenA, "system:node:Node_1", certificate)}, checkNotNode, nil},
		"an administrator's":      {admins, []members{request(1, "admin", admins)}, checkNotNode, []string{"got admin"}},
		"no event of the token":   {tokenA, []members{request(1, node, certificate)}, checkNoEvent, []string{"no TokenRequest that issued " + tokenA + ",", "1 events from 2026-11-27T12:01:00Z to 2026-11-27T12:01:00Z"}},
		"no event, but a use":     {tokenA, []members{request(1, account, tokenA)}, checkNoEvent, []string{"first used at 2026-11-27T12:01:00Z"}},
		"a hole above":            {tokenA, []members{issue(1, tokenA, account, tokenB)}, checkNoEvent, []string{"no TokenRequest that issued " + tokenB}},
		"no use of a certificate": {certificate, []members{request(1, "admin", admins)}, checkNoEvent, []string{"no request with " + certificate}},
		"two requests":            {tokenA, []members{issue(1, tokenA, node, certificate), issue(1, tokenA, "admin", admins)}, checkConflict, []string{tokenA + " issued to " + node + " (audit ID issue-" + tokenA + node + ") and admin ("}},
		"two for the one above": {tokenB, []members{issue(2, tokenB, account, tokenA), issue(1, tokenA, node, certificate), issue(1, tokenA, "admin", admins)},
			checkConflict, nil},
		"an event in two forms":   {tokenA, []members{issue(1, tokenA, node, certificate), issue(1, tokenA, node, certificate, members{"userAgent": "curl"})}, checkConflict, nil},
		"used by another account": {tokenA, []members{issue(1, tokenA, node, certificate), request(2, "system:serviceaccount:shop:till", tokenA)}, checkConflict, []string{"used by system:serviceaccount:shop:till, want " + account}},
		"used before":             {tokenA, []members{issue(2, tokenA, node, certificate), request(0, account, tokenA)}, checkConflict, []string{"used at 2026-11-27T12:00:00Z"}},
		"a certificate of two":    {tokenA, []members{issue(1, tokenA, node, certificate), request(2, "system:node:node-2", certificate)}, checkConflict, []string{certificate + " used by"}},
		"an issued certificate":   {certificate, []members{issue(1, certificate, node, certificate)}, checkConflict, []string{"a TokenRequest that issued " + certificate}},
		"itself":                  {tokenA, []members{self}, checkLoop, []string{tokenA + " requested with " + tokenA}},
		"in a circle":             {tokenA, []members{issue(1, tokenA, account, tokenB), issue(1, tokenB, account, tokenA)}, checkLoop, []string{tokenB + " requested with " + tokenA}},
	} {
		t.Run(name, func(t *testing.T) {
			c := traced(t, row.from, logOf(row.events...))
			node, err := c.Node()
			wantCheck(t, err, row.want, row.parts...)
			if most := map[string]int{"itself": 1, "in a circle": 2, "another issuer's odd ID": 1}[name]; most != 0 && len(c.Links) != most {
				t.Errorf("%d links, want %d", len(c.Links), most)
			}
			if node != "" {
				t.Errorf("with the error came %q", node)
			}
		})
	}
	for _, none := range []*Chain{nil, {}} {
		_, err := none.Node()
		wantCheck(t, err, checkNoEvent)
	}
}

// Clocks of API servers differ by up to a minute.
func TestNodeSkew(t *testing.T) {
	if _, err := traced(t, tokenA, logOf(issue(1, tokenA, node, certificate), request(0, account, tokenA))).Node(); err != nil {
		t.Error(err)
	}
}

func TestNodeLength(t *testing.T) {
	id := func(i int) string { return fmt.Sprint("JTI=", i) }
	var events []members
	for i := range maxLinks {
		events = append(events, issue(maxLinks-i, id(i), account, id(i+1)))
	}
	c := traced(t, id(0), logOf(events...))
	_, err := c.Node()
	wantCheck(t, err, checkLength, "32 links, the last one requested with JTI=32")
	if len(c.Links) != maxLinks {
		t.Errorf("%d links", len(c.Links))
	}
	// One less ends at the certificate.
	events[maxLinks-2] = issue(2, id(maxLinks-2), node, certificate)
	c = traced(t, id(0), logOf(events...))
	if name, err := c.Node(); name != "node-1" || err != nil || len(c.Links) != maxLinks {
		t.Errorf("got %q, %v, %d links", name, err, len(c.Links))
	}
}

func TestNoEventSaysWhatIsMissing(t *testing.T) {
	log := line(issue(1, tokenA, node, certificate, members{"annotations": members{}})) + "\n{\"kind\":\n"
	_, err := traced(t, tokenA, textLog(log)).Node()
	wantCheck(t, err, checkNoEvent, "; lines that cannot be read: 1; TokenRequests that name no token, as before Kubernetes 1.30: 1")
}
