package kube

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// listedMachines is how many machines the large inventories have, and listedPerPart how many a ConfigMap of them.
const listedMachines, listedPerPart = 50_000, 5_000

// machinesText is the text of n machines of an inventory, from the one of number first on.
func machinesText(first, n int) []byte {
	b := bytes.NewBufferString("machines:\n")
	for i := first; i < first+n; i++ {
		fmt.Fprintf(b, "- nodeName: machine-%05d.example.com\n  identity: ek:sha256:%064x\n  providerID: metal://rack-%d/slot\n", i, i, i)
	}
	return b.Bytes()
}

// configMapFolder is a folder as the kubelet makes it of ConfigMaps that are projected next to each other.
type configMapFolder struct {
	path    string
	version int
	files   map[string][]byte
}

// put changes files. All are replaced at once, by a link, as pkg/volume/util/atomic_writer.go of Kubernetes does.
func (f *configMapFolder) put(t *testing.T, files map[string][]byte) {
	t.Helper()
	maps.Copy(f.files, files)
	f.version++
	former, now, data := fmt.Sprintf("..2026_%d", f.version-1), fmt.Sprintf("..2026_%d", f.version), filepath.Join(f.path, "..data")
	steps := []error{os.MkdirAll(filepath.Join(f.path, now), 0o700)}
	for name, text := range f.files {
		steps = append(steps, os.WriteFile(filepath.Join(f.path, now, name), text, 0o600))
		if _, err := os.Lstat(filepath.Join(f.path, name)); err != nil {
			steps = append(steps, os.Symlink(filepath.Join("..data", name), filepath.Join(f.path, name)))
		}
	}
	steps = append(steps, os.Symlink(now, data+"_tmp"), os.Rename(data+"_tmp", data), os.RemoveAll(filepath.Join(f.path, former)))
	for _, err := range steps {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestInventories runs the shipped controller with 50,000 machines in ten ConfigMaps. Nodes of the first and the last
// renew while all are replaced again and again, and while one cannot be read. A node that no part has waits as long as
// one cannot be read, also for a controller that starts meanwhile.
func TestInventories(t *testing.T) {
	t.Parallel()
	program := buildProgram(t, "node-attestation-controller")
	c := startJoinable(t)
	ca := newCA(t, "")
	first, last, stranger := c.nodeOn(t, tpmsim.Swtpm(t, tpmsim.Options{CA: ca}), "first"), c.nodeOn(t, tpmsim.Swtpm(t, tpmsim.Options{CA: ca}), "last"),
		c.nodeOn(t, tpmsim.Swtpm(t, tpmsim.Options{CA: ca}), "stranger")
	c.writeRoots(t, first)
	folder := &configMapFolder{path: filepath.Join(c.dir, "inventory"), files: map[string][]byte{}}
	parts := map[string][]byte{}
	for n := range listedMachines / listedPerPart {
		parts[fmt.Sprintf("inventory-%d.yaml", n+1)] = machinesText(n*listedPerPart, listedPerPart)
	}
	const firstPart, lastPart = "inventory-1.yaml", "inventory-10.yaml"
	parts[firstPart] = append(parts[firstPart], "- nodeName: first\n"...)
	parts[lastPart] = append(parts[lastPart], "- nodeName: last\n"...)
	folder.put(t, parts)
	start := func(name string) *replica {
		began := time.Now()
		r := c.startController(t, program, name, func(config map[string]any) {
			config["membership"].(map[string]any)["mode"] = "FirstUse"
			config["inventory"].(map[string]any)["file"] = folder.path
			config["controller"].(map[string]any)["requesterRate"], config["controller"].(map[string]any)["requesterBurst"] = 1000, 1000
		})
		r.isReady(t)
		t.Logf("%s is ready in %s with %.0f machines; memory %.0f MB", name, time.Since(began).Round(time.Millisecond), counted(t, r, "nodeattest_inventory_machines")[""], resident(t, []*replica{r})[0])
		return r
	}
	r := start("controller")
	bootstrapper := c.client(t, c.bearer(t, attesttest.TokenID))
	kubelets := map[*attesttest.Node]client.Client{}
	for _, node := range []*attesttest.Node{last, first} {
		c.joins(t, bootstrapper, node)
		kubelets[node] = c.client(t, c.user(t, csr.NodeUserPrefix+node.Name, csr.NodesGroup))
	}
	renews := func() {
		t.Helper()
		for _, node := range []*attesttest.Node{first, last} {
			c.gets(t, kubelets[node], node)
		}
	}
	t.Run("all parts are replaced", func(t *testing.T) { replaced(t, r, folder, parts, renews) })
	for _, object := range c.requests(t) {
		if object.Status.Conditions[0].Type != certificatesv1.CertificateApproved && object.Status.Conditions[0].Reason != attest.ReasonChallenge {
			t.Errorf("request %s: %+v", object.Name, object.Status.Conditions)
		}
	}

	folder.put(t, map[string][]byte{firstPart: bytes.Replace(parts[firstPart], []byte("identity: "), []byte("identity: x"), 1)})
	brokenParts(t, r, 1)
	renews()
	waits := c.undecided(t, bootstrapper, stranger)
	if status, text := body(t, r.health+"/readyz"); status != http.StatusOK {
		t.Errorf("not ready: %s", text)
	}
	if log := r.text(t); !strings.Contains(log, "part inventory-1.yaml of the inventory cannot be read: machines[0]: ") {
		t.Errorf("the part is not named:\n%s", r.tail())
	}
	if status := r.stop(t); status != 0 {
		t.Errorf("status %d", status)
	}
	r = start("after a restart")
	brokenParts(t, r, 1)
	c.gets(t, kubelets[last], last)
	known := c.undecided(t, kubelets[first], first)
	folder.put(t, map[string][]byte{firstPart: parts[firstPart]})
	brokenParts(t, r, 0)
	denied(t, bootstrapper, waits, "MachineUnknown")
	if object := decided(t, kubelets[first], known); object.Status.Conditions[0].Reason == "MachineUnknown" {
		t.Errorf("a node of the part: %+v", object.Status.Conditions)
	}
	renews()
	r.checkLog(t)
	t.Logf("memory at the end: %.0f MB", resident(t, []*replica{r})[0])
}

// replaced has nodes renew while all parts of an inventory are replaced, twice.
func replaced(t *testing.T, r *replica, folder *configMapFolder, parts map[string][]byte, renews func()) {
	before := strings.Count(r.text(t), "inventory read")
	most, renewals := 0.0, 0
	for version, deadline := 1, time.Now().Add(patience); ; renewals += 2 {
		if version <= 2 && strings.Count(r.text(t), "inventory read")-before == version-1 {
			changed := map[string][]byte{}
			for name, text := range parts {
				changed[name] = append(slices.Clone(text), fmt.Sprintf("# version %d\n", version)...)
			}
			folder.put(t, changed)
			version++
		}
		renews()
		most = max(most, resident(t, []*replica{r})[0])
		if strings.Count(r.text(t), "inventory read")-before == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the inventory was not read again:\n%s", r.tail())
		}
	}
	t.Logf("%d renewals while %d machines were read twice; memory at most %.0f MB", renewals+2, listedMachines, most)
}

// brokenParts waits until the controller has read its inventory and could not read n parts.
func brokenParts(t *testing.T, r *replica, n float64) {
	t.Helper()
	eventually(t, func() error {
		states := counted(t, r, "nodeattest_inventory_parts")
		if states[`state="broken"`] != n || states[`state="read"`] != listedMachines/listedPerPart-n {
			return fmt.Errorf("parts %v, want %v broken", states, n)
		}
		return nil
	})
}

// undecided has a node file its first message, which no controller decides for two seconds.
func (c *cluster) undecided(t *testing.T, as client.Client, node *attesttest.Node) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	hello, err := node.Attester.Hello(t.Context(), node.Subject)
	if err != nil {
		t.Fatal(err)
	}
	object := file(t, as, hello)
	time.Sleep(2 * time.Second)
	if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil || len(object.Status.Conditions) != 0 {
		t.Errorf("the request of %s is decided, %+v, %v", node.Name, object.Status.Conditions, err)
	}
	return object
}

// testParts divides an inventory among ConfigMaps, as the page does, and applies it with a command of the page.
func (w *installation) testParts(t *testing.T, apply string) {
	t.Helper()
	const heading = "Inventories in several ConfigMaps"
	controlplane.Write(t, w.folder, "inventory.yaml", machinesText(0, listedMachines))
	w.shell.run(t, w.page.take(t, heading, "sh"))
	var added struct{ Components []string }
	if err := yaml.UnmarshalStrict([]byte(w.page.take(t, heading, "yaml")), &added); err != nil {
		t.Fatal(err)
	}
	text := string(controlplane.Read(t, filepath.Join(w.folder, "kustomization.yaml")))
	shipped := regexp.MustCompile(`(?m)^resources: \[(.*)\]$`).FindStringSubmatch(text)[1]
	components := strings.ReplaceAll(strings.Join(added.Components, ", "), "../nodeattest/kube/deploy", shipped)
	controlplane.Write(t, w.folder, "kustomization.yaml", []byte(strings.NewReplacer("components: []", "components: ["+components+"]", "config.yaml, inventory.yaml,", "config.yaml,").Replace(text)))
	config := controlplane.Read(t, filepath.Join(w.folder, "config.yaml"))
	controlplane.Write(t, w.folder, "config.yaml", regexp.MustCompile(`(?m)^  file: .*$`).ReplaceAll(config, []byte("  file: /etc/nodeattest-inventory")))
	w.shell.run(t, apply)

	volumes := w.deployment(t, "node-attestation-controller").Spec.Template.Spec.Volumes
	mounted := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == "inventory" && v.Projected != nil })
	if mounted < 0 || len(volumes) != 2 {
		t.Fatalf("volumes %+v", volumes)
	}
	sources := volumes[mounted].Projected.Sources
	found := 0
	for n, source := range sources {
		var m corev1.ConfigMap
		name, item := fmt.Sprintf("node-attestation-inventory-%d", n+1), corev1.KeyToPath{Key: "inventory.yaml", Path: fmt.Sprintf("inventory-%d.yaml", n+1)}
		if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &m); err != nil {
			t.Error(err)
		}
		found += strings.Count(m.Data["inventory.yaml"], "- nodeName: ")
		if !slices.ContainsFunc(sources, func(s corev1.VolumeProjection) bool {
			return s.ConfigMap != nil && s.ConfigMap.Name == name && slices.Equal(s.ConfigMap.Items, []corev1.KeyToPath{item}) && s.ConfigMap.Optional == nil
		}) {
			t.Errorf("no source of %s: %+v", name, source.ConfigMap)
		}
	}
	if found != listedMachines || len(sources) != listedMachines/listedPerPart {
		t.Errorf("%d machines in %d ConfigMaps", found, len(sources))
	}
	began := time.Now()
	listed := strings.Count(w.shell.run(t, "kubectl nodeattest nodes -o name | grep machine-"), "\n")
	if t.Logf("kubectl nodeattest nodes: %d lines in %s", listed, time.Since(began).Round(time.Millisecond)); listed < listedMachines {
		t.Errorf("%d machines are listed", listed)
	}
}
