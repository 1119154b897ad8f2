package observed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodeattest/nodeattest/csr"
)

const namespace = "n"

// world is a cluster with an empty table.
type world struct {
	*Table
	api    client.Client
	now    time.Time
	broken error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	empty := new(corev1.ConfigMap)
	empty.Namespace, empty.Name = namespace, ConfigMap
	w.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(empty).WithInterceptorFuncs(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			if w.broken != nil {
				return w.broken
			}
			return c.Update(ctx, o, options...)
		},
	}).Build()
	w.Table = New(w.api, w.api, namespace, func() time.Time { return w.now })
	return w
}

// lines are the table as it is stored, and how long that is.
func (w *world) lines(t *testing.T) (lines []Refusal, size int) {
	t.Helper()
	var o corev1.ConfigMap
	if err := w.api.Get(t.Context(), w.name, &o); err != nil {
		t.Fatal(err)
	}
	for node, text := range o.Data {
		size += len(node) + len(text)
	}
	return Parse(o.Data), size
}

func request(name string) *csr.Request {
	return &csr.Request{Metadata: csr.Metadata{Name: name}, Spec: csr.Spec{SignerName: csr.SignerKubeAPIServerClientKubelet}, User: csr.User{Username: "stranger"}}
}

func denied(reason string) csr.Decision {
	return csr.Decision{Verdict: csr.VerdictDeny, Reason: reason, Message: "no evidence"}
}

// TestTable writes the last refusal of each node, until it attests.
func TestTable(t *testing.T) {
	w := newWorld(t)
	w.Observe(request("r-1"), "node-1", denied("A"))
	w.Observe(request("r-2"), "node-1", denied("B"))
	w.Observe(request("r-3"), "Not A Name", denied("C"))
	if err := w.Write(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines, _ := w.lines(t)
	want := []Refusal{{"-", "r-3", csr.SignerKubeAPIServerClientKubelet, "stranger", "C", "no evidence", w.now}, {"node-1", "r-2", csr.SignerKubeAPIServerClientKubelet, "stranger", "B", "no evidence", w.now}}
	if fmt.Sprint(lines) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", lines, want)
	}
	w.Observe(request("r-4"), "node-1", csr.Decision{Verdict: csr.VerdictApprove})
	w.broken = errors.New("no answer")
	if err := w.Write(t.Context()); !errors.Is(err, w.broken) {
		t.Errorf("got %v, want %v", err, w.broken)
	}
	w.broken = nil
	if err := w.Write(t.Context()); err != nil { // the unwritten changes are kept
		t.Fatal(err)
	}
	if lines, _ := w.lines(t); len(lines) != 1 || lines[0].Node != "-" {
		t.Errorf("after it has attested: %v", lines)
	}
}

// TestTableIsBounded has a stranger make up as many names as he likes, with the longest texts:
// the table fits into a ConfigMap, and has the newest.
func TestTableIsBounded(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("<\"", 4<<10)
	for round := range 3 {
		w.now = w.now.Add(time.Minute)
		for i := range 2 * maxNodes {
			r := request(long)
			r.User.Username = long
			w.Observe(r, fmt.Sprintf("node-%d-%d", round, i), csr.Decision{Verdict: csr.VerdictDeny, Reason: long, Message: long})
		}
		if err := w.Write(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	lines, size := w.lines(t)
	t.Logf("%d nodes in %d bytes", len(lines), size)
	if len(lines) != maxNodes || !strings.HasPrefix(lines[maxNodes-1].Node, "node-2-") || size > 1<<20 {
		t.Errorf("%d nodes in %d bytes, the oldest %s", len(lines), size, lines[maxNodes-1].Node)
	}
}

// TestStart writes at once, and ends with its context.
func TestStart(t *testing.T) {
	w := newWorld(t)
	w.Observe(request("r-1"), "node-1", denied("A"))
	ctx, cancel := context.WithCancel(t.Context())
	w.broken = nil
	done := make(chan error, 1)
	go func() { done <- w.Start(ctx) }()
	for {
		if lines, _ := w.lines(t); len(lines) == 1 {
			break
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestParse reads an edited, invalid line as an empty one.
func TestParse(t *testing.T) {
	lines := Parse(map[string]string{"node-1": "{", "node-2": "null"})
	if len(lines) != 2 || lines[0].Node != "node-1" || lines[1].Node != "node-2" || lines[0].Message != "" {
		t.Errorf("got %v", lines)
	}
}
