package kubectl

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
)

const (
	strangeInventory = "machines:\n- {nodeName: node-1, uid: uid-1, providerID: 'sim://a/1'}\n- {nodeName: node-2, uid: uid-2}\n"
	honest, thief    = "strange:1", "strange:2"
)

// TestApprove: an operator has seen a request of a machine to be a node. By the time that he approves,
// the world is another one; the names of requests are chosen by their requesters.
func TestApprove(t *testing.T) {
	for name, row := range map[string]struct {
		requests  []client.Object
		inventory string // strangeInventory if empty
		node      string
		options
		bound string   // the UID of the Machine, if the record is made
		want  []string // in the error, or in the output
	}{
		"as he has seen it":              {requests: []client.Object{refusedHello(t, "a", "node-1", honest)}, bound: "uid-1", want: []string{"node node-1 is machine " + honest}},
		"next to the thief's":            {requests: []client.Object{refusedHello(t, "a", "node-1", thief), refusedHello(t, "b", "node-1", honest)}, bound: "uid-1"},
		"another machine under its name": {requests: []client.Object{refusedHello(t, "a", "node-1", thief)}, want: []string{honest, thief, "request a of system:bootstrap:abcdef"}},
		"the machine, for another node":  {requests: []client.Object{refusedHello(t, "a", "node-2", honest)}, want: []string{honest, "node-1", "refused requests for that node: nothing"}},
		"no request any more":            {want: []string{honest, "refused requests for that node: nothing"}},
		"a request that waits":           {requests: []client.Object{notDecided(refusedHello(t, "a", "node-1", honest))}, want: []string{"refused requests for that node: nothing"}},
		"an answer that does not say": {requests: []client.Object{fixture(t, "answer.json")}, inventory: "-",
			options: options{machine: "gce:project-1/1", machineUID: "uid-1", withoutInventory: true}, bound: "uid-1"},
		"an answer of another kind": {requests: []client.Object{fixture(t, "answer.json")}, inventory: "-",
			options: options{machine: honest, machineUID: "uid-1", withoutInventory: true}, want: []string{"machine nothing (request a of"}},
		"evidence that is not read": {requests: []client.Object{fixture(t, "unknown.json")}, inventory: "-",
			options: options{machine: "gce:project-1/1", withoutInventory: true}, want: []string{"machine nothing (request a of"}},
		"many others":                       {requests: many(t, "node-1"), want: []string{"strange:10 ", "strange:13 "}},
		"an identity in another spelling":   {requests: []client.Object{refusedHello(t, "a", "node-1", honest)}, options: options{machine: "STRANGE:1"}, want: []string{"STRANGE:1"}},
		"an identity of another kind":       {requests: []client.Object{refusedHello(t, "a", "node-1", honest)}, options: options{machine: "stranger:1"}, want: []string{"stranger:1"}},
		"the name of the request":           {requests: []client.Object{refusedHello(t, "a", "node-1", honest)}, node: "a", want: []string{"refused requests for that node: nothing"}},
		"a UID that the inventory has not":  {requests: []client.Object{refusedHello(t, "a", "node-1", honest)}, options: options{machineUID: "uid-9"}, want: []string{"UID uid-1", "uid-9"}},
		"the UID that the inventory has":    {requests: []client.Object{refusedHello(t, "a", "node-1", honest)}, options: options{machineUID: "uid-1"}, bound: "uid-1"},
		"a provider ID of another machine":  {requests: []client.Object{refusedHello(t, "a", "node-1", honest)}, options: options{providerID: "sim://a/2"}, want: []string{"sim://a/1", "sim://a/2"}},
		"no provider ID":                    {requests: []client.Object{refusedHello(t, "a", "node-1", honest)}, options: options{providerID: "x"}, want: []string{"--provider-id"}},
		"no provider ID, without inventory": {requests: []client.Object{refusedHello(t, "a", "node-1", honest)}, inventory: "-", options: options{providerID: "x", withoutInventory: true}, want: []string{"--provider-id"}},
		"the inventory has another machine": {requests: []client.Object{refusedHello(t, "a", "node-1", honest)}, inventory: "machines: [{nodeName: node-1, identity: 'strange:3'}]\n", want: []string{honest, "strange:3"}},
		"the inventory has another kind":    {requests: []client.Object{refusedHello(t, "a", "node-1", honest)}, inventory: "machines: [{nodeName: node-1, kind: tpm}]\n", want: []string{"node node-1 has kind tpm in the inventory", "evidence of strange"}},
		"a Node that came without evidence": {requests: []client.Object{refusedHello(t, "a", "node-1", honest), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}}, want: []string{"--existing-node"}},
		"that Node, as he knows": {requests: []client.Object{refusedHello(t, "a", "node-1", honest), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}},
			options: options{existingNode: true}, bound: "uid-1"},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := map[string]string{"": strangeInventory, "-": ""}[row.inventory]
			if inventory == "" && row.inventory != "-" {
				inventory = row.inventory
			}
			p := operates(t, inventory, row.requests...)
			dry := p.dryRun
			p.options, p.dryRun = row.options, dry
			if p.machine == "" {
				p.machine = honest
			}
			node := "node-1"
			if row.node != "" {
				node = row.node
			}
			said := ""
			if err := p.approve(t.Context(), node); err != nil {
				said = err.Error()
			}
			if (said == "") != (row.bound != "") {
				t.Errorf("got %q, want an error: %t", said, row.bound == "")
			}
			for _, want := range row.want {
				if !strings.Contains(said+p.out.String(), want) {
					t.Errorf("got %q, want %q in it", said+p.out.String(), want)
				}
			}
			var records v1alpha1.AttestedNodeList
			if err := p.client.List(t.Context(), &records); err != nil {
				t.Fatal(err)
			}
			if len(records.Items) != 0 && row.bound == "" {
				t.Fatalf("recorded %+v", records.Items[0].Spec)
			}
			if row.bound != "" && (len(records.Items) != 1 || records.Items[0].Name != "node-1" || records.Items[0].Spec.Machine != p.machine || records.Items[0].Spec.MachineUID != row.bound) {
				t.Errorf("recorded %+v", records.Items)
			}
		})
	}
}

// TestDecided: each command that changes a record is about the machine that the operator has seen, which
// he names or is shown. If another one is recorded by then, its record stays the same.
func TestDecided(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	for command, row := range map[string]struct {
		run   func(*plugin, *testing.T) error
		named func(o *options, machine string) // as the recorded machine
		options
		asked []string // in the question
		asks  bool
	}{
		"rebind": {func(p *plugin, t *testing.T) error { return p.rebind(t.Context(), "node-1") }, func(o *options, m string) { o.replaces = m },
			options{machine: "strange:3", force: true}, []string{"node-1", honest, "strange:3"}, true},
		"adopt a Machine": {func(p *plugin, t *testing.T) error { return p.adopt(t.Context(), "node-1") }, func(o *options, m string) { o.machine = m },
			options{machineUID: "uid-1"}, []string{"node-1", honest, "uid-0", "uid-1", "gets certificates only while"}, true},
		"adopt a provider ID": {func(p *plugin, t *testing.T) error { return p.adopt(t.Context(), "node-1") }, func(o *options, m string) { o.machine = m },
			options{providerID: "sim://a/1"}, []string{"node-1", honest, "sim://a/0", "sim://a/1", "gets certificates only while"}, true},
		"release": {func(p *plugin, t *testing.T) error { return p.release(t.Context(), "node-1") }, func(o *options, m string) { o.machine = m },
			options{}, []string{"node-1", honest, "rests until 2026-03-02T13:00:00Z"}, true},
		"token": {func(p *plugin, t *testing.T) error { return p.token(t.Context(), "node-1") }, func(o *options, m string) { o.machine = m }, options{}, nil, false},
	} {
		for name, c := range map[string]struct {
			named, answer, recorded string
			want                    bool
		}{
			"named":                        {named: honest, recorded: honest, want: true},
			"named, and is another by now": {named: honest, recorded: thief},
			"asked, yes":                   {answer: "y\n", recorded: honest, want: true},
			"asked, no":                    {answer: "n\n", recorded: honest},
			"no answer, from a script":     {recorded: honest},
		} {
			if !row.asks && c.named == "" {
				continue
			}
			t.Run(command+", "+name, func(t *testing.T) {
				p := operates(t, strangeInventory)
				p.in = strings.NewReader(c.answer)
				scope := membership.Scope{Provider: "strange", Road: attest.RoadDocument}
				if command == "token" {
					scope = membership.Scope{Road: attest.RoadAK}
				}
				claim := membership.Claim{NodeName: "node-1", Machine: attest.Identity(c.recorded), MachineUID: "uid-0", ProviderID: "sim://a/0"}
				recorded(t, p.plugin, scope, claim, now.Add(time.Hour), false)
				before := p.recordOf(t)
				dry := p.dryRun
				p.options, p.dryRun = row.options, dry
				if c.named != "" {
					row.named(&p.options, c.named)
				}
				err := row.run(p.plugin, t)
				if (err == nil) != c.want {
					t.Errorf("got %v", err)
				}
				after := p.recordOf(t)
				if changed := before.ResourceVersion != after.ResourceVersion; changed != (c.want && command != "token") {
					t.Errorf("changed: %t: %+v", changed, after.Spec)
				}
				if err != nil && c.named != "" && (!strings.Contains(err.Error(), honest) || !strings.Contains(err.Error(), thief)) {
					t.Errorf("got %v, want both machines named", err)
				}
				if asked := p.err.String(); c.named == "" {
					for _, want := range row.asked {
						if !strings.Contains(asked, want) {
							t.Errorf("asked %q, want %q in it", asked, want)
						}
					}
				} else if strings.Contains(asked, "[y/N]") {
					t.Errorf("asked %q", asked)
				}
			})
		}
	}
}

// recordOf returns the record of node-1.
func (o *operated) recordOf(t *testing.T) *v1alpha1.AttestedNode {
	t.Helper()
	n := new(v1alpha1.AttestedNode)
	if err := o.client.Get(t.Context(), client.ObjectKey{Name: "node-1"}, n); err != nil {
		t.Fatal(err)
	}
	return n
}

// nth does something before a read of a record.
type nth struct {
	client.Client
	n  int
	do func()
}

func (c *nth) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if _, ok := into.(*v1alpha1.AttestedNode); ok {
		if c.n--; c.n == 0 {
			c.do()
		}
	}
	return c.Client.Get(ctx, key, into, options...)
}

// TestDecidedAtAnyTime has the name of a node go to another machine before any read of its record: that
// machine is never released, rebound or given another ID.
func TestDecidedAtAnyTime(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	for command, row := range map[string]struct {
		run func(*plugin) error
		options
	}{
		"release":             {func(p *plugin) error { return p.release(t.Context(), "node-1") }, options{machine: honest}},
		"rebind":              {func(p *plugin) error { return p.rebind(t.Context(), "node-1") }, options{machine: "strange:3", replaces: honest, force: true}},
		"adopt a Machine":     {func(p *plugin) error { return p.adopt(t.Context(), "node-1") }, options{machine: honest, machineUID: "uid-1"}},
		"adopt a provider ID": {func(p *plugin) error { return p.adopt(t.Context(), "node-1") }, options{machine: honest, providerID: "sim://a/1"}},
	} {
		t.Run(command, func(t *testing.T) {
			for at, reached := 1, true; reached; at++ {
				p := operates(t, strangeInventory)
				recorded(t, p.plugin, membership.Scope{Provider: "strange", Road: attest.RoadDocument},
					membership.Claim{NodeName: "node-1", Machine: honest, MachineUID: "uid-0", ProviderID: "sim://a/0"}, now.Add(time.Hour), false)
				dry, store := p.dryRun, p.client
				p.options, p.dryRun = row.options, dry
				reached = false
				before, moved := p.recordOf(t).ResourceVersion, v1alpha1.AttestedNodeSpec{}
				p.client = &nth{store, at, func() {
					reached = true
					n := p.recordOf(t)
					if n.ResourceVersion == before { // the command has not begun to write
						n.Spec.Machine = thief
						moved = n.Spec
						if err := store.Update(t.Context(), n); err != nil {
							t.Fatal(err)
						}
					}
				}}
				err := row.run(p.plugin)
				p.client = store
				if after := p.recordOf(t).Spec; moved.Machine != "" && (err == nil || !reflect.DeepEqual(after, moved)) {
					t.Errorf("before read %d: %v, and then %+v", at, err, after)
				}
				if at == 1 && moved.Machine == "" {
					t.Error("the record was not read")
				}
			}
		})
	}
}
