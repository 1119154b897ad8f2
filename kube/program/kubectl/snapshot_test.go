package kubectl

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// reading counts the reads of single objects and the lists.
type reading struct {
	client.Client
	gets, lists int
}

func (r *reading) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	r.gets++
	return r.Client.Get(ctx, key, into, opts...)
}

func (r *reading) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	r.lists++
	return r.Client.List(ctx, into, opts...)
}

// TestPendingMany: for many machines pending lists the records, and finds of each what reading one by one finds.
func TestPendingMany(t *testing.T) {
	var objects []client.Object
	for i := range snapshotFrom {
		objects = append(objects, refusedHello(t, fmt.Sprintf("hello-%d", i), fmt.Sprintf("node-%03d", i), fmt.Sprintf("strange:%d", i)))
	}
	o := operates(t, "", objects...)
	scope := membership.Scope{Provider: "strange", Road: attest.RoadDocument}
	records := testkit.Must(o.registry(scope))
	for name, machine := range map[string]attest.Identity{"node-001": "strange:1", "node-002": "strange:900", "elsewhere": "strange:3", "node-004": "strange:5", "other": "strange:901"} {
		reserved := testkit.Must(records.Reserve(t.Context(), membership.Claim{NodeName: name, Machine: machine}, o.now().Add(time.Minute)))
		testkit.Must(records.Bind(t.Context(), reserved, time.Time{}, nil))
	}
	want := map[string]string{}
	for _, one := range testkit.Must(o.waitingMachines(t.Context())) {
		want[one.nodeName] = testkit.Must(o.state(t.Context(), &one.candidate))
	}
	states := map[string]int{}
	for _, state := range want {
		states[state]++
	}
	if len(want) != snapshotFrom || states["approved"] != 1 || states["registry-name"] != 2 || states["registry-machine"] != 2 {
		t.Fatalf("states %v", states)
	}
	counts := &reading{Client: o.client}
	o.client, o.output = counts, "json"
	if err := o.pending(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	var got struct{ Items []pendingItem }
	testkit.MustDo(json.Unmarshal(o.out.Bytes(), &got))
	for _, item := range got.Items {
		if item.Records != want[item.Node] {
			t.Errorf("%s: %s, want %s", item.Node, item.Records, want[item.Node])
		}
	}
	if len(got.Items) != len(want) || counts.gets != 0 || counts.lists != 2 {
		t.Errorf("%d items, with %d reads and %d lists", len(got.Items), counts.gets, counts.lists)
	}
}
