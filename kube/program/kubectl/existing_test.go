package kubectl

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
)

// plainNode is a Node that joined without evidence.
func plainNode(name string) client.Object {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)}}
}

// asking is a refused request that a Node's own account has filed a minute ago.
func asking(t *testing.T, name, nodeName, machine string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	o := refusedHello(t, name, nodeName, machine)
	o.Spec.Username = csr.NodeUserPrefix + nodeName
	o.CreationTimestamp = metav1.NewTime(time.Date(2026, 3, 2, 11, 59, 0, 0, time.UTC))
	return o
}

// machinesOf returns the bound machines by node.
func (o *operated) machinesOf(t *testing.T) map[string]string {
	t.Helper()
	var records v1alpha1.AttestedNodeList
	if err := o.client.List(t.Context(), &records); err != nil {
		t.Fatal(err)
	}
	machines := map[string]string{}
	for i := range records.Items {
		if s := &records.Items[i].Spec; s.State == v1alpha1.NodeBound {
			machines[records.Items[i].Name] = s.Machine
		}
	}
	return machines
}

// existingCase is a state of node-1.
type existingCase struct {
	entry    string // the rest of node-1's entry in the inventory; "-" without one
	objects  []func(t *testing.T) client.Object
	unnamed  bool // node-1 is not named
	absent   bool // there is no Node
	approved bool
	want     string // in the refusal; empty if it is approved, or not mentioned
}

func existingCases() map[string]existingCase {
	type of = []func(t *testing.T) client.Object
	by := func(name, user, nodeName, machine string) func(*testing.T) client.Object {
		return func(t *testing.T) client.Object {
			o := asking(t, name, nodeName, machine)
			o.Spec.Username = user
			return o
		}
	}
	record := func(node, machine, scope string, state v1alpha1.NodeState) func(*testing.T) client.Object {
		end := &metav1.Time{Time: time.Date(2026, 3, 2, 13, 0, 0, 0, time.UTC)}
		return func(*testing.T) client.Object {
			return &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: v1alpha1.AttestedNodeSpec{
				Scope: scope, Machine: machine, State: state, LastEnd: end}}
		}
	}
	pointer := func(*testing.T) client.Object {
		return &v1alpha1.AttestedMachine{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PointerName(honest)},
			Spec: v1alpha1.AttestedMachineSpec{Machine: honest, NodeReference: v1alpha1.NodeReference{NodeName: "node-9"}}}
	}
	const tokens, document, none = "system:bootstrap:abcdef", "strange document", "insecure document"
	self, token := by("a", "system:node:node-1", "node-1", honest), by("a", tokens, "node-1", honest)
	tokenOnce, other := by("b", tokens, "node-1", honest), by("b", tokens, "node-1", thief)
	undecided := func(t *testing.T) client.Object { return notDecided(asking(t, "a", "node-1", honest)) }
	unread := func(t *testing.T) client.Object { return fixture(t, "unknown.json") }
	unsaid := func(t *testing.T) client.Object { return fixture(t, "answer.json") }
	return map[string]existingCase{
		"as it should be":    {objects: of{self}, approved: true},
		"of all":             {unnamed: true, objects: of{self}, approved: true},
		"no request":         {want: "no machine waits for it"},
		"no request, of all": {unnamed: true},
		"no decision yet":    {objects: of{undecided}, want: "no machine waits for it"},
		"no Node":            {absent: true, objects: of{self}, want: "the cluster has no Node of this name"},
		"no Node, of all":    {unnamed: true, absent: true, objects: of{self}},
		"no Node, but a record": {absent: true, objects: of{self, record("node-1", honest, document, v1alpha1.NodeBound)},
			want: "the cluster has no Node"},
		"a Node with a record": {objects: of{self, record("node-1", "strange:9", document, v1alpha1.NodeBound)},
			want: "it has a record, of machine strange:9 with status Attested"},
		"a Node with a record, of all": {unnamed: true, objects: of{self, record("node-1", "strange:9", document, v1alpha1.NodeBound)}},
		"a Node that is released": {objects: of{self, record("node-1", honest, document, v1alpha1.NodeResting)},
			want: "of machine strange:1 with status Resting"},
		"a record without evidence": {unnamed: true, objects: of{self, record("node-1", "insecure:node-1", none, v1alpha1.NodeBound)},
			want: "it is recorded without evidence: run kubectl nodeattest release node-1 first"},
		"no entry in the inventory": {unnamed: true, entry: "-", objects: of{self}, want: "the inventory has no node node-1"},
		"another machine in the inventory": {entry: ", identity: 'strange:3'", objects: of{self},
			want: "the inventory has machine strange:3 for node node-1, not strange:1"},
		"another kind in the inventory": {entry: ", kind: tpm", objects: of{self}, want: "node node-1 has kind tpm in the inventory"},
		"two machines": {unnamed: true, objects: of{self, other},
			want: "2 machines ask for it: machine strange:1 (request a of system:node:node-1), machine strange:2 (request b of system:bootstrap:"},
		"two machines, one in the inventory": {entry: ", identity: 'strange:1'", objects: of{self, other}, want: "2 machines ask for it"},
		"a machine that asks for two nodes": {objects: of{self, by("b", "system:node:node-3", "node-3", honest)},
			want: "machine strange:1 asks for several nodes: node-1, node-3"},
		"a machine of another node": {objects: of{self, record("node-9", honest, document, v1alpha1.NodeBound), pointer},
			want: "machine strange:1: registry-machine"},
		"another account asks": {objects: of{token},
			want: tokens + " has filed the request of machine strange:1, not the node itself"},
		"another account asks for the inventory's machine": {entry: ", identity: 'strange:1'", objects: of{token}, approved: true},
		"another account asks, too":                        {objects: of{self, tokenOnce}, approved: true},
		"another node asks": {objects: of{by("a", "system:node:node-2", "node-1", honest)},
			want: "system:node:node-2 has filed the request"},
		"evidence that is not read":   {entry: ", kind: tpm", objects: of{unread}, want: "evidence of acme/v1 is not read by this program"},
		"an answer that does not say": {entry: ", kind: tpm", objects: of{unsaid}, want: "its request does not state the machine"},
	}
}

// TestExistingRefused: approve --existing-nodes refuses each of these Nodes by name, and records nothing for it.
// node-2 is as it should be in each case.
func TestExistingRefused(t *testing.T) {
	for name, row := range existingCases() {
		t.Run(name, func(t *testing.T) {
			inventory := "machines: [{nodeName: node-2}, {nodeName: node-1" + row.entry + "}]\n"
			if row.entry == "-" {
				inventory = "machines: [{nodeName: node-2}]\n"
			}
			objects := []client.Object{plainNode("node-2"), asking(t, "other", "node-2", "strange:22")}
			for _, object := range row.objects {
				objects = append(objects, object(t))
			}
			if !row.absent {
				objects = append(objects, plainNode("node-1"))
			}
			o := operates(t, inventory, objects...)
			names := "node-2 node-1"
			if o.yes = !row.unnamed; row.unnamed {
				names, o.in, o.terminal = "", strings.NewReader("y\n"), true
			}
			before := o.machinesOf(t)
			err := o.approveExisting(t.Context(), names)
			said := o.out.String() + o.err.String()
			if status, _ := errors.AsType[exitStatus](err); (status == 1) != (row.want != "") || err != nil && status == 0 {
				t.Errorf("got %v\n%s", err, said)
			}
			if !strings.Contains(said, row.want) || strings.Contains(said, "node node-1 is not approved: ") != (row.want != "") {
				t.Errorf("got\n%s\nwant %q", said, row.want)
			}
			want := before
			want["node-2"] = "strange:22"
			if row.approved {
				want["node-1"] = honest
			}
			if got := o.machinesOf(t); len(got) != len(want) || got["node-1"] != want["node-1"] || got["node-2"] != want["node-2"] {
				t.Errorf("recorded %q, want %q\n%s", got, want, said)
			}
		})
	}
}

// threeNodes are Nodes that joined without evidence: one with a TPM, which the inventory names, one of which it
// names no machine, and one for which two machines ask. It also returns the TPM's identity.
func threeNodes(t *testing.T) (o *operated, machine string) {
	t.Helper()
	node := attesttest.NewNode(t, attesttest.NodeOptions{Road: attest.RoadEK})
	hello, err := node.Hello(t.Context(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	tpm := asking(t, "a", "node-1", honest)
	tpm.Spec.Request, tpm.Spec.SignerName = hello.Spec.Request, hello.Spec.SignerName
	w, err := operates(t, "").waitingOf(controller.Request(tpm))
	if err != nil {
		t.Fatal(err)
	}
	machine = string(w.machine)
	return operates(t, `machines:
- {nodeName: node-1, kind: tpm, uid: uid-1, identity: '`+machine+`', providerID: '`+attesttest.ProviderID+`'}
- {nodeName: node-2, uid: uid-2}
- {nodeName: node-3}
`, tpm, asking(t, "b", "node-2", "strange:2"), asking(t, "c", "node-3", "strange:3"), refusedHello(t, "d", "node-3", "strange:4"),
		plainNode("node-1"), plainNode("node-2"), plainNode("node-3")), machine
}

// TestExistingOutput: the table, the question, the answers and the exit status.
func TestExistingOutput(t *testing.T) {
	o, machine := threeNodes(t)
	o.in, o.terminal = strings.NewReader("yes\n"), true
	err := o.approveExisting(t.Context(), "")
	if status, _ := errors.AsType[exitStatus](err); status != 1 {
		t.Errorf("got %v", err)
	}
	isGolden(t, "lists/existing", strings.ReplaceAll(o.out.String()+"--\n"+o.err.String(), machine, "ek:sha256:"+strings.Repeat("0", 64)))
	if got := o.machinesOf(t); len(got) != 2 || got["node-1"] != machine || got["node-2"] != "strange:2" {
		t.Errorf("recorded %q", got)
	}
	o.out.Reset() // by now two have records, and the third one is refused as before
	if err := o.approveExisting(t.Context(), ""); err == nil || !strings.Contains(o.out.String(), "0 approved, 1 refused\n") {
		t.Errorf("got %v\n%s", err, &o.out)
	}
}

// TestExistingNothing: no machine waits as a Node that exists.
func TestExistingNothing(t *testing.T) {
	o := operates(t, strangeInventory, asking(t, "a", "node-1", honest), plainNode("node-2"))
	if err := o.approveExisting(t.Context(), ""); err != nil || o.out.String() != "0 approved, 0 refused\n" {
		t.Errorf("got %v\n%s", err, &o.out)
	}
	o = operates(t, "", asking(t, "a", "node-1", honest), plainNode("node-1"))
	if err := o.approveExisting(t.Context(), ""); !errors.Is(err, errInventory) || o.out.Len() != 0 {
		t.Errorf("without inventory: %v\n%s", err, &o.out)
	}
}

// TestExistingAsked: only an operator at a terminal is asked, and only y goes on.
func TestExistingAsked(t *testing.T) {
	for name, row := range map[string]struct {
		terminal, yes bool
		answer        string
		want          string // the error
	}{
		"y":                    {terminal: true, answer: "y\n"},
		"no":                   {terminal: true, answer: "n\n", want: "the answer was not y"},
		"a name":               {terminal: true, answer: "node-1\n", want: "the answer was not y"},
		"no answer":            {terminal: true, want: "the answer was not y"},
		"y, from a pipe":       {answer: "y\n", want: "not a terminal"},
		"--yes, from a script": {yes: true},
		"--yes":                {yes: true, terminal: true, answer: "n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			o := operates(t, strangeInventory, asking(t, "a", "node-1", honest), plainNode("node-1"))
			o.in, o.terminal, o.yes = strings.NewReader(row.answer), row.terminal, row.yes
			err := o.approveExisting(t.Context(), "node-1")
			said := "nothing was done: "
			if err != nil {
				said = err.Error()
			}
			if (err == nil) != (row.want == "") || !strings.HasPrefix(said, "nothing was done: ") || !strings.Contains(said, row.want) {
				t.Errorf("got %v", err)
			}
			if asked := strings.Contains(o.err.String(), "[y/N]"); asked != (row.terminal && !row.yes) {
				t.Errorf("asked: %t", asked)
			}
			if got := o.machinesOf(t); (len(got) == 1) != (row.want == "") {
				t.Errorf("recorded %q", got)
			}
		})
	}
}

// TestExistingChanged has the state of a Node change while the operator looks at it: it is refused, and the other
// Node is approved.
func TestExistingChanged(t *testing.T) {
	withRecord := func(machine string) func(*testing.T, *operated) {
		return func(t *testing.T, o *operated) {
			recorded(t, o.plugin, membership.Scope{Provider: "strange", Road: attest.RoadDocument},
				membership.Claim{NodeName: "node-1", Machine: attest.Identity(machine)}, o.now().Add(time.Hour), false)
		}
	}
	remove := func(t *testing.T, o *operated) {
		o.requests.Items = slices.DeleteFunc(o.requests.Items, func(r certificatesv1.CertificateSigningRequest) bool { return r.Name == "a" })
	}
	for name, row := range map[string]struct {
		change func(t *testing.T, o *operated)
		want   string // in the refusal; approved if empty
		// recorded is the machine that another has recorded meanwhile.
		recorded string
	}{
		"nothing": {change: func(*testing.T, *operated) {}},
		"the machine asks again": {change: func(t *testing.T, o *operated) {
			remove(t, o)
			o.requests.Items = append(o.requests.Items, *asking(t, "later", "node-1", honest))
		}},
		"another machine under the name of its request": {change: func(t *testing.T, o *operated) {
			remove(t, o)
			o.requests.Items = append(o.requests.Items, *asking(t, "a", "node-1", thief))
		}, want: "with machine strange:1 is now Node uid-of-node-1 with machine strange:2"},
		"another machine asks, too": {change: func(t *testing.T, o *operated) {
			o.requests.Items = append(o.requests.Items, *refusedHello(t, "b", "node-1", thief))
		}, want: "2 machines ask for it"},
		"its request is gone":         {change: remove, want: "no machine waits for it"},
		"another machine is the node": {change: withRecord(thief), want: "it has a record, of machine strange:2", recorded: thief},
		"the machine is the node":     {change: withRecord(honest), want: "it has a record, of machine strange:1", recorded: honest},
		"another Node": {change: func(t *testing.T, o *operated) {
			if err := o.client.Delete(t.Context(), plainNode("node-1")); err != nil {
				t.Fatal(err)
			}
			again := plainNode("node-1")
			again.SetUID("other")
			if err := o.client.Create(t.Context(), again); err != nil {
				t.Fatal(err)
			}
		}, want: "is now Node other with machine strange:1"},
		"no Node": {change: func(t *testing.T, o *operated) {
			if err := o.client.Delete(t.Context(), plainNode("node-1")); err != nil {
				t.Fatal(err)
			}
		}, want: "the cluster has no Node of this name"},
		"another inventory": {change: func(t *testing.T, o *operated) {
			var m corev1.ConfigMap
			if err := o.client.Get(t.Context(), client.ObjectKey{Namespace: defaultNamespace, Name: configMap}, &m); err != nil {
				t.Fatal(err)
			}
			m.Data["inventory.yaml"] = strings.ReplaceAll(m.Data["inventory.yaml"], "uid-1", "uid-9")
			if err := o.client.Update(t.Context(), &m); err != nil {
				t.Fatal(err)
			}
		}, want: "it has changed since it was shown"},
	} {
		t.Run(name, func(t *testing.T) {
			o := operates(t, strangeInventory, asking(t, "a", "node-1", honest), asking(t, "other", "node-2", "strange:22"),
				plainNode("node-1"), plainNode("node-2"))
			o.in, o.terminal = &meanwhile{func() error { row.change(t, o); return nil }, strings.NewReader("y\n")}, true
			err := o.approveExisting(t.Context(), "")
			got, said := o.machinesOf(t), o.out.String()+o.err.String()
			status, _ := errors.AsType[exitStatus](err)
			if (status == 1) != (row.want != "") || !strings.Contains(said, row.want) {
				t.Errorf("got %v\n%s", err, said)
			}
			want := row.recorded
			if row.want == "" {
				want = honest
			}
			if got["node-1"] != want || got["node-2"] != "strange:22" {
				t.Errorf("recorded %q, want %q\n%s", got, want, said)
			}
		})
	}
}

// TestExistingTaken: a name that another machine has taken since the last look is left alone, as is one whose write
// fails, and an interrupt ends before the next Node.
func TestExistingTaken(t *testing.T) {
	shown := func(o *operated) *existing {
		all, err := o.existing(t.Context(), []string{"node-1"})
		if err != nil || all[0].err != nil {
			t.Fatal(err, all[0].err)
		}
		return all[0]
	}
	o := operates(t, strangeInventory, asking(t, "a", "node-1", honest), plainNode("node-1"))
	e := shown(o)
	recorded(t, o.plugin, membership.Scope{Provider: "strange", Road: attest.RoadDocument},
		membership.Claim{NodeName: "node-1", Machine: thief}, o.now().Add(time.Hour), false)
	if err := o.recordExisting(t.Context(), e, e); !errors.Is(err, attest.Check("registry-name")) || o.machinesOf(t)["node-1"] != thief {
		t.Errorf("got %v, recorded %q", err, o.machinesOf(t))
	}
	o = operates(t, strangeInventory, asking(t, "a", "node-1", honest), plainNode("node-1"))
	e = shown(o)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if err := o.recordExisting(ctx, e, e); !errors.Is(err, context.Canceled) || len(o.machinesOf(t)) != 0 {
		t.Errorf("interrupted: %v, recorded %q", err, o.machinesOf(t))
	}
	store, fault := objectstore.New(), errors.New("no answer")
	store.Fault(func(int) (before, after error) { return fault, nil })
	o.client = store
	if err := o.recordExisting(t.Context(), e, e); !errors.Is(err, fault) {
		t.Errorf("got %v, want %v", err, fault)
	}
}

// TestIssuerOf: a request states its TPM's certificate, which may be missing or no certificate.
func TestIssuerOf(t *testing.T) {
	for want, chain := range map[string][][]byte{
		"no certificate": nil, "an issuer that cannot be read": {[]byte("x")}, "CN=" + foreign: {foreignCA(t).Raw},
	} {
		if got := issuerOf(chain); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
