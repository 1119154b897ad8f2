package kubectl

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
)

// TestState has machines wait for a name with each kind of record around them.
func TestState(t *testing.T) {
	tpm, gce := membership.Scope{Cluster: "cluster-1", Road: attest.RoadEK, IdentityClass: "P-256"}, membership.Scope{Cluster: "cluster-1", Provider: "gce", Road: attest.RoadDocument}
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
			want := row.want
			if row.recorded != nil && row.recorded.scope == gce && row.recorded.nodeName == "node-1" {
				want = "recorded for " + string(row.recorded.machine)
			} else if strings.HasPrefix(want, "registry-machine") {
				want = "none"
			}
			got, err = p.state(context.Background(), &candidate{nodeName: "node-1", provider: "gce", scope: gce})
			if err != nil || got != want {
				t.Errorf("of a machine that is not stated: got %q, %v, want %q", got, err, want)
			}
		})
	}
}

// TestWaiting finds the machines that may be admitted among all requests: the newest request
// of each, and those with evidence that is not read, without a word about their machine.
func TestWaiting(t *testing.T) {
	files := fixtures(t)
	object := func(file, name, reason string, after time.Duration) *csr.Request {
		r, err := csr.ParseServerObject(files[file])
		if err != nil {
			t.Fatal(err)
		}
		r.Metadata.Name, r.Metadata.CreationTimestamp = name, r.Metadata.CreationTimestamp.Add(after)
		r.Status.Conditions = []csr.Condition{{Type: csr.ConditionDenied, Status: "True", Reason: reason}}
		return r
	}
	all := []*csr.Request{
		object("answer.json", "old", "NotAMember", 0),
		object("answer.json", "newest", "NotAMember", time.Minute),
		object("answer.json", "for another reason", "AnswerLate", time.Hour),
		object("bare.json", "without evidence", "NotAMember", 0),
		object("unknown.json", "a stranger's", "NotAMember", 0),
		object("flipped.json", "an older one", "NotAMember", time.Second),
	}
	readers, err := settings.Readers()
	if err != nil {
		t.Fatal(err)
	}
	p := &plugin{kinds: readers}
	found, got := newest{}, []string(nil)
	for _, r := range all {
		p.waits(found, r)
	}
	for _, one := range found.sorted() {
		got = append(got, one.request+" "+one.nodeName+" "+one.provider+one.unread)
	}
	if want := []string{"newest node-1 tpm", "a stranger's node-1 acme/v1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	state, err := p.state(t.Context(), &candidate{nodeName: "node-1", unread: "acme/v1"})
	if err != nil || state != "evidence of acme/v1 is not read by this program" {
		t.Errorf("got %q, %v", state, err)
	}
	if _, err := p.waitingOf(all[4]); !errors.Is(err, errEvidence) {
		t.Errorf("a stranger's machine was read: %v", err)
	}
	if p.kinds, err = settings.Readers(settings.Documents(strange())); err != nil {
		t.Fatal(err)
	}
	if c, err := p.waitingOf(object("strange.json", "a hello", "NotAMember", 0)); err != nil || c.machine != "strange:1" || c.unread != "" {
		t.Errorf("got %+v, %v: its own kind was not asked", c, err)
	}
}
