package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/program/internal/observed"
)

var update = flag.Bool("update", false, "write the golden outputs anew")

// listed is a cluster with a node of each status, at the time of operates.
func listed(t *testing.T, more ...client.Object) *operated {
	t.Helper()
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	end, past := &metav1.Time{Time: now.Add(time.Hour)}, &metav1.Time{Time: now.Add(-time.Hour)}
	certificate := func(residence string, ends *metav1.Time) v1alpha1.IssuedCertificate {
		return v1alpha1.IssuedCertificate{CredentialID: "X509SHA256=" + strings.Repeat("0a", 32), SignerName: "s", RequestUID: "r",
			Machine: "strange:1", KeyResidence: residence, SPKISHA256: strings.Repeat("0b", 32), NotBefore: &metav1.Time{Time: now.Add(-2 * time.Hour)}, NotAfter: *ends}
	}
	objects := append(more,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: observed.ConfigMap}, Data: map[string]string{
			"plain-1": `{"request":"csr-1","signer":"kubernetes.io/kube-apiserver-client-kubelet","requester":"system:node:plain-1","reason":"AttestationProvider","message":"no evidence","last":"2026-03-02T11:00:00Z"}`,
			"gone-1":  `{"request":"csr-2","signer":"kubernetes.io/kube-apiserver-client-kubelet","requester":"system:bootstrap:abcdef","reason":"AttestationProvider","message":"no evidence","last":"2026-03-01T12:00:00Z"}`,
			"-":       `{"request":"csr-3","signer":"kubernetes.io/kube-apiserver-client-kubelet","requester":"eve","reason":"SubjectCommonName","message":"no node","last":"2026-03-02T11:59:00Z"}`}},
	)
	for name, spec := range map[string]v1alpha1.AttestedNodeSpec{
		"attested-1": {Scope: "strange document", Machine: "strange:1", MachineUID: "uid-1", ProviderID: "sim://a/1", State: v1alpha1.NodeBound, LastEnd: end,
			Certificates: []v1alpha1.IssuedCertificate{certificate("Software", past), certificate("TPM", end)}},
		"attested-2": {Scope: "ek RSA-2048", Machine: "strange:1", State: v1alpha1.NodeBound, LastEnd: end,
			Certificates: []v1alpha1.IssuedCertificate{certificate("TPM", end), certificate("Software", end)}},
		"attested-3": {Scope: "ak", Machine: "strange:1", State: v1alpha1.NodeBound, LastEnd: end,
			Certificates: []v1alpha1.IssuedCertificate{certificate("TPM", end), certificate("", end)}},
		"attested-4": {Scope: "ak", Machine: "ak:sha256:00", State: v1alpha1.NodeBound},
		"expired-1":  {Scope: "gce document", Machine: "gce:p/1", State: v1alpha1.NodeBound, LastEnd: past},
		"without-1":  {Scope: "insecure document", Machine: "insecure:without-1", State: v1alpha1.NodeBound, LastEnd: end},
		"without-2":  {Scope: "insecure document", Machine: "insecure:without-2", State: v1alpha1.NodeReserved, Deadline: end},
		"resting-1":  {Scope: "gce document", Machine: "gce:p/2", State: v1alpha1.NodeResting, LastEnd: end},
		"resting-2":  {Scope: "gce document", Machine: "gce:p/3", State: v1alpha1.NodeResting, LastEnd: past},
		"reserved-1": {Scope: "ak", Machine: "ak:sha256:01", State: v1alpha1.NodeReserved, Deadline: end},
		"plain-2":    {Scope: "ak", Machine: "ak:sha256:02", State: v1alpha1.NodeReserved, Deadline: past},
		"plain-3":    {Scope: "ak", Machine: "ak:sha256:03", State: v1alpha1.NodeResting, LastEnd: past},
		"unknown-1":  {Scope: "\x1b[2J", Machine: "a\nnode-9\u202e\U000e0001", State: v1alpha1.NodeBound},
		"unknown-3":  {Scope: "none", Machine: "ak:sha256:05", State: v1alpha1.NodeBound},
		"unknown-2":  {Scope: "ak", Machine: "ak:sha256:04", State: "Later"},
	} {
		objects = append(objects, &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	}
	for _, name := range []string{"attested-1", "attested-2", "expired-1", "plain-1", "plain-2", "plain-3", "reserved-1", "unknown-3", "without-1"} {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return operates(t, "machines:\n- {nodeName: attested-1, uid: uid-1}\n- {nodeName: plain-1}\n- {nodeName: new-1}\n", objects...)
}

// TestLists: what each list prints in each form. The JSON is one document, of which scripts take members.
func TestLists(t *testing.T) {
	first, second := refusedHello(t, "csr-1", "node-1", honest), refusedHello(t, "csr-2", "attested-1", thief)
	first.CreationTimestamp = metav1.NewTime(time.Date(2026, 3, 2, 11, 59, 0, 0, time.UTC))
	second.CreationTimestamp = metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	for command, run := range map[string]func(*plugin, context.Context, string) error{"nodes": (*plugin).nodes, "observed": (*plugin).observed, "pending": (*plugin).pending} {
		for _, output := range []string{"", outputWide, outputName, outputJSON} {
			t.Run(strings.TrimSpace(command+" "+output), func(t *testing.T) {
				o := listed(t, first, second)
				o.output = output
				if err := run(o.plugin, t.Context(), ""); err != nil {
					t.Fatal(err)
				}
				isGolden(t, strings.TrimSuffix("lists/"+command+"."+output, "."), o.out.String())
				if output != outputJSON {
					return
				}
				var document struct {
					APIVersion, Kind string
					Items            []map[string]any
				}
				if err := json.Unmarshal(o.out.Bytes(), &document); err != nil || document.APIVersion != outputVersion || document.Kind == "" || len(document.Items) == 0 {
					t.Errorf("%v: %+v", err, document)
				}
				for _, item := range document.Items {
					if item["node"] == "unknown-1" && item["machine"] != "a\nnode-9\u202e\U000e0001" {
						t.Errorf("got %q", item["machine"])
					}
				}
			})
		}
	}
}

func isGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the output differs from %s (run with -update if that is meant):\n%s", file, got)
	}
}

// TestListsOfNothing: a list without items is a document, too.
func TestListsOfNothing(t *testing.T) {
	o := operates(t, "")
	o.output = outputJSON
	if err := o.pending(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	var document struct{ Items []any }
	if err := json.Unmarshal(o.out.Bytes(), &document); err != nil || document.Items == nil {
		t.Errorf("%v: %s", err, &o.out)
	}
}

// TestNodesWithoutInventory: where the inventory cannot be read, nodes says that some may be missing.
func TestNodesWithoutInventory(t *testing.T) {
	o := operates(t, "", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "plain-1"}})
	if err := o.nodes(t.Context(), ""); err != nil || !strings.Contains(o.out.String(), "plain-1  Plain") || !strings.Contains(o.err.String(), "never seen are not listed: the inventory cannot be read") {
		t.Errorf("%v\n%s%s", err, &o.out, &o.err)
	}
}

// TestExitCode: observed --exit-code is 1 for each kind of node that enforcing would lose, and 0 if all
// lines are about nodes that are gone.
func TestExitCode(t *testing.T) {
	node := func(name string) client.Object { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	record := func(name, scope string) client.Object {
		return &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.AttestedNodeSpec{
			Scope: scope, Machine: "strange:1", State: v1alpha1.NodeBound, LastEnd: &metav1.Time{Time: time.Date(2026, 3, 2, 13, 0, 0, 0, time.UTC)}}}
	}
	for name, row := range map[string]struct {
		table   map[string]string
		objects []client.Object
		status  int
	}{
		"a record that cannot be read":          {objects: []client.Object{node("a"), record("a", "none")}, status: 1},
		"all attested":                          {objects: []client.Object{node("a"), record("a", "ak")}},
		"a plain Node":                          {objects: []client.Object{node("a"), record("a", "ak"), node("b")}, status: 1},
		"a node without evidence":               {objects: []client.Object{record("a", "insecure document")}, status: 1},
		"requests of a node that is gone":       {table: map[string]string{"b": `{"request":"x"}`, "-": `{"request":"y"}`}, objects: []client.Object{node("a"), record("a", "ak")}},
		"a refused request of an attested node": {table: map[string]string{"a": `{"request":"x"}`}, objects: []client.Object{record("a", "ak")}, status: 1},
		"a line that cannot be read":            {table: map[string]string{"a": "{"}, objects: []client.Object{node("a"), record("a", "ak")}, status: 1},
	} {
		t.Run(name, func(t *testing.T) {
			o := operates(t, "", append(row.objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: observed.ConfigMap}, Data: row.table})...)
			if err := o.observed(t.Context(), ""); err != nil {
				t.Errorf("without --exit-code: %v", err)
			}
			o.exitCode = true
			err := o.observed(t.Context(), "")
			if status, _ := errors.AsType[exitStatus](err); int(status) != row.status || (err != nil) != (row.status != 0) {
				t.Errorf("got %v, want status %d\n%s", err, row.status, &o.out)
			}
		})
	}
}

// large is the lists of a cluster with as many Nodes, each recorded with 16 certificates.
type large struct {
	client.Client
	t      *testing.T
	nodes  int
	lists  int
	before uint64 // bytes of the heap
	most   uint64
}

func (l *large) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	begin := 0
	if o.Continue != "" {
		if _, err := fmt.Sscan(o.Continue, &begin); err != nil {
			return err
		}
	}
	end := min(begin+int(o.Limit), l.nodes)
	if o.Limit == 0 {
		end = l.nodes
	}
	name := func(i int) metav1.ObjectMeta { return metav1.ObjectMeta{Name: fmt.Sprintf("node-%05d", i)} }
	switch into := into.(type) {
	case *metav1.PartialObjectMetadataList:
		if len(into.Items) != 0 {
			l.t.Error("a page is listed into another one")
		}
		for i := begin; i < end; i++ {
			meta := name(i)
			meta.Annotations = map[string]string{"a": strings.Repeat("x", 4096)}
			into.Items = append(into.Items, metav1.PartialObjectMetadata{ObjectMeta: meta})
		}
	case *v1alpha1.AttestedNodeList:
		if len(into.Items) != 0 {
			l.t.Error("a page is listed into another one")
		}
		for i := begin; i < end; i++ {
			n := v1alpha1.AttestedNode{ObjectMeta: name(i), Spec: v1alpha1.AttestedNodeSpec{Scope: "ak", Machine: fmt.Sprintf("ak:sha256:%064d", i), State: v1alpha1.NodeBound}}
			for range 16 {
				n.Spec.Certificates = append(n.Spec.Certificates, v1alpha1.IssuedCertificate{CredentialID: strings.Repeat("y", 512)})
			}
			into.Items = append(into.Items, n)
		}
	}
	if end < l.nodes {
		into.SetContinue(fmt.Sprint(end))
	}
	var now runtime.MemStats
	if l.lists++; l.lists > 2*l.nodes/pageSize { // or it would never end
		return errors.New("more lists than pages")
	} else if l.lists%5 == 0 {
		runtime.GC()
		runtime.ReadMemStats(&now)
		l.most = max(l.most, now.HeapAlloc-min(now.HeapAlloc, l.before))
	}
	return nil
}

// TestLargeCluster lists 10,000 nodes by pages, in memory that is far less than their objects take.
func TestLargeCluster(t *testing.T) {
	const nodes, most = 10_000, 32 << 20
	o := operates(t, "")
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	l := &large{Client: o.client, t: t, nodes: nodes, before: before.HeapAlloc}
	o.client, o.output = l, outputName
	if err := o.nodes(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(o.out.String(), "\n"); got != nodes || l.lists != 2*nodes/pageSize {
		t.Errorf("%d lines by %d lists", got, l.lists)
	}
	t.Logf("%d nodes in %d KiB", nodes, l.most>>10)
	if l.most == 0 || l.most > most {
		t.Errorf("%d bytes, want at most %d", l.most, most)
	}
}

// joining has a node join after the first list.
type joining struct {
	client.Client
	join func()
}

func (j *joining) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	err := j.Client.List(ctx, into, options...)
	if j.join != nil {
		j.join()
		j.join = nil
	}
	return err
}

// TestJoinsMeanwhile: a node that joins while the lists are read is never shown as plain.
func TestJoinsMeanwhile(t *testing.T) {
	o := operates(t, "")
	store := o.client
	o.client = &joining{store, func() {
		for _, object := range []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
			&v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.AttestedNodeSpec{Scope: "ak", Machine: "ak:sha256:00", State: v1alpha1.NodeBound}}} {
			if err := store.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
	}}
	all, err := o.all(t.Context())
	if err != nil || all["a"] == nil || all["a"].Status != statusAttested {
		t.Errorf("%v: %+v", err, all["a"])
	}
}
