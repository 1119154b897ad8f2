package kubectl

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
)

// TestNodes: each record is a line, and a node without evidence is told from the others, with the
// end of its one certificate.
func TestNodes(t *testing.T) {
	store, end := objectstore.New(), &metav1.Time{Time: time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)}
	for name, spec := range map[string]v1alpha1.AttestedNodeSpec{
		"node-4": {Scope: "insecure document", Machine: "insecure:node-4", State: v1alpha1.NodeBound, LastEnd: end},
		"node-5": {Scope: "insecure document", Machine: "insecure:node-5", State: v1alpha1.NodeReserved, Deadline: end},
		"node-1": {Scope: "ek RSA-2048", Machine: "ek:sha256:00", State: v1alpha1.NodeBound, LastEnd: end},
		"node-2": {Scope: "gce document", Machine: "gce:p/1", State: v1alpha1.NodeResting, LastEnd: end},
		"node-3": {Scope: "ak", Machine: "ak:sha256:00", State: v1alpha1.NodeBound},
		"node-6": {Scope: "\x1b[2J", Machine: "a\nnode-9", State: v1alpha1.NodeBound},
	} {
		if err := store.Create(t.Context(), &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	p := &plugin{streams: streams{nil, &out, nil}, client: store}
	if err := p.nodes(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"NODE STATE EVIDENCE MACHINE CERTIFICATES END",
		"node-1 Bound tpm ek:sha256:00 2031-01-02T03:04:05Z",
		"node-2 Resting gce gce:p/1 2031-01-02T03:04:05Z",
		"node-3 Bound tpm ak:sha256:00",
		"node-4 Bound NONE insecure:node-4 2031-01-02T03:04:05Z, not renewed",
		"node-5 Reserved NONE insecure:node-5",
		`node-6 Bound unknown a\nnode-9`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", &out)
	}
}
