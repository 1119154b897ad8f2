package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
)

// booting is a cluster with a record, whose boots are written.
type booting struct {
	*boots
	api    client.Client
	clock  time.Time
	writes int
	reads  int
	fault  error // of the writes
}

func newBooting(t *testing.T) *booting {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := &booting{clock: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)}
	record := &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: v1alpha1.AttestedNodeSpec{Machine: "ek:sha256:01", State: v1alpha1.NodeBound}}
	b.api = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(record).WithObjects(record).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			b.reads++
			return c.Get(ctx, key, o, options...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, o client.Object, options ...client.SubResourceUpdateOption) error {
			if b.writes++; b.fault != nil {
				return b.fault
			}
			return c.SubResource(name).Update(ctx, o, options...)
		}}).Build()
	var err error
	if b.boots, err = newBoots(b.api, b.api, prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	b.now = func() time.Time { return b.clock }
	return b
}

// booted is a boot with the byte in PCR 7.
func booted(state settings.SecureBootState, fill byte, wrong ...error) *settings.Boot {
	return &settings.Boot{Judged: true, Machine: "ek:sha256:01", SecureBoot: state, GoodPCRs: -1, Wrong: wrong,
		PCRs: []statement.PCR{{Bank: tpm2.TPMAlgSHA256, Index: 7, Value: bytes.Repeat([]byte{fill}, 32)}}}
}

func (b *booting) status(t *testing.T) v1alpha1.AttestedNodeStatus {
	t.Helper()
	object := new(v1alpha1.AttestedNode)
	if err := b.api.Get(t.Context(), client.ObjectKey{Name: "node-1"}, object); err != nil {
		t.Fatal(err)
	}
	if object.Spec.Machine != "ek:sha256:01" || object.Spec.State != v1alpha1.NodeBound {
		t.Errorf("the record is %+v", object.Spec)
	}
	return object.Status
}

// TestBootStatus: a boot is written if it is new or an hour old, and keeps the one before it.
func TestBootStatus(t *testing.T) {
	b := newBooting(t)
	step := func(name string, after time.Duration, boot *settings.Boot, writes int) v1alpha1.AttestedNodeStatus {
		t.Helper()
		b.clock, b.writes = b.clock.Add(after), 0
		b.take("node-1", boot, false)
		b.write(t.Context())
		if b.writes != writes {
			t.Errorf("%s: %d writes, want %d", name, b.writes, writes)
		}
		return b.status(t)
	}
	first := step("the first", 0, booted(settings.SecureBootOff, 1, errors.New("off")), 1)
	if m := first.Boot; m == nil || m.SecureBoot != "Off" || m.PCRs["7"] != strings.Repeat("01", 32) || m.Machine != "ek:sha256:01" || !slices.Equal(m.Wrong, []string{"off"}) || m.GoodPCRs != nil || first.PreviousBoot != nil {
		t.Errorf("got %+v", first)
	}
	step("the same", 59*time.Minute, booted(settings.SecureBootOff, 1, errors.New("off")), 0)
	again := step("the same later", 2*time.Minute, booted(settings.SecureBootOff, 1, errors.New("off")), 1)
	if again.PreviousBoot != nil || !again.Boot.Time.After(first.Boot.Time.Time) {
		t.Errorf("got %+v", again)
	}
	good := booted(settings.SecureBootOn, 2)
	good.GoodPCRs = 1
	second := step("another", time.Second, good, 1)
	if second.Boot.SecureBoot != "On" || *second.Boot.GoodPCRs != 1 || second.PreviousBoot == nil || second.PreviousBoot.PCRs["7"] != strings.Repeat("01", 32) {
		t.Errorf("got %+v", second)
	}
	stranger := booted(settings.SecureBootOff, 3)
	stranger.Machine = "ek:sha256:02"
	if got := step("another machine that asks for the name", time.Second, stranger, 0); got.Boot.SecureBoot != "On" {
		t.Errorf("got %+v", got)
	}
	b.take("node-2", good, false)
	b.write(t.Context())
	if len(b.waiting) != 0 || b.writes != 0 {
		t.Errorf("a node without a record: %d wait, %d writes", len(b.waiting), b.writes)
	}
}

// TestBootsOfChangingRecords: a status is not written while a reservation or a change is under way, since the write would
// void it. A record whose change has lapsed is written to.
func TestBootsOfChangingRecords(t *testing.T) {
	for name, change := range map[string]func(s *v1alpha1.AttestedNodeSpec, deadline metav1.Time){
		"a reservation": func(s *v1alpha1.AttestedNodeSpec, d metav1.Time) { s.State, s.Deadline = v1alpha1.NodeReserved, &d },
		"a pending change": func(s *v1alpha1.AttestedNodeSpec, d metav1.Time) {
			s.Pending = &v1alpha1.PendingChange{Machine: "ek:sha256:02", Deadline: d}
		},
		"one of a rest": func(s *v1alpha1.AttestedNodeSpec, d metav1.Time) {
			s.State, s.Pending = v1alpha1.NodeResting, &v1alpha1.PendingChange{Deadline: d}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBooting(t)
			object := new(v1alpha1.AttestedNode)
			if err := b.api.Get(t.Context(), client.ObjectKey{Name: "node-1"}, object); err != nil {
				t.Fatal(err)
			}
			change(&object.Spec, metav1.NewTime(b.clock.Add(time.Minute)))
			if err := b.api.Update(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			b.take("node-1", booted(settings.SecureBootOn, 1), false)
			b.reads = 0
			b.write(t.Context())
			if b.reads != 1 || b.writes != 0 || len(b.waiting) != 1 {
				t.Errorf("%d reads, %d writes, %d wait", b.reads, b.writes, len(b.waiting))
			}
			b.clock = b.clock.Add(2 * time.Minute)
			b.write(t.Context())
			if b.writes != 1 || len(b.waiting) != 0 {
				t.Errorf("after the deadline: %d writes, %d wait", b.writes, len(b.waiting))
			}
		})
	}
}

// TestBootOfAnotherMachine: a machine that asks for a node's name keeps no boot of the node's own from its status.
func TestBootOfAnotherMachine(t *testing.T) {
	b := newBooting(t)
	stranger := booted(settings.SecureBootOff, 3)
	stranger.Machine = "ek:sha256:02"
	b.take("node-1", booted(settings.SecureBootOn, 1), false)
	b.take("node-1", stranger, false)
	b.write(t.Context())
	if got := b.status(t); got.Boot == nil || got.Boot.SecureBoot != "On" {
		t.Errorf("got %+v", got)
	}
}

// TestBootWriteFails: a failing write is tried again after a while, of the last boot, and is no reason to wait.
func TestBootWriteFails(t *testing.T) {
	b := newBooting(t)
	b.fault = errors.New("no answer")
	b.take("node-1", booted(settings.SecureBootOff, 1), false)
	for range 10 {
		b.write(t.Context())
	}
	if b.writes != 1 || len(b.waiting) != 1 {
		t.Errorf("%d writes, %d wait", b.writes, len(b.waiting))
	}
	b.take("node-1", booted(settings.SecureBootOn, 2), false)
	b.fault, b.clock = nil, b.clock.Add(bootsPause)
	b.write(t.Context())
	if got := b.status(t); got.Boot == nil || got.Boot.SecureBoot != "On" || len(b.waiting) != 0 {
		t.Errorf("got %+v", got)
	}
	b.fault = apierrors.NewConflict(schema.GroupResource{}, "node-1", nil)
	b.take("node-1", booted(settings.SecureBootOff, 3), false)
	b.write(t.Context())
	b.fault = nil
	b.write(t.Context())
	if got := b.status(t); got.Boot.SecureBoot != "Off" {
		t.Errorf("after a conflict: %+v", got)
	}
}

// TestBootRefused: a boot that the API server refuses keeps no other from being written, and is not written again.
func TestBootRefused(t *testing.T) {
	for name, fault := range map[string]error{
		"invalid":     apierrors.NewInvalid(schema.GroupKind{}, "node-1", nil),
		"bad request": apierrors.NewBadRequest("no"),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBooting(t)
			b.fault = fault
			b.take("node-1", booted(settings.SecureBootOff, 1), false)
			b.write(t.Context())
			if b.writes != 1 || len(b.waiting) != 0 || !b.resume.IsZero() {
				t.Errorf("%d writes, %d wait, until %s", b.writes, len(b.waiting), b.resume)
			}
		})
	}
}

// TestBootsBounded: what requesters choose is bounded: nodes that wait, texts, and labels.
func TestBootsBounded(t *testing.T) {
	b := newBooting(t)
	long := errors.New(strings.Repeat("\x1b", 5000))
	for n := range maxBoots + 100 {
		b.take(fmt.Sprint("node-", n), booted(settings.SecureBootUnknown, byte(n), long), n%2 == 0)
	}
	b.take("", booted("", 0), false)
	b.take("node-1", new(settings.Boot), false) // nothing was judged
	if len(b.waiting) != maxBoots {
		t.Errorf("%d wait", len(b.waiting))
	}
	if w := b.waiting[bootOf{"node-1", "ek:sha256:01"}].Wrong; len(w) != 1 || len(w[0]) != maxWrong || strings.Contains(w[0], "\x1b") {
		t.Errorf("%d bytes: %q", len(w[0]), w)
	}
	want := "# HELP nodeattest_boots_total Answers of TPMs whose boot was judged, admitted or refused, by tpm.secureBoot (on, off, unknown, or unasked) and by tpm.goodPCRs (good, other, or unasked).\n" +
		"# TYPE nodeattest_boots_total counter\n" + `nodeattest_boots_total{pcrs="other",secure_boot="unknown"} 4146` + "\n" +
		`nodeattest_boots_total{pcrs="unasked",secure_boot="unasked"} 1` + "\n" + `nodeattest_boots_total{pcrs="unasked",secure_boot="unknown"} 4146` + "\n"
	if err := testutil.CollectAndCompare(b.counted, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	b.write(t.Context())
	if len(b.waiting) != maxBoots-bootsAtATime {
		t.Errorf("%d wait after one round", len(b.waiting))
	}
}
