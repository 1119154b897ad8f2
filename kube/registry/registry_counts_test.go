package registry_test

import (
	"context"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
)

func at() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }

func claim(node, machine, uid string) membership.Claim {
	return membership.Claim{NodeName: node, Machine: attest.Identity("test:" + machine), MachineUID: uid}
}

// TestCounts says what each step of a join costs at the API server.
func TestCounts(t *testing.T) {
	for _, c := range []struct {
		name, uid string
		want      [8][2]int // reads and writes
	}{
		{"without a Machine UID", "", [8][2]int{{2, 0}, {0, 2}, {1, 0}, {1, 1}, {2, 1}, {1, 0}, {0, 1}, {1, 1}}},
		{"with a Machine UID", "uid-1", [8][2]int{{3, 0}, {0, 3}, {1, 0}, {1, 1}, {3, 1}, {1, 0}, {0, 1}, {1, 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := objectstore.New()
			r, signers := newRegistry(t, store, at), newRegistry(t, store, at)
			joined := claim("node-1", "1", c.uid)
			var record *membership.Record
			must := func(got *membership.Record, err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
				record = got
			}
			ctx := context.Background()
			steps := []struct {
				name string
				run  func()
			}{
				{"look", func() {
					_, err1 := r.Lookup(ctx, joined.NodeName)
					_, err2 := r.LookupMachine(ctx, joined.Machine)
					_, err3 := r.LookupMachineUID(ctx, joined.MachineUID)
					if err1 != nil || err2 != nil || err3 != nil {
						t.Fatal(err1, err2, err3)
					}
				}},
				{"Reserve", func() { must(r.Reserve(ctx, joined, at().Add(time.Minute))) }},
				{"another process looks", func() { must(signers.Lookup(ctx, joined.NodeName)) }},
				{"it binds", func() { must(signers.Bind(ctx, record, at().Add(time.Hour), nil)) }},
				{"Reserve again, where a first write finds that the name is not free", func() { must(r.Reserve(ctx, joined, at().Add(time.Minute))) }},
				{"Bind again", func() { must(r.Bind(ctx, record, at().Add(time.Hour), nil)) }},
				{"the next end", func() { must(r.Bind(ctx, record, at().Add(2*time.Hour), nil)) }},
				{"another process, without a look", func() { must(newRegistry(t, store, at).Bind(ctx, record, at().Add(3*time.Hour), nil)) }},
			}
			store.Counts()
			for i, step := range steps {
				step.run()
				if reads, writes := store.Counts(); [2]int{reads, writes} != c.want[i] {
					t.Errorf("%s: %d reads and %d writes, want %d", step.name, reads, writes, c.want[i])
				}
			}
		})
	}
}
