package externalsigner

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// kubeadmConfiguration is that of a cluster whose API servers are processes at 127.0.0.1, which kubeadm does
// not take as an address. The tests' etcd has no TLS.
const kubeadmConfiguration = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 192.0.2.1}
nodeRegistration: {name: control-plane}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %s
certificatesDir: %s
etcd: {external: {endpoints: [%q]}}
apiServer:
  certSANs: [127.0.0.1]
  extraArgs:
  - {name: bind-address, value: 127.0.0.1}
  - {name: advertise-address, value: 127.0.0.1}
  - {name: endpoint-reconciler-type, value: none}
  - {name: profiling, value: "false"}
`

// A migration is two machines of a control plane, whose operators do as docs/external-signer.md says.
type migration struct {
	page     *page
	cluster  *cluster
	kubeadm  string // the program's path
	version  string
	machines []*machine
	traffic  *traffic
}

// A machine is one of the control plane. Its kubelet is this test: it starts kube-apiserver with the command
// of the manifest. Its systemd is this test, too.
type machine struct {
	name    string
	root    string // where the page has /
	address string // which kubeadm is given
	port    string
	server  *apiServer
	args    []string // of the manifest with which the server runs
}

// TestThereAndBack goes through docs/external-signer.md: two API servers of a cluster that kubeadm made go to
// signers and back, one after the other, with the manifests that kubeadm renders, and one key is
// rotated. Meanwhile tokens are issued and reviewed at both. None of them is refused.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	m := startMigration(t)
	m.traffic = startTraffic(t, m.machines)
	m.traffic.add(m.machines[0].secretToken(t))
	m.install(t)
	m.there(t)
	m.upgrade(t)
	m.rotate(t)
	m.back(t)
	t.Log("kubeadm and kube-apiserver", m.version)
	m.traffic.end(t, 4)                // of sa.key, each machine's, and the new one
	_ = m.page.take(t, "sh", keyInTPM) // TestSigner runs it
	m.page.taken(t)
}

// there takes the steps of the page onto the signers.
func (m *migration) there(t *testing.T) {
	const have, accept, sign = "1. Have kubeadm's configuration in a file", "2. Have every API server accept the new keys", "3. Have it sign at the socket"
	configures := m.page.take(t, "sh", have)
	m.each(func(on *machine) {
		on.run(t, configures)
		on.edit(t, m.machines[0].root+"/", on.root+"/") // the test's machines share a disk
	})
	accepts, arguments := m.page.take(t, "sh", accept), m.page.take(t, "yaml", accept)
	m.each(func(on *machine) {
		on.addArguments(t, on.here(arguments))
		on.run(t, accepts)
		on.follows(t)
		m.traffic.settle(t)
	})
	signs := m.page.take(t, "sh", sign)
	m.each(func(on *machine) {
		on.run(t, signs)
		on.checkManifest(t, true)
		on.follows(t)
		m.traffic.settle(t)
	})
	shows := m.page.take(t, "sh", sign)
	for i, on := range m.machines {
		if set := on.run(t, shows); strings.Count(set, `"EC"`) != len(m.machines) || strings.Count(set, `"RSA"`) != 1-i {
			t.Errorf("%s publishes %s, want a key of each signer, and sa.key's where it is retired", on.name, set)
		}
	}
}

// back takes the steps of the page away from the signers.
func (m *migration) back(t *testing.T) {
	block := m.page.take(t, "sh", "And back")
	m.each(func(on *machine) {
		on.run(t, block)
		on.checkManifest(t, false)
		on.follows(t)
		m.traffic.settle(t)
	})
}

// startMigration starts etcd, has kubeadm make the keys of a cluster, and starts two API servers with the
// manifests that it renders.
func startMigration(t *testing.T) *migration {
	t.Helper()
	folder, ports := controlplane.Binaries(t), controlplane.FreePorts(t, 4)
	m := &migration{page: readPage(t, "external-signer.md"), kubeadm: filepath.Join(folder, "kubeadm"), cluster: &cluster{ca: controlplane.NewAuthority(t)}}
	version, err := exec.Command(m.kubeadm, "version", "-o", "short").Output()
	if err != nil {
		t.Fatal(err)
	}
	m.version = strings.TrimSpace(string(version))
	dir := t.TempDir()
	url, flags := controlplane.Etcd(dir, ports[0], ports[1])
	start(t, filepath.Join(folder, "etcd"), dir, flags...).ready(t, func() error { return controlplane.Healthy(url + "/readyz") })
	pki := filepath.Join(dir, "pki")
	if err := os.Mkdir(pki, 0o700); err != nil {
		t.Fatal(err)
	}
	controlplane.Write(t, pki, "ca.crt", controlplane.CertificatePEM(m.cluster.ca.Cert))
	controlplane.Write(t, pki, "ca.key", controlplane.PrivatePEM(t, m.cluster.ca.Key))
	config := controlplane.Write(t, dir, "init.yaml", fmt.Appendf(nil, kubeadmConfiguration, m.version, pki, url))
	if out, err := exec.Command(m.kubeadm, "init", "phase", "certs", "all", "--config", config).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for i, name := range []string{"one", "two"} {
		on := m.newMachine(t, name, ports[2+i], pki)
		on.address = "192.0.2." + strconv.Itoa(i+1)
		config := strings.Replace(string(controlplane.Read(t, config)), "192.0.2.1}", on.address+", bindPort: "+on.port+"}", 1)
		on.write(t, "etc/kubernetes/init.yaml", strings.ReplaceAll(config, pki, filepath.Join(on.root, "etc/kubernetes/pki")))
		on.run(t, "kubeadm init phase control-plane apiserver --config /etc/kubernetes/init.yaml")
		on.follows(t)
	}
	on := m.machines[0] // as kubeadm init does
	on.run(t, "REAL init phase upload-config kubeadm --config /etc/kubernetes/init.yaml --kubeconfig /admin.conf")
	return m
}

// newMachine makes a machine with the cluster's files of /etc/kubernetes/pki. Its root has a short path, as a
// socket must, and one that other users cannot change.
func (m *migration) newMachine(t *testing.T, name, port, pki string) *machine {
	t.Helper()
	root, err := os.MkdirTemp("", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	on := &machine{name: name, root: root, port: port, server: &apiServer{cluster: m.cluster, url: "https://127.0.0.1:" + port}}
	for _, folder := range []string{"etc/kubernetes/manifests", "run", "var/lib", "bin"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(root, "etc/kubernetes/pki"), os.DirFS(pki)); err != nil {
		t.Fatal(err)
	}
	on.server.admin = on.server.client(t, "admin", "system:masters")
	user := on.server.user(t, "admin", "system:masters")
	controlplane.Kubeconfig(t, root, "admin.conf", &clientcmdapi.Cluster{Server: on.server.url, CertificateAuthorityData: user.CAData},
		&clientcmdapi.AuthInfo{ClientCertificateData: user.CertData, ClientKeyData: user.KeyData})
	// With --dry-run kubeadm renders the same manifest, into a folder that can be chosen.
	on.script(t, "kubeadm", `export KUBEADM_INIT_DRYRUN_DIR=${KUBEADM_INIT_DRYRUN_DIR:-`+root+"/etc/kubernetes/manifests}\nexec "+m.kubeadm+` "$@" --dry-run`)
	on.script(t, "REAL", "exec "+m.kubeadm+` "$@"`)
	on.script(t, "systemd-sysusers", "")
	on.script(t, "chown", `[ "$1" = external-jwt-signer ]`)
	on.script(t, "runuser", `[ "$1 $2 $3" = "-u external-jwt-signer --" ] && shift 3 && exec "$@"`)
	on.script(t, "systemctl", `echo "$@" >> `+root+"/systemctl.log")
	m.machines = append(m.machines, on)
	return on
}

func (on *machine) script(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(on.root, "bin", name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

func (on *machine) write(t *testing.T, name, text string) {
	t.Helper()
	controlplane.Write(t, filepath.Dir(filepath.Join(on.root, name)), filepath.Base(name), []byte(text))
}

func (on *machine) read(t *testing.T, name string) string {
	t.Helper()
	return string(controlplane.Read(t, filepath.Join(on.root, name)))
}

// here replaces the page's paths by the machine's.
func (on *machine) here(text string) string {
	for _, folder := range []string{"/etc/", "/run/", "/var/lib/", "/admin.conf"} {
		text = strings.ReplaceAll(text, folder, on.root+folder)
	}
	return text
}

// run runs a block of the page on the machine, and returns its output.
func (on *machine) run(t *testing.T, block string) string {
	t.Helper()
	block = strings.NewReplacer("ADDRESS", on.address, "bindPort: 6443", "bindPort: "+on.port, "MACHINE", on.name).Replace(block)
	cmd := exec.Command("bash", "-e", "-c", on.here(block))
	cmd.Dir = on.root
	path := []string{filepath.Join(on.root, "bin"), filepath.Dir(signerProgram(t)), controlplane.Binaries(t), os.Getenv("PATH")}
	cmd.Env = append(os.Environ(), "PATH="+strings.Join(path, ":"), "KUBECONFIG="+filepath.Join(on.root, "admin.conf"))
	out, err := cmd.CombinedOutput()
	t.Logf("%s$ %s\n%s", on.name, block, out)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// manifest is the API server's, as the machine has it now.
func (on *machine) manifest(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := new(corev1.Pod)
	if err := yaml.UnmarshalStrict([]byte(on.read(t, "etc/kubernetes/manifests/kube-apiserver.yaml")), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// follows starts the API server with the command of the manifest, after the one before has ended.
func (on *machine) follows(t *testing.T) {
	t.Helper()
	command := on.command(t)
	if slices.Equal(command, on.args) {
		t.Fatalf("%s: the manifest has not changed", on.name)
	}
	on.args = command
	if on.server.process == nil {
		on.server.process = start(t, filepath.Join(controlplane.Binaries(t), command[0]), on.root, command[1:]...)
		on.server.awaitReady(t)
	} else {
		on.server.restart(t, command[1:])
	}
}

// each takes a step on both machines, one after the other.
func (m *migration) each(step func(on *machine)) {
	for _, on := range m.machines {
		step(on)
	}
}

// install installs the signers, by the page. That their times are short is the test's.
func (m *migration) install(t *testing.T) {
	t.Helper()
	const heading = "Install the signer"
	config, block := m.page.take(t, "yaml", heading), m.page.take(t, "sh", heading)
	config = strings.Replace(config, "publish: 1h", "publish: 4s", 1) + fmt.Sprintf("socket: /run/external-jwt-signer/socket\nallowedUIDs: [%d]\n", os.Getuid()) +
		"refreshHint: 2s\nreloadInterval: 500ms\nstatusAddress: \"0\"\n"
	m.each(func(on *machine) {
		for _, folder := range []string{"etc/external-jwt-signer", "run/external-jwt-signer", "var/lib/external-jwt-signer"} { // as the units do
			if err := os.MkdirAll(filepath.Join(on.root, folder), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if on != m.machines[0] { // to have one where sa.pub verifies only
			config = strings.Replace(config, "\nretiredFiles:", "\n# retiredFiles:", 1)
		}
		on.write(t, "etc/external-jwt-signer/config.yaml", on.here(config))
		on.run(t, block)
		if got := on.read(t, "systemctl.log"); got != "daemon-reload\nenable --now external-jwt-signer.socket external-jwt-signer.service\n" {
			t.Errorf("systemctl was told %q", got)
		}
	})
	m.shareKeys(t)
	m.each(func(on *machine) {
		signer := start(t, signerProgram(t), on.root, "--config", filepath.Join(on.root, "etc/external-jwt-signer/config.yaml"))
		signer.ready(t, func() error {
			_, err := os.Stat(filepath.Join(on.root, "run/external-jwt-signer/socket"))
			return err
		})
	})
}

// shareKeys copies the public keys of each machine to the other.
func (m *migration) shareKeys(t *testing.T) {
	t.Helper()
	for _, from := range m.machines {
		files, err := filepath.Glob(filepath.Join(from.root, "etc/external-jwt-signer/peers", from.name+"*.pem"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no public keys: %v", from.name, err)
		}
		for _, file := range files {
			m.each(func(on *machine) {
				on.write(t, "etc/external-jwt-signer/peers/"+filepath.Base(file), string(controlplane.Read(t, file)))
			})
		}
	}
}

// rotate gives the first machine's signer another key, by the page.
func (m *migration) rotate(t *testing.T) {
	t.Helper()
	const heading = "A new key"
	on := m.machines[0]
	on.run(t, m.page.take(t, "sh", heading))
	m.shareKeys(t)
	publishes := m.page.take(t, "sh", heading)
	m.each(func(on *machine) { on.run(t, publishes) })
	on.run(t, m.page.take(t, "sh", heading))
	m.traffic.awaitKeys(t, 4)
	m.traffic.settle(t)
}

// secretToken makes a token in a Secret, as kube-controller-manager does.
func (on *machine) secretToken(t *testing.T) string {
	t.Helper()
	block, _ := pem.Decode([]byte(on.read(t, "etc/kubernetes/pki/sa.key")))
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	core := on.server.admin.CoreV1()
	owner, err := core.ServiceAccounts(namespace).Get(t.Context(), account, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const name, claim = "secret", "kubernetes.io/serviceaccount/"
	payload, err := json.Marshal(map[string]string{
		"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:" + namespace + ":" + account, claim + "namespace": namespace,
		claim + "secret.name": name, claim + "service-account.name": account, claim + "service-account.uid": string(owner.UID),
	})
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jws.NewSigner(key, jws.SignerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(t.Context(), payload)
	if err != nil {
		t.Fatal(err)
	}
	token := signed.Token(payload)
	_, err = core.Secrets(namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
		Type:       corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte(token)},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// upgrade has kubeadm render a manifest with one more flag, as another release may. The patch does not fit
// it, and the page's commands make one that does.
func (m *migration) upgrade(t *testing.T) {
	t.Helper()
	on := m.machines[0]
	const render = "kubeadm init phase control-plane apiserver --config /etc/kubernetes/kubeadm.yaml"
	on.addArguments(t, "apiServer:\n  extraArgs:\n  - {name: audit-log-maxage, value: \"7\"}\n")
	before := on.read(t, "etc/kubernetes/manifests/kube-apiserver.yaml")
	if out := on.run(t, "! "+render+" 2>&1"); !strings.Contains(out, "testing value /spec/containers/0/command/") {
		t.Errorf("kubeadm takes a patch of another manifest: %s", out)
	}
	if on.read(t, "etc/kubernetes/manifests/kube-apiserver.yaml") != before {
		t.Error("kubeadm changed the manifest all the same")
	}
	on.run(t, m.page.take(t, "sh", "Upgrades"))
	on.run(t, render)
	on.checkManifest(t, true)
	if !slices.Contains(on.command(t), "--audit-log-maxage=7") {
		t.Error("the manifest lacks the new flag")
	}
	on.run(t, render+"\n"+"kubeadm init phase control-plane controller-manager --config /etc/kubernetes/kubeadm.yaml")
	if text := on.read(t, "etc/kubernetes/manifests/kube-controller-manager.yaml"); !strings.Contains(text, "--service-account-private-key-file=") {
		t.Error("kube-controller-manager has lost its key")
	}
}

// edit replaces text in the file with kubeadm's configuration.
func (on *machine) edit(t *testing.T, old, with string) {
	t.Helper()
	const file = "etc/kubernetes/kubeadm.yaml"
	on.write(t, file, strings.ReplaceAll(on.read(t, file), old, with))
}

// addArguments adds arguments of the API server to kubeadm's configuration.
func (on *machine) addArguments(t *testing.T, block string) {
	t.Helper()
	_, list, ok := strings.Cut(block, "apiServer:\n  extraArgs:\n")
	if !ok {
		t.Fatalf("no arguments in %s", block)
	}
	before := on.read(t, "etc/kubernetes/kubeadm.yaml")
	if on.edit(t, "  extraArgs:\n", "  extraArgs:\n"+list); on.read(t, "etc/kubernetes/kubeadm.yaml") == before {
		t.Fatalf("no arguments in %s", before)
	}
}

// command is that of the machine's manifest.
func (on *machine) command(t *testing.T) []string {
	t.Helper()
	return on.manifest(t).Spec.Containers[0].Command
}

// checkManifest says that the API server signs at the socket, whose folder it has, or with files.
func (on *machine) checkManifest(t *testing.T, atSocket bool) {
	t.Helper()
	pod, socket := on.manifest(t), filepath.Join(on.root, "run/external-jwt-signer/socket")
	has := func(flag string) (n int) {
		for _, element := range pod.Spec.Containers[0].Command {
			if strings.HasPrefix(element, flag) {
				n++
			}
		}
		return n
	}
	want := map[bool][3]int{true: {1, 0, 0}, false: {0, 1, 2}}[atSocket]
	if got := [3]int{has("--service-account-signing-endpoint=" + socket), has("--service-account-signing-key-file="), has("--service-account-key-file=")}; got != want {
		t.Errorf("%s: got %d of the endpoint and the two flags for files, want %d", on.name, got, want)
	}
	mounts := slices.ContainsFunc(pod.Spec.Containers[0].VolumeMounts, func(v corev1.VolumeMount) bool {
		return v.Name == "external-jwt-signer" && v.ReadOnly && v.MountPath == filepath.Dir(socket)
	})
	volume := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Name == "external-jwt-signer" && v.HostPath.Path == filepath.Dir(socket) && *v.HostPath.Type == corev1.HostPathDirectory
	})
	if mounts != atSocket || volume != atSocket {
		t.Errorf("%s: the socket's folder is mounted: %t, and a volume: %t", on.name, mounts, volume)
	}
}
