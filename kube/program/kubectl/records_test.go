package kubectl

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/kube/program/internal/insecure"
	"github.com/nodeattest/nodeattest/kube/registry"
)

// The time of tests of releases, and the machine that is released.
var (
	now   = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	claim = membership.Claim{NodeName: "node-1", Machine: "gce:project-1/1", MachineUID: "uid-1", ProviderID: "gce://project-1/zone-1/vm-1"}
)

// TestRelease releases a record only with the operator's consent, and undoes a release for the same
// machine only.
func TestRelease(t *testing.T) {
	for name, row := range map[string]struct {
		answer string
		named  attest.Identity           // by --machine
		back   func(c *membership.Claim) // who wants the release to be taken back
		want   membership.State
	}{
		"nothing is answered": {want: membership.StateBound},
		"no":                  {answer: "n\n", want: membership.StateBound},
		"something else":      {answer: "node-1\n", want: membership.StateBound},
		"yes":                 {answer: "Y\n", want: membership.StateResting},
		"unasked":             {named: claim.Machine, want: membership.StateResting},
		"unasked, another":    {named: "gce:project-1/2", want: membership.StateBound},
		"and taken back":      {named: claim.Machine, back: func(*membership.Claim) {}, want: membership.StateBound},
		"not in inventory":    {named: claim.Machine, back: func(c *membership.Claim) { c.ProviderID = "" }, want: membership.StateBound},
		"by another ID":       {named: claim.Machine, back: func(c *membership.Claim) { c.ProviderID += "2" }, want: membership.StateResting},
		"for another machine": {named: claim.Machine, back: func(c *membership.Claim) { c.Machine = "gce:project-1/2" }, want: membership.StateResting},
		"for another Machine": {named: claim.Machine, back: func(c *membership.Claim) { c.MachineUID = "uid-2" }, want: membership.StateResting},
		"for no valid name":   {named: claim.Machine, back: func(c *membership.Claim) { c.NodeName = "Node 2" }, want: membership.StateResting},
	} {
		t.Run(name, func(t *testing.T) {
			var out, said bytes.Buffer
			p := &plugin{streams: streams{strings.NewReader(row.answer), &out, &said}, client: objectstore.New(), now: func() time.Time { return now },
				options: options{machine: string(row.named), dryRun: "none"}}
			r := released(t, p, claim, now.Add(time.Hour), false)
			err := p.release(t.Context(), claim.NodeName)
			if released := err == nil; released != (row.named == claim.Machine || row.want == membership.StateResting) || !released && strings.Contains(err.Error(), "the answer was not y") != (row.named == "") {
				t.Errorf("release: %v", err)
			}
			if asked := strings.Contains(said.String(), "rests until 2030-01-02T04:04:05Z"); asked == (row.named != "") {
				t.Errorf("asked: %q", &said)
			}
			if row.back != nil {
				again := claim
				row.back(&again)
				if _, err := p.bind(t.Context(), r, again); (err == nil) != (row.want == membership.StateBound) {
					t.Errorf("for %+v: %v", again, err)
				}
			}
			record, err := r.Lookup(t.Context(), claim.NodeName)
			if err != nil || record.State != row.want || record.Machine != claim.Machine || !record.LastEnd.Equal(now.Add(time.Hour)) {
				t.Fatalf("got %+v, %v, want it to be %s", record, err, row.want)
			}
			if _, err := r.Reserve(t.Context(), claim, now.Add(time.Minute)); (err == nil) != (row.want == membership.StateBound) {
				t.Errorf("the same machine: %v", err)
			}
			if at, err := r.LookupMachine(t.Context(), claim.Machine); err != nil || (at != nil) != (row.want == membership.StateBound) {
				t.Errorf("by its machine: %+v, %v", at, err)
			}
		})
	}
}

// TestReleaseWithoutEvidence: a name without evidence is free at once, for the next machine that has
// a bootstrap token. The operator is told until when its certificate is valid all the same.
func TestReleaseWithoutEvidence(t *testing.T) {
	claim := membership.Claim{NodeName: "node-1", Machine: "insecure:node-1", MachineUID: "uid-1"}
	for name, row := range map[string]struct {
		answer, dryRun string
		scope          membership.Scope
		before         bool // it was released as other names are
		free           bool
	}{
		"no":                          {answer: "n\n", dryRun: "none", scope: insecure.Scope("")},
		"yes":                         {answer: "y\n", dryRun: "none", scope: insecure.Scope(""), free: true},
		"released before":             {answer: "y\n", dryRun: "none", scope: insecure.Scope(""), before: true, free: true},
		"a name that has evidence":    {answer: "y\n", dryRun: "none", scope: membership.Scope{Provider: "gce", Road: attest.RoadDocument}},
		"another road of that kind":   {answer: "y\n", dryRun: "none", scope: membership.Scope{Provider: "insecure", Road: attest.RoadAK}},
		"what would be done is asked": {dryRun: "none", scope: insecure.Scope("")},
	} {
		t.Run(name, func(t *testing.T) {
			var out, said bytes.Buffer
			p := &plugin{streams: streams{strings.NewReader(row.answer), &out, &said}, client: objectstore.New(), now: func() time.Time { return now }, options: options{dryRun: row.dryRun}}
			r := recorded(t, p, row.scope, claim, now.Add(time.Hour), row.before)
			err := p.release(t.Context(), claim.NodeName)
			if answered := row.answer == "y\n"; (err == nil) != answered {
				t.Errorf("release: %v", err)
			}
			loud := "its old certificate and key still authenticate as node node-1 until 2030-01-02T04:04:05Z"
			if row.scope == insecure.Scope("") != strings.Contains(said.String(), loud) || row.free != strings.Contains(out.String(), loud) {
				t.Errorf("asked %q, said %q", &said, &out)
			}
			record, err := r.Lookup(t.Context(), claim.NodeName)
			if err != nil || (record == nil) != row.free {
				t.Fatalf("got %+v, %v", record, err)
			}
			claim := claim
			claim.MachineUID = "uid-2" // another machine of the inventory
			if _, err := r.Reserve(t.Context(), claim, now.Add(time.Minute)); (err == nil) != row.free {
				t.Errorf("the next: %v", err)
			}
		})
	}
}

// TestRecordOfNoName: a name that no node has is not one without a record.
func TestRecordOfNoName(t *testing.T) {
	p := &plugin{client: objectstore.New(), options: options{dryRun: "none"}}
	for name, want := range map[string]string{"Node-1": "no node name", "node_1": "no node name", "node-1.": "no node name", "node-1": "has no record"} {
		if err := p.release(t.Context(), name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

// released makes a record of a machine, which is released if that is wanted.
func released(t *testing.T, p *plugin, claim membership.Claim, lastEnd time.Time, release bool) *registry.Registry {
	t.Helper()
	return recorded(t, p, membership.Scope{Provider: "gce", Road: attest.RoadDocument}, claim, lastEnd, release)
}

// recorded is released in a registry of any scope.
func recorded(t *testing.T, p *plugin, scope membership.Scope, claim membership.Claim, lastEnd time.Time, release bool) *registry.Registry {
	t.Helper()
	r, err := p.registry(scope)
	if err != nil {
		t.Fatal(err)
	}
	record, err := r.Reserve(t.Context(), claim, p.now().Add(time.Minute))
	if err == nil {
		_, err = r.Bind(t.Context(), record, lastEnd, nil)
	}
	if err == nil && release {
		_, err = r.Release(t.Context(), claim.NodeName, claim.MachineUID)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// meanwhile does something before it answers.
type meanwhile struct {
	do     func() error
	answer io.Reader
}

func (m *meanwhile) Read(b []byte) (int, error) {
	if do := m.do; do != nil {
		m.do = nil
		if err := do(); err != nil {
			return 0, err
		}
	}
	return m.answer.Read(b)
}

// TestReleaseChanged changes the record while the operator is asked: nothing is released.
func TestReleaseChanged(t *testing.T) {
	var r *registry.Registry
	var p *plugin
	changed := func(change func(record *membership.Record) (*membership.Record, error)) func() error {
		return func() error {
			record, err := r.Lookup(t.Context(), claim.NodeName)
			if err == nil {
				_, err = change(record)
			}
			return err
		}
	}
	for name, change := range map[string]func() error{
		"another machine": changed(func(record *membership.Record) (*membership.Record, error) {
			return r.Rebind(t.Context(), record, "gce:project-1/2")
		}),
		"another Machine": changed(func(record *membership.Record) (*membership.Record, error) {
			return r.Adopt(t.Context(), record, "uid-2")
		}),
		"gone": func() error {
			return p.client.Delete(t.Context(), &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: claim.NodeName}})
		},
		"renewed": changed(func(record *membership.Record) (*membership.Record, error) {
			return r.Bind(t.Context(), record, now.Add(2*time.Hour), nil)
		}),
		"released": func() error { _, err := r.Release(t.Context(), claim.NodeName, claim.MachineUID); return err },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			p = &plugin{streams: streams{&meanwhile{change, strings.NewReader("y\n")}, &out, io.Discard}, client: objectstore.New(), now: func() time.Time { return now }, options: options{dryRun: "none"}}
			r = released(t, p, claim, now.Add(time.Hour), false)
			if err := p.release(t.Context(), claim.NodeName); err == nil || !strings.Contains(err.Error(), "nothing was done") || out.Len() != 0 {
				t.Errorf("got %v and %q", err, &out)
			}
			if record, err := r.Lookup(t.Context(), claim.NodeName); (name == "renewed" || strings.HasPrefix(name, "another ")) && (err != nil || record.State != membership.StateBound) {
				t.Errorf("got %+v, %v, want it to be bound", record, err)
			}
		})
	}
}

// TestTakeBackFails has a write fail, or its answer lost, and the operator interrupt, as a release is
// taken back: the record keeps its last end.
func TestTakeBackFails(t *testing.T) {
	fault := errors.New("no answer")
	var last membership.State // as the last fault, after the last write, has left it
	for at, failed := 1, true; failed; at++ {
		failed = false
		for _, done := range []bool{false, true} {
			store := objectstore.New()
			p := &plugin{client: store, now: func() time.Time { return now }}
			r := released(t, p, claim, now.Add(time.Hour), true)
			ctx, interrupt := context.WithCancel(t.Context())
			store.Fault(func(write int) (before, after error) {
				if write != at {
					return nil, nil
				}
				failed = true
				interrupt()
				if done {
					return nil, fault
				}
				return fault, nil
			})
			_, err := p.bind(ctx, r, claim)
			store.Fault(nil)
			interrupt()
			record, lost := r.Lookup(t.Context(), claim.NodeName)
			if lost != nil || record == nil || !record.LastEnd.Equal(now.Add(time.Hour)) || record.State != membership.StateBound && record.State != membership.StateResting {
				t.Errorf("write %d, done: %t: %v, and then %+v, %v", at, done, err, record, lost)
			}
			if failed && record != nil {
				last = record.State
			}
		}
	}
	if last != membership.StateBound {
		t.Errorf("it was bound, and then made %s", last)
	}
}

// between does something before the next read.
type between struct {
	*objectstore.Store
	do func()
}

func (b *between) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if do := b.do; do != nil {
		b.do = nil
		do()
	}
	return b.Store.Get(ctx, key, into, options...)
}

// TestTakeBackLate fails to take a release back, and by then the name is another machine's.
func TestTakeBackLate(t *testing.T) {
	b := &between{Store: objectstore.New()}
	p := &plugin{client: b, now: func() time.Time { return now }}
	r := released(t, p, claim, now.Add(time.Hour), true)
	fault, change := errors.New("no answer"), func() {
		if err := p.change(t.Context(), claim.NodeName, func(s *v1alpha1.AttestedNodeSpec) { s.Machine = "gce:project-1/2" }); err != nil {
			t.Error(err)
		}
	}
	b.Fault(func(write int) (before, after error) {
		if write != 2 { // the first one of the reservation
			return nil, nil
		}
		b.do = change
		return fault, nil
	})
	if _, err := p.bind(t.Context(), r, claim); !errors.Is(err, fault) {
		t.Errorf("got %v, want %v", err, fault)
	}
	if record, err := r.Lookup(t.Context(), claim.NodeName); err != nil || record.State != membership.StateReserved || record.Machine != "gce:project-1/2" {
		t.Errorf("got %+v, %v, want it to be as the other machine has it", record, err)
	}
}

// TestInventoryUnread compares with the inventory, or is told not to.
func TestInventoryUnread(t *testing.T) {
	const config = "apiVersion: config.nodeattest.github.io/v1alpha1\nkind: NodeAttestation\ncluster: {ids: [c]}\ninventory: {file: /etc/i.yaml}\n" +
		"tpm: {allowedEKs: []}\nnitro: {rootsFile: r}\nmembership: {mode: Approval, kind: nitro}\n"
	const inventory = "machines:\n- {nodeName: node-1, uid: uid-1}\n"
	for name, row := range map[string]struct {
		data    map[string]string
		without bool
		refused bool
		uid     string
	}{
		"no ConfigMap":              {refused: true},
		"no ConfigMap, as is known": {without: true},
		"no inventory in it":        {data: map[string]string{configKey: config}, refused: true},
		"an inventory":              {data: map[string]string{configKey: config, "i.yaml": inventory}, uid: "uid-1"},
		"an inventory without it":   {data: map[string]string{configKey: config, "i.yaml": strings.ReplaceAll(inventory, "node-1", "node-2")}, refused: true},
		"an inventory all the same": {data: map[string]string{configKey: config, "i.yaml": inventory}, without: true, uid: "uid-1"},
	} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientBuilder()
			if row.data != nil {
				api.WithObjects(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "typo", Name: configMap}, Data: row.data})
			}
			p := &plugin{client: api.Build(), namespace: "typo", options: options{withoutInventory: row.without}}
			claim := membership.Claim{NodeName: "node-1", Machine: "aws:i-1"}
			err := p.fromInventory(t.Context(), &claim, "nitro")
			if (err != nil) != row.refused || err != nil && !strings.Contains(err.Error(), "typo") && !strings.Contains(err.Error(), "no node node-1") || claim.MachineUID != row.uid {
				t.Errorf("got %v and UID %q", err, claim.MachineUID)
			}
		})
	}
}

// TestNotes takes the notes that agree with the condition from Events under the controller's name.
func TestNotes(t *testing.T) {
	event := func(name, by, reason string) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, InvolvedObject: corev1.ObjectReference{UID: "uid"},
			ReportingController: by, Reason: reason, Message: name}
	}
	api := fake.NewClientBuilder().WithScheme(clientscheme.Scheme).
		WithIndex(new(corev1.Event), "involvedObject.uid", func(o client.Object) []string { return []string{string(o.(*corev1.Event).InvolvedObject.UID)} }).
		WithObjects(event("true", "node-attestation-controller", "NotAMember"), event("another's", "kubelet", "NotAMember"),
			event("another reason", "node-attestation-controller", "Rebind"), event("of a signature", "node-attestation-signer", "UnattestedCertificate")).Build()
	p := &plugin{client: api}
	r := &csr.Request{Metadata: csr.Metadata{UID: "uid"}, Status: csr.Status{Conditions: []csr.Condition{{Type: csr.ConditionDenied, Reason: "NotAMember"}}}}
	for certificate, want := range map[string]string{"": "true", "c": "of a signature true"} {
		r.Status.Certificate = []byte(certificate)
		if notes, err := p.notes(t.Context(), r); err != nil || strings.Join(notes, " ") != want {
			t.Errorf("got %q, %v, want %q", notes, err, want)
		}
	}
}
