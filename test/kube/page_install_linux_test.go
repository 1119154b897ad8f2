package kube

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestInstall goes through docs/install.md with the files that scripts/release.sh makes: the control plane's part
// from one file, and a node from the package, on a machine with systemd. The node joins, and renews its
// certificate after the cluster enforces by the other file.
func TestInstall(t *testing.T) {
	t.Parallel()
	g := boxNeeds(t, 2)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	c := startCluster(t)
	c.namespaces(t)
	c.makeToken(t, attesttest.TokenID)
	c.startSigner(t)
	p, ports := readPage(t, "install.md", "sh"), controlplane.FreePorts(t, 4)
	plane, node, enforce := p.steps(t, "The control plane"), p.steps(t, "A node"), p.steps(t, "Enforce")
	if len(plane) != 2 || len(node) != 3 || len(enforce) != 1 {
		t.Fatalf("%d, %d and %d blocks: the test takes others", len(plane), len(node), len(enforce))
	}
	i := &installation{cluster: c, dir: overlay(t, c.nodeOn(t, device, "worker-1"), ports)}
	i.installFiles(t)
	i.shell = startShell(t, i.dir, "KUBECONFIG="+c.kubeconfig(t, "admin.kubeconfig", "admin", "system:masters"), "PATH="+controlplane.Binaries(t)+":"+os.Getenv("PATH"))
	image := "registry.example/nodeattest@sha256:" + strings.Repeat("0", 64)
	i.shell.run(t, strings.ReplaceAll(plane[0], "REGISTRY/nodeattest@DIGEST", image))
	configure, rollout := cutRollout(t, plane[1])
	i.shell.run(t, configure)
	observes := i.runDeployment(t, ports[1])
	i.rolledOut(t)
	i.shell.run(t, rollout)
	if container := i.deployment(t, controller.DefaultName).Spec.Template.Spec.Containers[0]; container.Image != image || !slices.Contains(container.Args, "--observe") {
		t.Errorf("the container is %s %q", container.Image, container.Args)
	}

	m := &member{box: startBox(t, "worker-1", g, strings.TrimPrefix(device.TCTI(), "swtpm:path=")), c: c, device: device}
	m.cut = m.connect(t, c.address())
	m.withDocs(t)
	m.put(t, "/var/cache/kubelet-authenticator-v0.0.0-dev-amd64.deb", 0o644, debOf(t, "v0.0.0-dev"))
	m.put(t, "/etc/kubernetes/pki/ca.crt", 0o644, controlplane.CertificatePEM(c.ca.Cert))
	m.run(t, "cd /var/cache\n"+strings.NewReplacer("VERSION", "v0.0.0-dev", "ARCH", "amd64").Replace(node[0]))
	m.installExamples(t, attesttest.TokenID+"."+tokenSecret) // by node[1]
	t.Log(m.run(t, node[2]))
	first := m.usable(t)
	if out := i.shell.run(t, "kubectl get attestednodes"); !regexp.MustCompile(`worker-1 +Bound +ek:sha256:[0-9a-f]+ `).MatchString(out) {
		t.Errorf("the record:\n%s", out)
	}

	observes.stop(t)
	configure, rollout = cutRollout(t, enforce[0])
	i.shell.run(t, configure)
	enforces := i.runDeployment(t, ports[1])
	i.rolledOut(t)
	i.shell.run(t, rollout)
	bootstrapper := c.client(t, c.bearer(t, attesttest.TokenID))
	eventually(t, func() error {
		if err := bootstrapper.Create(t.Context(), requestOf(c.plainFor(t, "plain-1", csr.SignerKubeAPIServerClientKubelet)), client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("a plain request: %v, want it refused", err)
		}
		return nil
	})
	m.run(t, "kubelet-authenticator rotate")
	m.eventually(t, func() error {
		if m.usable(t) == first {
			return errNotYet
		}
		return nil
	})
	enforces.stop(t)
}

// installFiles makes the files that observe and enforce, as scripts/release.sh does. They are what kubectl
// kustomize prints.
func (w *installation) installFiles(t *testing.T) {
	t.Helper()
	for file, args := range map[string][]string{"install-observe.yaml": nil, "install-enforce.yaml": {"-component", "enforce"}} {
		cmd := exec.Command("go", append(append([]string{"run", "-C", filepath.Join(root, "tools", "install"), "."}, args...), w.shipped(t))...)
		var said strings.Builder
		cmd.Stderr = &said
		text, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v: %s", cmd.Args, err, &said)
		}
		controlplane.Write(t, w.dir, file, text)
	}
	above, err := filepath.Rel(w.dir, w.shipped(t))
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(w.dir, "enforced")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	controlplane.Write(t, folder, "kustomization.yaml", []byte("resources: [../"+above+"]\ncomponents: [../"+above+"/enforce]\n"))
	want, err := exec.Command(filepath.Join(controlplane.Binaries(t), "kubectl"), "kustomize", folder).Output()
	if got := read(t, filepath.Join(w.dir, "install-enforce.yaml")); err != nil || string(got) != string(want) {
		t.Errorf("install-enforce.yaml is not what kubectl kustomize prints: %v", err)
	}
}

// cutRollout cuts the page's wait for the Deployment off, for which there is no node.
func cutRollout(t *testing.T, block string) (before, rollout string) {
	t.Helper()
	before, after, ok := strings.Cut(block, "kubectl -n nodeattest-system rollout")
	if !ok {
		t.Fatalf("no rollout in %s", block)
	}
	return before, "kubectl -n nodeattest-system rollout" + after
}
