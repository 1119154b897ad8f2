package main

import (
	"context"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
)

// TestState has machines wait for a name with each kind of record around them.
func TestState(t *testing.T) {
	tpm, gce := membership.Scope{Road: attest.RoadEK, IdentityClass: "P-256"}, membership.Scope{Provider: "gce", Road: attest.RoadDocument}
	one, other := attest.Identity("gce:project-1/1"), attest.Identity("gce:project-1/2")
	type record struct {
		scope    membership.Scope
		nodeName string
		machine  attest.Identity
	}
	for name, row := range map[string]struct {
		recorded *record
		ends     bool // the record, before it is looked at
		want     string
	}{
		"no record":                   {nil, false, "none"},
		"its own":                     {&record{gce, "node-1", one}, false, "approved"},
		"its own, under another name": {&record{gce, "node-2", one}, false, "registry-machine"},
		"another machine's":           {&record{gce, "node-1", other}, false, "registry-name"},
		"by another kind": {&record{tpm, "node-1", one}, false,
			"registry-scope: recorded by ek P-256; to admit it by gce document, an operator releases the node first: kubectl nodeattest release node-1"},
		"another machine's by another kind": {&record{tpm, "node-1", other}, false,
			"registry-scope: recorded by ek P-256; to admit it by gce document, an operator releases the node first: kubectl nodeattest release node-1"},
		"by another kind, reserved once": {&record{tpm, "node-1", one}, true, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
			p := &plugin{client: objectstore.New(), now: func() time.Time { return now }}
			if row.recorded != nil {
				r, err := p.registry(row.recorded.scope)
				if err != nil {
					t.Fatal(err)
				}
				seen, err := r.Reserve(context.Background(), membership.Claim{NodeName: row.recorded.nodeName, Machine: row.recorded.machine}, now.Add(time.Minute))
				if err == nil && !row.ends {
					_, err = r.Bind(context.Background(), seen, time.Time{}, nil)
				}
				if err != nil {
					t.Fatal(err)
				}
				if row.ends {
					now = now.Add(2 * time.Minute)
				}
			}
			got, err := p.state(context.Background(), &candidate{nodeName: "node-1", machine: one, provider: "gce", scope: gce})
			if err != nil || got != row.want {
				t.Errorf("got %q, %v, want %q", got, err, row.want)
			}
		})
	}
}
