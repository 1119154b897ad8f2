package kube

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// joinFile and ignitionJoinFile have kubeadm's configuration with the token, as the bootstrap provider
// writes it for cloud-init and for Ignition.
const (
	joinFile         = "/run/kubeadm/kubeadm-join-config.yaml"
	ignitionJoinFile = "/etc/kubeadm.yml"
)

// templateChange is a kustomization above kube/deploy/node, as the operator of a fleet writes one: with a
// name, a format, where a machine's evidence is, and the provider ID. The rest is this machine's: a TPM's
// socket and CAs, a container runtime, and a kernel that kubeadm would not choose.
const templateChange = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: default
resources: [%s]
patches:
  - target: {kind: KubeadmConfigTemplate}
    patch: |
      - {op: replace, path: /metadata/name, value: %s}
      - {op: add, path: /spec/template/spec/format, value: %[2]s}
      - op: replace
        path: /spec/template/spec/files/0/content
        value: |
          apiVersion: config.nodeattest.github.io/v1alpha1
          kind: KubeletAuthenticatorConfiguration
          lifetime: 10m
          providerID: "fake://{{ ds.meta_data.local_hostname }}"
          evidence:
            tpm: {device: %[3]s, ek: rsa-2048, ak: p-256, intermediates: /etc/kubernetes/ek-chain.pem}
      - op: add
        path: /spec/template/spec/files/-
        value: {path: /etc/kubernetes/ek-chain.pem, owner: root:root, permissions: "0644", content: %[4]q}
      - {op: add, path: /spec/template/spec/joinConfiguration/nodeRegistration/ignorePreflightErrors/-, value: SystemVerification}
      - op: add
        path: /spec/template/spec/joinConfiguration/nodeRegistration/kubeletExtraArgs
        value: [{name: provider-id, value: "fake://{{ ds.meta_data.local_hostname }}"}]
      - {op: add, path: /spec/template/spec/joinConfiguration/nodeRegistration/criSocket, value: %[5]q}
      - {op: add, path: /spec/template/spec/joinConfiguration/nodeRegistration/taints, value: []}
`

// deployment applies the shipped template in a format, and makes a MachineDeployment of one Machine by it.
func (f *fleet) deployment(t *testing.T, format string, device *tpmsim.TPM, runtime string) {
	t.Helper()
	parent, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := filepath.Abs(filepath.Join(root, "kube", "deploy", "node"))
	if err == nil {
		shipped, err = filepath.Rel(parent, shipped)
	}
	if err != nil {
		t.Fatal(err)
	}
	controlplane.Write(t, parent, "kustomization.yaml", fmt.Appendf(nil, templateChange, shipped, format,
		"/run/tpm/"+filepath.Base(device.TCTI()), controlplane.CertificatePEM(device.CA().EKIntermediate()), runtime))
	out, err := exec.Command(filepath.Join(controlplane.Binaries(t), "kubectl"), "kustomize", parent).Output()
	if err != nil {
		t.Fatal(err)
	}
	var template fields
	if err := yaml.UnmarshalStrict(out, &template); err != nil { // one object: the files are in it
		t.Fatalf("%v:\n%s", err, out)
	}
	f.home.make(t, template)
	labels := fields{"d": format, coreGroup + "/cluster-name": fleetCluster}
	f.home.make(t, object(coreGroup, f.version, "MachineDeployment", format, fields{"clusterName": fleetCluster, "replicas": int64(1),
		"selector": fields{"matchLabels": fields{"d": format}},
		"template": fields{"metadata": fields{"labels": labels},
			"spec": fields{"clusterName": fleetCluster, "version": "v1.36.3", "bootstrap": fields{"configRef": f.ref(bootstrapGroup, "KubeadmConfigTemplate", format)},
				"infrastructureRef": f.ref(infraGroup, "FakeMachineTemplate", fleetCluster)}}}))
}

// bootstrapData returns a Machine's bootstrap data.
func (f *fleet) bootstrapData(t *testing.T, of *fleetMachine) string {
	t.Helper()
	name, _, _ := unstructured.NestedString(of.Object, "spec", "bootstrap", "dataSecretName")
	var secret corev1.Secret
	if err := f.home.admin.Get(t.Context(), client.ObjectKey{Namespace: of.GetNamespace(), Name: name}, &secret); err != nil {
		t.Fatal(err)
	}
	return string(secret.Data["value"])
}

// A bootFile is a file of bootstrap data.
type bootFile struct {
	mode    os.FileMode
	content string
}

// cloudConfig is the part of cloud-init's configuration that the bootstrap provider uses for a template
// such as the shipped one. Its reader refuses any other part.
type cloudConfig struct {
	Files []struct {
		Path        string `json:"path"`
		Owner       string `json:"owner"`
		Permissions string `json:"permissions"`
		Content     string `json:"content"`
	} `json:"write_files"`
	Commands []string `json:"runcmd"`
}

// readCloudConfig reads bootstrap data in cloud-init's format on a machine of a name.
func readCloudConfig(t *testing.T, data, hostname string) (files map[string]bootFile, commands []string) {
	t.Helper()
	text, ok := strings.CutPrefix(data, "## template: jinja\n#cloud-config\n")
	const variable = "{{ ds.meta_data.local_hostname }}"
	if rest := strings.ReplaceAll(text, variable, ""); !ok || strings.Contains(rest, "{{") || strings.Contains(rest, "{%") || strings.Contains(rest, "{#") {
		t.Fatalf("a template of another kind, or with a variable that this reader does not know:\n%s", data)
	}
	text = strings.ReplaceAll(text, variable, hostname)
	var c cloudConfig
	if err := yaml.UnmarshalStrict([]byte(text), &c); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	files = map[string]bootFile{}
	for _, f := range c.Files {
		mode := uint64(0o644)
		var err error
		if f.Permissions != "" {
			mode, err = strconv.ParseUint(f.Permissions, 8, 32)
		}
		if err != nil || f.Owner != "root:root" && f.Owner != "" {
			t.Fatalf("%s: owner %q, permissions %q: %v", f.Path, f.Owner, f.Permissions, err)
		}
		files[f.Path] = bootFile{os.FileMode(mode), f.Content}
	}
	return files, c.Commands
}

// readIgnition reads bootstrap data in Ignition's format.
func readIgnition(t *testing.T, data string) (files map[string]bootFile, units map[string]string) {
	t.Helper()
	var c struct {
		Storage struct {
			Files []struct {
				Path     string `json:"path"`
				Mode     uint32 `json:"mode"`
				Contents struct {
					Source string `json:"source"`
				} `json:"contents"`
			} `json:"files"`
		} `json:"storage"`
		Systemd struct {
			Units []struct {
				Name     string `json:"name"`
				Contents string `json:"contents"`
			} `json:"units"`
		} `json:"systemd"`
	}
	if err := json.Unmarshal([]byte(data), &c); err != nil {
		t.Fatal(err)
	}
	files, units = map[string]bootFile{}, map[string]string{}
	for _, f := range c.Storage.Files {
		encoded, ok := strings.CutPrefix(f.Contents.Source, "data:,")
		content, err := url.PathUnescape(encoded)
		if !ok || err != nil {
			t.Fatalf("%s: %s: %v", f.Path, f.Contents.Source, err)
		}
		files[f.Path] = bootFile{os.FileMode(f.Mode), content}
	}
	for _, u := range c.Systemd.Units {
		units[u.Name] = u.Contents
	}
	return files, units
}

// putAll writes files on the machine.
func (m *member) putAll(t *testing.T, files map[string]bootFile) {
	t.Helper()
	for path, f := range files {
		m.put(t, path, f.mode, []byte(f.content))
	}
}

// cloudInit carries out bootstrap data as cloud-init would: it writes the files, and then runs the commands
// as one script, which goes on after a command that fails.
func (m *member) cloudInit(t *testing.T, data string) {
	t.Helper()
	files, commands := readCloudConfig(t, data, m.name)
	m.putAll(t, files)
	m.put(t, "/var/lib/cloud/instance/scripts/runcmd", 0o700, []byte("#!/bin/sh\n"+strings.Join(commands, "\n")+"\n"))
	t.Logf("runcmd %q:\n%s", commands, m.run(t, "cd /; /var/lib/cloud/instance/scripts/runcmd 2>&1; cat /run/cluster-api/bootstrap-success.complete"))
}

// startBootstrapSigner starts the controller of Kubernetes that signs ConfigMap cluster-info for each
// bootstrap token: without a signature, kubeadm does not join by a token alone.
func (c *cluster) startBootstrapSigner(t *testing.T) {
	t.Helper()
	path := c.kubeconfig(t, "bootstrap-signer.kubeconfig", "admin", "system:masters")
	startAs(t, "bootstrap-signer", filepath.Join(controlplane.Binaries(t), "kube-controller-manager"), c.dir,
		"--kubeconfig="+path, "--authentication-kubeconfig="+path, "--authorization-kubeconfig="+path,
		"--bind-address=127.0.0.1", "--secure-port="+controlplane.FreePorts(t, 1)[0], "--leader-elect=false", "--profiling=false",
		"--flex-volume-plugin-dir="+filepath.Join(c.dir, "flex"), "--controllers=bootstrap-signer-controller")
}

// TestMachineByKubeadm has a Machine join by kubeadm, from the bootstrap data that Cluster API renders by
// the template in kube/deploy/node.
func TestMachineByKubeadm(t *testing.T) {
	t.Parallel()
	g := boxNeeds(t, 1)
	f := newFleet(t, "v1beta2", 0, func(*cluster) []string { return []string{"--anonymous-auth=true"} }) // kubeadm reads cluster-info so
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	m := f.newMember(t, "worker-1", g, device)
	runtime := startRuntime(t, m.dir)
	for _, format := range []string{"cloud-config", "ignition"} {
		f.deployment(t, format, device, runtime)
	}
	machines := map[string]*fleetMachine{}
	for _, of := range f.machines(t, 2) {
		machines[of.GetLabels()["d"]] = &of
	}
	of, other := machines["cloud-config"], machines["ignition"]
	data, ignition := f.bootstrapData(t, of), f.bootstrapData(t, other)
	t.Run("Ignition", func(t *testing.T) { testIgnition(t, data, ignition, of.token, other.token) })

	m.cut = m.connect(t, f.address())
	m.installKubeadm(t)
	m.upload(t)
	m.run(t, "kubectl --kubeconfig /etc/operator/admin.conf delete clusterrolebinding kubeadm:node-autoapprove-bootstrap kubeadm:node-autoapprove-certificate-rotation")
	f.startBootstrapSigner(t)
	f.writeRoots(t, f.nodeOn(t, device, m.name))
	m.controller = f.byMachines(t).process
	of.providerID = "fake://" + m.name
	f.provision(t, of)
	m.run(t, "systemctl start --no-block kubelet") // as on an image: it fails, and starts again, until the machine joins
	t.Run("the script", func(t *testing.T) { m.testScript(t, ignition, other.token) })
	began := time.Now()
	m.cloudInit(t, data)
	m.alive(t, began)
	f.checkNode(t, m.name, of)
	m.checkEvidence(t)
}

// testScript has the script of the template take the API server and the token from either place, and fail
// without them.
func (m *member) testScript(t *testing.T, data, token string) {
	const script = "/etc/kubernetes/kubelet-authenticator.sh"
	files, _ := readIgnition(t, data)
	without := files[ignitionJoinFile]
	without.content = strings.ReplaceAll(without.content, "token: "+token, `tokens: ""`)
	m.putAll(t, files)
	m.put(t, ignitionJoinFile, without.mode, []byte(without.content))
	if out, err := m.command(t.Context(), script).CombinedOutput(); err == nil || !strings.Contains(string(out), "no bootstrap token or API server in "+ignitionJoinFile) {
		t.Errorf("without a token: %v: %s", err, out)
	}
	for _, written := range []string{token, `"` + token + `"`, "'" + token + "'"} {
		quoted := files[ignitionJoinFile]
		quoted.content = strings.ReplaceAll(quoted.content, "token: "+token, "token: "+written)
		m.putAll(t, files)
		m.put(t, ignitionJoinFile, quoted.mode, []byte(quoted.content))
		m.run(t, script)
		for path, want := range map[string][]string{
			"kubelet-authenticator.conf": {"server: https://" + m.c.address() + "\n", `token: "` + token + "\"\n"},
			"kubelet.conf":               {"server: https://" + m.c.address() + "\n"},
		} {
			text := m.run(t, "stat -c %a /etc/kubernetes/"+path+"; cat /etc/kubernetes/"+path)
			for _, line := range append(want, "600\n") {
				if !strings.Contains(text, line) {
					t.Errorf("%s lacks %q:\n%s", path, line, text)
				}
			}
		}
	}
	m.run(t, "systemctl disable kubelet-authenticator; rm "+ignitionJoinFile)
}

// testIgnition compares the bootstrap data of both formats, and has the validator of Ignition's format,
// which the bootstrap provider writes in version 2.3.0, judge it.
func testIgnition(t *testing.T, data, ignition, token, otherToken string) {
	const variable = "{{ ds.meta_data.local_hostname }}" // Ignition knows none: it stays as it is
	want, commands := readCloudConfig(t, data, variable)
	got, units := readIgnition(t, ignition)
	delete(want, "/run/cluster-api/placeholder")
	join := want[joinFile]
	delete(want, joinFile)
	for path, f := range want {
		if g := got[path]; strings.TrimSpace(g.content) != strings.TrimSpace(f.content) || g.mode != f.mode {
			t.Errorf("%s is %o\n%s\nwith Ignition, and %o\n%s\nwith cloud-init", path, g.mode, g.content, f.mode, f.content)
		}
	}
	if len(got) != len(want)+2 || len(want) != 7 {
		t.Errorf("%d files with Ignition, %d with cloud-init", len(got), len(want))
	}
	if g := got[ignitionJoinFile]; strings.TrimSpace(strings.ReplaceAll(g.content, otherToken, token)) != strings.TrimSpace(join.content) || g.mode != 0o600 {
		t.Errorf("kubeadm's configuration is %o\n%s\nwith Ignition, and\n%s\nwith cloud-init", g.mode, g.content, join.content)
	}
	lines := strings.Split(got["/etc/kubeadm.sh"].content, "\n")
	for _, command := range []string{commands[0], "kubeadm join --config " + ignitionJoinFile} {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.TrimSpace(line) == command }) {
			t.Errorf("kubeadm.sh lacks %q:\n%s", command, got["/etc/kubeadm.sh"].content)
		}
	}
	if !strings.Contains(units["kubeadm.service"], "ExecStart=/bin/bash /etc/kubeadm.sh") {
		t.Errorf("units: %v", units)
	}
	program := filepath.Join(t.TempDir(), "ignition-validate")
	build := exec.Command("go", "build", "-o", program, "github.com/flatcar/ignition/validate") // of the version with which the provider renders
	build.Dir, build.Env = filepath.Join(root, "test", "clusterapi"), append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	validate := func(text string) ([]byte, error) {
		cmd := exec.Command(program, "-")
		cmd.Stdin = strings.NewReader(text)
		return cmd.CombinedOutput()
	}
	out, err := validate(ignition)
	if rest := strings.Replace(string(out), "Config has unrecognized key: tls", "", 1); err != nil || strings.Contains(rest, "Config has") { // the provider writes it, empty
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("Ignition's validator on %d bytes: %v, %s", len(ignition), err, out)
	if out, err := validate(strings.Replace(ignition, `"mode":384`, `"mode":99999`, 1)); err == nil || !strings.Contains(string(out), "illegal file mode") {
		t.Errorf("an illegal mode: %v: %s", err, out)
	}
}

// checkNode holds that a Machine's node is recorded, registered and found by Cluster API.
func (f *fleet) checkNode(t *testing.T, name string, of *fleetMachine) {
	t.Helper()
	var record v1alpha1.AttestedNode
	if err := f.admin.Get(t.Context(), client.ObjectKey{Name: name}, &record); err != nil {
		t.Fatal(err)
	}
	if record.Spec.MachineUID != string(of.GetUID()) || record.Spec.ProviderID != of.providerID {
		t.Errorf("the record is %+v, want Machine %s with %s", record.Spec, of.GetUID(), of.providerID)
	}
	eventually(t, func() error {
		var node corev1.Node
		if err := f.admin.Get(t.Context(), client.ObjectKey{Name: name}, &node); err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && node.Spec.ProviderID == of.providerID {
				return nil
			}
		}
		return fmt.Errorf("%w: Node %s with provider ID %s is not ready: %+v", errNotYet, name, node.Spec.ProviderID, node.Status.Conditions)
	})
	eventually(t, func() error {
		if err := f.home.admin.Get(t.Context(), client.ObjectKeyFromObject(of), of); err != nil {
			return err
		}
		if got, _, _ := unstructured.NestedString(of.Object, "status", "nodeRef", "name"); got != name {
			return fmt.Errorf("Machine %s has no nodeRef %s: %v", of.GetName(), name, of.Object["status"])
		}
		return nil
	})
	t.Logf("Machine %s: nodeRef %s, UID %s in the record", of.GetName(), name, record.Spec.MachineUID)
}
