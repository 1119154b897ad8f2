package kube

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// buildRack builds the folder rack in a clone's folder test/kube.
func buildRack(t *testing.T, clone string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rack")
	cmd := exec.Command("go", "build", "-o", path, "./rack")
	cmd.Dir = filepath.Join(clone, "test", "kube")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// root is the folder of this clone.
var root = filepath.Join("..", "..")

// git returns its output, or "" after an error.
func git(args ...string) string {
	cmd := exec.Command("git", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// commitBefore is the newest release before this commit. Until there is one, it is the commit
// before nodes could file again; "" where that history is not there.
func commitBefore() string {
	if tag := git("describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^"); tag != "" {
		return tag
	}
	added := strings.Fields(git("log", "--diff-filter=A", "--format=%H", "--", "kube/authenticator/version.go"))
	if len(added) == 0 {
		return ""
	}
	return git("rev-parse", "--verify", "--quiet", added[len(added)-1]+"^")
}

// cloneOf is the tree of a commit, with the folder rack of this one, in which testdata/versions.go
// has the names of that commit.
func cloneOf(t *testing.T, commit string) string {
	t.Helper()
	t.Logf("the programs from before are of %s", commit)
	clone := t.TempDir()
	cmd := exec.Command("sh", "-c", `git archive "$1" | tar -x -C "$2"`, "sh", commit, clone)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git archive: %v\n%s", err, out)
	}
	rack := filepath.Join(clone, "test", "kube", "rack")
	if err := os.RemoveAll(rack); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(rack, os.DirFS("rack")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(rack, "testdata", "versions.go"), filepath.Join(rack, "versions.go")); err != nil {
		t.Fatal(err)
	}
	return clone
}

// versions is a cluster whose programs are of two commits.
type versions struct {
	*cluster
	before, now string // the programs
	clone       string // the tree of before
	seen        map[types.UID]bool
}

// fit takes from a configuration, which began as a shipped file, the fields that this file did not
// have before.
func (v *versions) fit(t *testing.T, config map[string]any, file ...string) {
	t.Helper()
	read := func(clone string) (shipped map[string]any) {
		text, err := os.ReadFile(filepath.Join(append([]string{clone, "kube", "deploy"}, file...)...))
		if err == nil {
			err = yaml.UnmarshalStrict(text, &shipped)
		}
		if err != nil {
			t.Fatal(err)
		}
		return shipped
	}
	deleteNew(config, read(root), read(v.clone))
}

func deleteNew(config, now, before map[string]any) {
	for name := range now {
		section, ok := config[name].(map[string]any)
		if _, known := before[name]; !known {
			delete(config, name)
		} else if was, _ := before[name].(map[string]any); ok && was != nil {
			deleteNew(section, now[name].(map[string]any), was)
		}
	}
}

// controller runs one, with a file of before, that reads some versions of the rack's documents.
func (v *versions) controller(t *testing.T, name, program string, reads ...int) (stop func()) {
	t.Helper()
	r := v.startController(t, program, name, func(config map[string]any) {
		v.fit(t, config, "config.yaml")
		config["rack"] = map[string]any{"versions": reads}
		config["membership"].(map[string]any)["mode"] = "FirstUse"
	}, "controller", "--leader-elect=false")
	r.isReady(t)
	return func() {
		r.checkLog(t)
		if status := r.stop(t); status != 0 {
			t.Errorf("status %d; the end of the log:\n%s", status, r.tail())
		}
	}
}

// node is a machine in the rack that writes some versions, with a file of before. minimum is its
// minimumVersion; 0 leaves it out.
func (v *versions) node(t *testing.T, program, name string, minimum int, writes ...int) *nodeMachine {
	t.Helper()
	return v.install(t, program, name, nil, func(config map[string]any) {
		v.fit(t, config, "node", "kubelet-authenticator.yaml")
		config["evidence"] = map[string]any{"rack": map[string]any{"board": name, "versions": writes}}
		if minimum != 0 {
			config["minimumVersion"] = minimum
		}
	})
}

// filed counts the requests of a node, by the format of their evidence, since it was last asked.
func (v *versions) filed(t *testing.T, m *nodeMachine) map[string]int {
	t.Helper()
	var all certificatesv1.CertificateSigningRequestList
	if err := v.admin.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for i := range all.Items {
		o := &all.Items[i]
		if !strings.HasPrefix(o.Name, "nodeattest-"+m.name+"-") || v.seen[o.UID] {
			continue
		}
		b, err := csr.Parse(o.Spec.Request)
		if err != nil {
			t.Fatal(err)
		}
		v.seen[o.UID] = true
		found[b.Provider]++
	}
	return found
}

// renews has the node join, or renew, with a program, and file so many requests of each format.
func (v *versions) renews(t *testing.T, m *nodeMachine, program string, want map[string]int) {
	t.Helper()
	m.program = program
	if stdout, stderr, err := m.run(t.Context(), "rotate"); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	_, pair := m.credential(t)
	v.recorded(t, m.name, pair.Leaf)
	if got := v.filed(t, m); !maps.Equal(got, want) {
		t.Errorf("%s filed %v, want %v", m.name, got, want)
	}
}

// refuses has the node fail, with an error that has a text, after so many requests.
func (v *versions) refuses(t *testing.T, m *nodeMachine, text string, want map[string]int) {
	t.Helper()
	if _, stderr, err := m.run(t.Context(), "rotate"); err == nil || !strings.Contains(stderr, text) {
		t.Errorf("%s: got %v: %s, want %s", m.name, err, stderr, text)
	}
	if got := v.filed(t, m); !maps.Equal(got, want) {
		t.Errorf("%s filed %v, want %v", m.name, got, want)
	}
}

// kept is the state of a control plane that must not change with its program: the challenge
// keys, and who the node is.
func (v *versions) kept(t *testing.T, node string) (keys map[string][]byte, machine string, uid types.UID) {
	t.Helper()
	var secret corev1.Secret
	var object v1alpha1.AttestedNode
	if err := v.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "challenge-keys"}, &secret); err != nil {
		t.Fatal(err)
	}
	if err := v.admin.Get(t.Context(), client.ObjectKey{Name: node}, &object); err != nil {
		t.Fatal(err)
	}
	return secret.Data, object.Spec.Machine, object.UID
}

// TestVersions runs controller and nodes of a commit before, and of now, in all four combinations
// on the files of before: by a TPM, whose format has one version, and by a rack's documents, which
// have two.
func TestVersions(t *testing.T) {
	t.Parallel()
	v := &versions{cluster: startCluster(t), clone: root, now: buildRack(t, root), seen: map[types.UID]bool{}}
	v.before = v.now
	if commit := commitBefore(); commit != "" {
		v.clone = cloneOf(t, commit)
		v.before = buildRack(t, v.clone)
	} else {
		t.Run("programs from before", func(t *testing.T) {
			t.Skip("NOT CHECKED: there is no release, and no history, as in a shallow clone or an archive")
		})
	}
	v.prepare(t)
	v.apply(t, "clouds/rbac.yaml", "-nitro", "-rack")
	v.startSigner(t)
	ca := newCA(t, "")
	device := tpmsim.Swtpm(t, tpmsim.Options{CA: ca})
	v.writeRoots(t, v.nodeOn(t, device, "tpm-1"))
	controlplane.Write(t, v.dir, "inventory.yaml", []byte(`machines:
- {nodeName: tpm-1}
- {nodeName: rack-1, identity: 'rack:rack-1', kind: rack}
- {nodeName: rack-2, identity: 'rack:rack-2', kind: rack}
- {nodeName: rack-3, identity: 'rack:rack-3', kind: rack}
`))
	byTPM := v.install(t, v.before, "tpm-1", device, func(config map[string]any) { v.fit(t, config, "node", "kubelet-authenticator.yaml") })
	older, newer, strict := v.node(t, v.before, "rack-1", 0, 1), v.node(t, v.now, "rack-2", 1, 2, 1), v.node(t, v.now, "rack-3", 0, 2, 1)
	tpm, v1, v2, stepsDown := map[string]int{"tpm/v1": 2}, map[string]int{"rack/v1": 2}, map[string]int{"rack/v2": 2}, map[string]int{"rack/v2": 1, "rack/v1": 2}

	stop := v.controller(t, "before", v.before, 1)
	v.renews(t, byTPM, v.before, tpm)
	keys, machine, uid := v.kept(t, byTPM.name)
	v.renews(t, byTPM, v.now, tpm)
	v.renews(t, older, v.before, v1)
	v.renews(t, newer, v.now, stepsDown)
	v.refuses(t, strict, `want rack/v1`, map[string]int{"rack/v2": 1})
	stop()

	stop = v.controller(t, "now", v.now, 1, 2)
	v.renews(t, byTPM, v.before, tpm)
	v.renews(t, byTPM, v.now, tpm)
	v.renews(t, older, v.before, v1)
	v.renews(t, newer, v.now, v2)
	v.renews(t, strict, v.now, v2)
	stop()

	stop = v.controller(t, "withdrawn", v.now, 2)
	v.refuses(t, older, `want rack/v2`, map[string]int{"rack/v1": 1})
	if s := older.status(t); !s.Usable {
		t.Errorf("what it has is of no use: %+v", s)
	}
	v.renews(t, newer, v.now, v2)
	stop()

	v.testForged(t, newer, strict)

	stop = v.controller(t, "rolled-back", v.before, 1)
	v.renews(t, byTPM, v.now, tpm)
	v.renews(t, newer, v.now, stepsDown)
	v.renews(t, older, v.before, v1)
	stop()
	if k, m, u := v.kept(t, byTPM.name); !maps.EqualFunc(k, keys, slices.Equal) || m != machine || u != uid {
		t.Errorf("other keys, or another record of %s: %s, %s", byTPM.name, m, machine)
	}
}

// testForged has an account that may deny requests deny all of a node, as if for its version.
func (v *versions) testForged(t *testing.T, lax, strict *nodeMachine) {
	for _, row := range []struct {
		node  *nodeMachine
		forge string
		want  map[string]int
	}{
		{lax, "rack/v1", map[string]int{"rack/v2": 1, "rack/v1": 1}},
		{lax, "rack/v1", map[string]int{"rack/v2": 1, "rack/v1": 1}},
		{lax, "rack/v1", map[string]int{"rack/v2": 1, "rack/v1": 1}},
		{lax, "rack/v3", map[string]int{"rack/v2": 1}},
		{lax, "shelf/v1", map[string]int{"rack/v2": 1}},
		{lax, "rack/v1" + strings.Repeat(",r/v1", 202) + ",rack/v1", map[string]int{"rack/v2": 1}}, // 1 KiB and a byte
		{strict, "rack/v1", map[string]int{"rack/v2": 1}},
	} {
		stop := v.forger(t, row.node, row.forge)
		v.refuses(t, row.node, "denied with reason", row.want)
		stop()
	}
}

// forger denies each request of a node, with a list of versions, until it is stopped.
func (v *versions) forger(t *testing.T, m *nodeMachine, list string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	key, _ := new(csr.UnsupportedVersionError).Annotation()
	var forges sync.WaitGroup
	forges.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			var all certificatesv1.CertificateSigningRequestList
			if err := v.admin.List(ctx, &all); err != nil {
				continue
			}
			for i := range all.Items {
				o := &all.Items[i]
				if !strings.HasPrefix(o.Name, "nodeattest-"+m.name+"-") || len(o.Status.Conditions) != 0 {
					continue
				}
				metav1.SetMetaDataAnnotation(&o.ObjectMeta, key, list)
				o.Status.Conditions = condition(certificatesv1.CertificateDenied)
				o.Status.Conditions[0].Reason, o.Status.Conditions[0].Message = "ProviderVersion", "a third party's"
				if err := v.admin.SubResource("approval").Update(ctx, o); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		}
	})
	return func() {
		cancel()
		forges.Wait()
	}
}
