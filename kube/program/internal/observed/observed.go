// Package observed keeps the table of requests that an observing controller would have refused, in a
// ConfigMap with a line for each node. It shows an administrator which nodes would fail before he
// enforces attestation.
package observed

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	// ConfigMap is the name of the table, according to kube/deploy.
	ConfigMap = "node-attestation-observed"
	// maxNodes is how many nodes the table holds, the newest. A line has under 1.5 KiB.
	maxNodes = 500
	// interval is how often the table is written, if it has changed.
	interval = 15 * time.Second
)

// Refusal is a line of the table: the last request of a node that would have been refused.
type Refusal struct {
	// Node is the requested node name; "-" if the request has no valid one.
	Node      string    `json:"-"`
	Request   string    `json:"request"`
	Signer    string    `json:"signer"`
	Requester string    `json:"requester"`
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Last      time.Time `json:"last"`
}

// Table collects refusals. It is a manager.Runnable of the replica that decides.
type Table struct {
	reader client.Reader
	writer client.Writer
	name   client.ObjectKey
	now    func() time.Time

	mu      sync.Mutex
	changed map[string]*Refusal // since the last write, by node; nil: the node has attested
}

// New returns a table in the ConfigMap of a namespace.
func New(reader client.Reader, writer client.Writer, namespace string, now func() time.Time) *Table {
	return &Table{reader: reader, writer: writer, name: client.ObjectKey{Namespace: namespace, Name: ConfigMap}, now: now, changed: map[string]*Refusal{}}
}

// Observe takes a decision about a request into the table (controller.Config.Observe).
func (t *Table) Observe(request *csr.Request, nodeName string, d csr.Decision) {
	if len(validation.IsDNS1123Subdomain(nodeName)) != 0 {
		nodeName = "-"
	}
	line := &Refusal{
		Request: refusal.Text(request.Metadata.Name), Signer: refusal.Text(request.Spec.SignerName), Requester: refusal.Text(request.User.Username),
		Reason: refusal.Text(d.Reason), Message: refusal.Text(d.Message), Last: t.now().UTC().Truncate(time.Second),
	}
	if d.Verdict == csr.VerdictApprove {
		line = nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.changed[nodeName]; known || len(t.changed) < maxNodes {
		t.changed[nodeName] = line
	}
}

// Start writes the table until ctx ends.
func (t *Table) Start(ctx context.Context) error { //goroutine: the API server's client alone
	wait.UntilWithContext(ctx, func(ctx context.Context) { //goroutine: the API server's client alone
		if err := t.Write(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "the table of observed refusals was not written and will be retried")
		}
	}, interval)
	return nil
}

// Write writes the changes since the last write.
func (t *Table) Write(ctx context.Context) error {
	t.mu.Lock()
	changed := t.changed
	t.changed = map[string]*Refusal{}
	t.mu.Unlock()
	if len(changed) == 0 {
		return nil
	}
	err := t.write(ctx, changed)
	if err == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for node, line := range changed { // to be written next time
		if _, newer := t.changed[node]; !newer && len(t.changed) < maxNodes {
			t.changed[node] = line
		}
	}
	return fmt.Errorf("observed: ConfigMap %s: %w", t.name, err)
}

func (t *Table) write(ctx context.Context, changed map[string]*Refusal) error {
	var object corev1.ConfigMap
	if err := t.reader.Get(ctx, t.name, &object); err != nil {
		return err
	}
	if object.Data == nil {
		object.Data = map[string]string{}
	}
	for node, line := range changed {
		delete(object.Data, node)
		if line == nil {
			continue
		}
		var text strings.Builder
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false) // which would make it six times as long
		if err := encoder.Encode(line); err != nil {
			return err
		}
		object.Data[node] = text.String()
	}
	all := Parse(object.Data)
	for _, old := range all[min(len(all), maxNodes):] {
		delete(object.Data, old.Node)
	}
	return t.writer.Update(ctx, &object)
}

// Parse reads a table, the newest line first. Of a line that cannot be read, it has only the node.
func Parse(data map[string]string) []Refusal {
	all := make([]Refusal, 0, len(data))
	for node, text := range data {
		var line Refusal
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			line = Refusal{}
		}
		line.Node = node
		all = append(all, line)
	}
	slices.SortFunc(all, func(a, b Refusal) int { return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Node, b.Node)) })
	return all
}
