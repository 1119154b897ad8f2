package kube

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/kube/signer"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestDeploy applies everything that is shipped with one command, strictly validated, and
// runs the Deployments, for which there is no node, as processes: out of the image, with
// their own arguments, environment, configuration, CA and service accounts' tokens.
func TestDeploy(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	ca := newCA(t, "")
	node := c.nodeOn(t, tpmsim.Swtpm(t, tpmsim.Options{CA: ca}), "node-1")
	ports := controlplane.FreePorts(t, 4)
	folder := overlay(t, node, ports, "signer", "clouds", "enforce")
	k := &operator{kubectl: filepath.Join(controlplane.Binaries(t), "kubectl"), dir: t.TempDir(), kubeconfig: c.kubeconfig(t, "admin.kubeconfig", "admin", "system:masters")}
	apply := func() string {
		t.Helper()
		out, err := k.plain(t.Context(), "apply", "-k", folder, "--validate=strict")
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	t.Log("\n" + apply())
	for line := range strings.Lines(apply()) { // again
		if !strings.Contains(line, "unchanged") && !strings.Contains(line, "configured") {
			t.Errorf("applied again: %s", line)
		}
	}
	for _, name := range []string{controller.DefaultName, signer.DefaultName} {
		t.Run(name, func(t *testing.T) { c.shipped(t, name) })
	}
	if err := c.admin.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: signer.DefaultName + "-ca"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": controlplane.CertificatePEM(c.ca.Cert), "tls.key": controlplane.PrivatePEM(t, c.ca.Key)}}); err != nil {
		t.Fatal(err)
	}

	image := buildImage(t)
	var running []*process
	var root string
	for i, name := range []string{controller.DefaultName, signer.DefaultName} {
		root = rootOf(t, image)
		p := c.startDeployment(t, name, root)
		p.ready(t, func() error { return controlplane.Healthy("http://127.0.0.1:" + ports[2*i+1] + "/readyz") })
		running = append(running, p)
	}
	c.makeToken(t, attesttest.TokenID)
	c.startSigner(t)
	for _, node.Subject.SignerName = range []string{csr.SignerKubeAPIServerClientKubelet, csr.SignerClientTPM} {
		c.joins(t, c.client(t, c.bearer(t, attesttest.TokenID)), node)
	}
	t.Run("a new configuration", func(t *testing.T) {
		testChanged(t, running[1], filepath.Join(root, "etc", "nodeattest", "config.yaml"))
	})
	if status := running[0].stop(t); status != 0 {
		t.Errorf("it ended with status %d:\n%s", status, running[0].tail())
	}
	for _, p := range running {
		if text := p.text(t); strings.Contains(text, "forbidden") || strings.Contains(text, "PRIVATE") || strings.Contains(text, tokenSecret) {
			t.Errorf("logged:\n%s", text)
		}
	}
}

// testChanged changes the configuration of a program: it stays with one that is broken, and
// ends for a good one.
func testChanged(t *testing.T, p *process, path string) {
	text := controlplane.Read(t, path)
	says := func(what string) {
		t.Helper()
		eventually(t, func() error {
			if !strings.Contains(p.text(t), what) {
				return fmt.Errorf("it does not say that %s:\n%s", what, p.tail())
			}
			return nil
		})
	}
	change := func(with string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(string(text)+with), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	change("foo: 1\n")
	says("cannot read the configuration; the last version stays in use")
	select {
	case <-p.done:
		t.Fatal("it has ended")
	default:
	}
	change("# seen\n")
	says("configuration changed: the program exits")
	<-p.done
	if status := p.cmd.ProcessState.ExitCode(); status != 0 {
		t.Errorf("it ended with status %d:\n%s", status, p.tail())
	}
}

// overlay writes a kustomization above the shipped one, as the page has it, for one node and
// with some components.
func overlay(t *testing.T, node *attesttest.Node, ports []string, components ...string) string {
	t.Helper()
	folder := t.TempDir()
	shipped, err := filepath.Abs(filepath.Join("..", "..", "kube", "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	if shipped, err = filepath.Rel(folder, shipped); err != nil {
		t.Fatal(err)
	}
	patches := ""
	if slices.Contains(components, "insecure") { // as its comment says
		patches = `patches:
  - target: {kind: ValidatingAdmissionPolicy, name: node-attestation-insecure-records}
    patch: |
      - {op: replace, path: /spec/variables/0/expression, value: "['node-4', 'node-5', 'node-6', 'node-7']"}
`
	}
	for i := range components {
		components[i] = filepath.Join(shipped, components[i])
	}
	controlplane.Write(t, folder, "kustomization.yaml", []byte(`apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [`+shipped+`]
components: [`+strings.Join(components, ", ")+`]
images: [{name: nodeattest.invalid/nodeattest, newName: registry.example/nodeattest, newTag: v1}]
configMapGenerator:
  - name: node-attestation
    namespace: nodeattest-system
    files: [config.yaml, inventory.yaml, ek-roots.pem]
generatorOptions: {disableNameSuffixHash: true}
`+patches))
	manifests := manifests(t, "config.yaml")
	var config map[string]any
	if err := yaml.UnmarshalStrict(manifests[0], &config); err != nil {
		t.Fatal(err)
	}
	config["membership"].(map[string]any)["mode"] = "FirstUse"
	if slices.ContainsFunc(components, func(path string) bool { return filepath.Base(path) == "signer" }) {
		config["signers"].(map[string]any)["names"] = []any{csr.SignerKubeAPIServerClientKubelet, csr.SignerClientTPM}
	}
	for i, program := range []string{"controller", "signer"} {
		addresses := config[program].(map[string]any)
		addresses["metricsAddress"], addresses["healthAddress"] = "127.0.0.1:"+ports[2*i], "127.0.0.1:"+ports[2*i+1]
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	controlplane.Write(t, folder, "config.yaml", text)
	controlplane.Write(t, folder, "inventory.yaml", []byte("machines:\n- nodeName: "+node.Name+"\n"))
	var roots []byte
	for _, root := range node.Roots() {
		roots = append(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})...)
	}
	controlplane.Write(t, folder, "ek-roots.pem", roots)
	return folder
}

// shipped checks the server's objects of the manifests: the CRDs are served, and a
// Deployment has the pod's restrictions, without which the namespace takes no pod.
func (c *cluster) shipped(t *testing.T, name string) {
	eventually(t, func() error {
		return c.admin.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(namespace))
	})
	d := c.deployment(t, name)
	pod := &d.Spec.Template.Spec
	container := &pod.Containers[0]
	s := container.SecurityContext
	if *d.Spec.Replicas != 2 || pod.ServiceAccountName != name || !*pod.SecurityContext.RunAsNonRoot || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || s.Capabilities.Drop[0] != "ALL" {
		t.Errorf("the Deployment: %+v", d.Spec)
	}
	if container.Image != "registry.example/nodeattest:v1" {
		t.Errorf("the image is %s", container.Image)
	}
	ports := map[string]int32{}
	for _, p := range container.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		if ports[probe.HTTPGet.Port.StrVal] == 0 {
			t.Errorf("a probe asks port %s, not one of %v", probe.HTTPGet.Port.String(), ports)
		}
	}
	admitted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: name + "-"}, Spec: *pod.DeepCopy()}
	other := admitted.DeepCopy()
	if err := c.admin.Create(t.Context(), admitted, client.DryRunAll); err != nil {
		t.Errorf("a pod: %v", err)
	}
	other.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = new(true)
	if err := c.admin.Create(t.Context(), other, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("a pod whose programs may get more rights: %v, want it refused", err)
	}
}

func (c *cluster) deployment(t *testing.T, name string) *appsv1.Deployment {
	t.Helper()
	d := new(appsv1.Deployment)
	if err := c.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// buildImage makes the image's archive.
func buildImage(t *testing.T) string {
	t.Helper()
	cmd := exec.Command(filepath.Join("..", "..", "scripts", "image.sh"), "registry.example/nodeattest:v1")
	dir := t.TempDir()
	cmd.Env = append(os.Environ(), "IMAGE_DIR="+dir)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said.Bytes())
	}
	path := strings.TrimSpace(string(out))
	if filepath.Dir(path) != dir {
		t.Fatalf("got the path %q", path)
	}
	return path
}

// rootOf reads an image's archive back, and lays its files out as a container's root.
func rootOf(t *testing.T, archive string) string {
	t.Helper()
	files := untar(t, archive)
	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil || len(manifest) != 1 || !slices.Equal(manifest[0].RepoTags, []string{"registry.example/nodeattest:v1"}) {
		t.Fatalf("manifest %s: %v", files["manifest.json"], err)
	}
	var config struct {
		OS     string
		Config struct{ User string }
	}
	if err := json.Unmarshal(files[manifest[0].Config], &config); err != nil || config.OS != "linux" || config.Config.User != "65532:65532" {
		t.Fatalf("configuration %s: %v", files[manifest[0].Config], err)
	}
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil { // for another user
		t.Fatal(err)
	}
	for _, layer := range manifest[0].Layers {
		unpacked, err := gzip.NewReader(bytes.NewReader(files[layer]))
		if err != nil {
			t.Fatal(err)
		}
		for r := tar.NewReader(unpacked); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(root, filepath.Clean("/"+header.Name))
			if header.Typeflag == tar.TypeDir {
				err = os.MkdirAll(to, header.FileInfo().Mode())
			} else {
				err = os.WriteFile(to, text, header.FileInfo().Mode())
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("the image has /%s, %d bytes", header.Name, len(text))
		}
	}
	return root
}

func untar(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// startDeployment acts as a kubelet with a pod of the Deployment, as far as it
// concerns the process: its root, volumes, service account, environment and command.
func (c *cluster) startDeployment(t *testing.T, name, root string) *process {
	t.Helper()
	pod := c.deployment(t, name).Spec.Template.Spec
	container := pod.Containers[0]
	volumes := map[string]map[string][]byte{}
	for _, v := range pod.Volumes {
		if v.Secret != nil {
			var object corev1.Secret
			if err := c.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: v.Secret.SecretName}, &object); err != nil {
				t.Fatal(err)
			}
			volumes[v.Name] = object.Data
			continue
		}
		var object corev1.ConfigMap
		if err := c.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: v.ConfigMap.Name}, &object); err != nil {
			t.Fatal(err)
		}
		volumes[v.Name] = map[string][]byte{}
		for name, text := range object.Data {
			volumes[v.Name][name] = []byte(text)
		}
	}
	token := c.serviceAccountToken(t, namespace, pod.ServiceAccountName)
	volumes["account"] = map[string][]byte{"token": []byte(token), "ca.crt": controlplane.CertificatePEM(c.ca.Cert), "namespace": []byte(namespace)}
	mounts := append(slices.Clone(container.VolumeMounts), corev1.VolumeMount{Name: "account", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"})
	for _, m := range mounts {
		dir := filepath.Join(root, m.MountPath)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range volumes[m.Name] {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	server, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"KUBERNETES_SERVICE_HOST=" + server.Hostname(), "KUBERNETES_SERVICE_PORT=" + server.Port()}
	for _, e := range container.Env {
		env = append(env, e.Name+"="+e.Value)
	}
	user := *pod.SecurityContext.RunAsUser
	t.Logf("as user %d: %s", user, fmt.Sprint(append(slices.Clone(container.Command), container.Args...)))
	return startInRoot(t, name, c.dir, root, user, env, append(slices.Clone(container.Command), container.Args...))
}

// startInRoot starts a command in a root of its own, with no other environment. Who is not
// root himself is it in a user namespace.
func startInRoot(t *testing.T, name, dir, root string, user int64, env, command []string) *process {
	t.Helper()
	args := append([]string{"-i"}, env...)
	enter := []string{"chroot", "--userspec=" + strconv.FormatInt(user, 10) + ":" + strconv.FormatInt(user, 10), root}
	if os.Geteuid() != 0 {
		enter = []string{"unshare", "--map-root-user", "chroot", root}
	}
	for _, program := range []string{"env", enter[0]} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatal(err)
		}
	}
	enter[0], _ = exec.LookPath(enter[0])
	env0, _ := exec.LookPath("env")
	return startAs(t, name, env0, dir, append(append(args, enter...), command...)...)
}
