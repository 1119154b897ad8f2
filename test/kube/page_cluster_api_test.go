package kube

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/kube/signer"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A clusterAPIPage is an operator who installs as docs/cluster-api.md says.
type clusterAPIPage struct {
	*fleet
	page  *page
	dir   string // where the commands run
	shell *shell
	nodes []fleetMachine
}

// TestClusterAPIPage goes through docs/cluster-api.md, command by command, on a management cluster with
// Cluster API's managers and on a workload cluster that has nothing yet. A Machine's node joins, renews
// and is not taken by another machine, first with Kubernetes' own signer and then with one of our own. Each
// right of the accounts on the management cluster was needed, and none was missing on either cluster.
func TestClusterAPIPage(t *testing.T) {
	t.Parallel()
	p := openClusterAPIPage(t)
	ca := newCA(t, "")
	first, second := tpmsim.Swtpm(t, tpmsim.Options{CA: ca}), tpmsim.Swtpm(t, tpmsim.Options{CA: ca})
	p.installs(t, certificatesPEM(p.nodeOn(t, first, "node-1").Roots()))
	r := p.deployed(t, controller.DefaultName)
	p.rolledOut(t, controller.DefaultName)

	m := p.nodeBy(t, "node-1", p.nodes[0].token, p.nodes[0].providerID, first)
	_, pair := m.credential(t)
	if got, want := pair.Leaf.Subject.CommonName, csr.NodeUserPrefix+"node-1"; got != want {
		t.Errorf("a certificate for %s, want %s", got, want)
	}
	if _, stderr, err := m.run(t.Context(), "rotate"); err != nil {
		t.Errorf("it does not renew: %v: %s", err, stderr)
	}
	if said := p.nodeBy(t, "node-2", p.nodes[0].token, "", second).refused(t); !strings.Contains(said, "NotAMember") {
		t.Errorf("another machine with the Machine's token: %s", said)
	}
	p.folder(t, "machines", strings.Replace(p.page.take(t, "The machines", "yaml"), "namespace: example", "namespace: "+metav1.NamespaceDefault, 1), nil)
	p.takes(t, "The machines")
	p.checkExplained(t)
	p.checkMoved(t, m)
	p.checkNodes(t)
	p.checkLog(t, r)
	p.home.checkRights(t, p.rights(t, "clusterapi/rbac.yaml"))

	t.Run("a signer with a CA of your own", func(t *testing.T) { p.testSigner(t, r, second) })
	for i, a := range p.audit(t) {
		if (a.User.Username == controllerUser || a.User.Username == signerUser) && a.ResponseStatus.Code == http.StatusForbidden {
			t.Errorf("on the cluster of the nodes, %s was refused in request %d: %s %+v: %s", a.User.Username, i, a.Verb, a.ObjectRef, a.ResponseStatus.Message)
		}
	}
}

// openClusterAPIPage starts both clusters with two Machines, and a shell with an administrator's tools and
// the management cluster's kubeconfig.
func openClusterAPIPage(t *testing.T) *clusterAPIPage {
	t.Helper()
	bin := managers(t)
	p := &clusterAPIPage{fleet: &fleet{cluster: startCluster(t), home: startCluster(t), version: "v1beta2"}, page: readPage(t, "cluster-api.md", "sh", "yaml"), dir: t.TempDir()}
	for _, c := range []*cluster{p.cluster, p.home} {
		for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
			eventually(t, func() error { return c.admin.Get(t.Context(), client.ObjectKey{Name: name}, new(corev1.Namespace)) })
		}
	}
	p.startSigner(t)
	p.startManagers(t, bin)
	p.secrets(t)
	p.objects(t, 2)
	p.nodes = p.machines(t, 2)
	for i := range p.nodes {
		p.provision(t, &p.nodes[i])
	}
	p.mayReadSigners(t, controller.DefaultName+"-"+fleetCluster)
	p.shell = startShell(t, p.dir, "KUBECONFIG="+p.home.kubeconfig(t, "operator.kubeconfig", "admin", "system:masters"),
		"PATH="+strings.Join([]string{filepath.Dir(buildProgram(t, "kubectl-nodeattest")), controlplane.Binaries(t), os.Getenv("PATH")}, ":"))
	return p
}

// takes runs the commands under a heading of the page.
func (p *clusterAPIPage) takes(t *testing.T, heading string, replaced ...string) {
	t.Helper()
	p.shell.run(t, "( set -e\n"+strings.NewReplacer(replaced...).Replace(p.page.take(t, heading, "sh"))+")")
}

// folder writes a kustomization of the page into a folder of its own, with other files.
func (p *clusterAPIPage) folder(t *testing.T, name, kustomization string, files map[string]string) {
	t.Helper()
	folder := filepath.Join(p.dir, name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	shipped, err := filepath.Abs(filepath.Join("..", "..", "kube", "deploy"))
	if err == nil {
		shipped, err = filepath.Rel(folder, shipped)
	}
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(".../kube/deploy", shipped, "REGISTRY", "registry.example", "sha256:...", "sha256:"+strings.Repeat("0", 64)).Replace(kustomization)
	controlplane.Write(t, folder, "kustomization.yaml", []byte(text))
	for file, text := range files {
		controlplane.Write(t, folder, file, []byte(text))
	}
}

// installs goes through the page's installation, up to the Deployment.
func (p *clusterAPIPage) installs(t *testing.T, roots []byte) {
	t.Helper()
	p.shell.run(t, strings.NewReplacer("=example-1", "="+fleetCluster, "=example", "="+metav1.NamespaceDefault).Replace(p.page.take(t, "Install on the management cluster", "sh")))
	p.folder(t, "nodes", p.page.take(t, "The workload cluster", "yaml"), nil)
	p.takes(t, "The workload cluster")
	p.takes(t, "Its account")
	p.folder(t, "management", p.page.take(t, "The controller", "yaml"), map[string]string{
		"config.yaml": p.page.take(t, "Its configuration", "yaml"), "ek-roots.pem": string(roots)})
	p.shell.run(t, p.applies(t)[0])
}

// applies are the commands that apply the folder management, and wait.
func (p *clusterAPIPage) applies(t *testing.T) []string {
	t.Helper()
	commands := strings.Split(strings.TrimSpace(p.page.take(t, "Its configuration", "sh")), "\n")
	if len(commands) != 2 {
		t.Fatalf("%d commands, want one that applies and one that waits: %q", len(commands), commands)
	}
	return commands
}

// deployment reads a Deployment of the management cluster.
func (p *clusterAPIPage) deployment(t *testing.T, name string) *appsv1.Deployment {
	t.Helper()
	d := new(appsv1.Deployment)
	if err := p.home.admin.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name + "-" + fleetCluster}, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// deployed does for a Deployment what a kubelet does: it runs the program with its flags, with the
// ConfigMap and the Secrets in its folder and as its service account, until it is ready.
func (p *clusterAPIPage) deployed(t *testing.T, name string) *replica {
	t.Helper()
	const mounted = "/etc/nodeattest"
	pod, dir := p.deployment(t, name).Spec.Template.Spec, t.TempDir()
	c := &pod.Containers[0]
	for n, v := range pod.Volumes {
		folder := filepath.Join(dir, strings.TrimPrefix(c.VolumeMounts[n].MountPath, mounted))
		if err := os.MkdirAll(folder, 0o700); err != nil || c.VolumeMounts[n].Name != v.Name {
			t.Fatalf("volume %s, mount %s, %v", v.Name, c.VolumeMounts[n].Name, err)
		}
		for file, text := range p.volume(t, &v) {
			controlplane.Write(t, folder, file, text)
		}
	}
	var config fields
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(controlplane.Read(t, filepath.Join(dir, "config.yaml"))), mounted, dir)), &config); err != nil {
		t.Fatal(err)
	}
	ports := controlplane.FreePorts(t, 2)
	section, _ := config[c.Name].(fields)
	if section == nil {
		section = fields{}
	}
	section["metricsAddress"], section["healthAddress"] = "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1]
	config[c.Name] = section
	config["inventory"].(fields)["clusterAPI"].(fields)["kubeconfig"] = p.home.writeKubeconfig(t, name+".kubeconfig",
		&clientcmdapi.AuthInfo{Token: p.home.serviceAccountToken(t, metav1.NamespaceDefault, pod.ServiceAccountName)})
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	controlplane.Write(t, dir, "config.yaml", text)
	args := strings.Split(strings.ReplaceAll(strings.Join(c.Args, "\n"), mounted, dir), "\n")
	r := &replica{metrics: "http://127.0.0.1:" + ports[0] + "/metrics", health: "http://127.0.0.1:" + ports[1]}
	r.process = startAs(t, c.Name, buildProgram(t, filepath.Base(c.Command[0])), dir, args...)
	r.isReady(t)
	return r
}

// volume reads the files of a volume.
func (p *clusterAPIPage) volume(t *testing.T, v *corev1.Volume) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	if v.ConfigMap != nil {
		o := new(corev1.ConfigMap)
		if err := p.home.admin.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: v.ConfigMap.Name}, o); err != nil {
			t.Fatal(err)
		}
		for name, text := range o.Data {
			files[name] = []byte(text)
		}
		return files
	}
	o := new(corev1.Secret)
	if err := p.home.admin.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: v.Secret.SecretName}, o); err != nil {
		t.Fatal(err)
	}
	return o.Data
}

// rolledOut says of the Deployment what Kubernetes' controller says when its replicas are ready, and waits
// as the page does.
func (p *clusterAPIPage) rolledOut(t *testing.T, name string) {
	t.Helper()
	d := p.deployment(t, name)
	n := *d.Spec.Replicas
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
	if err := p.home.admin.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	p.shell.run(t, p.applies(t)[1])
}

// rights are the shipped rights on the management cluster, for the Cluster.
func (p *clusterAPIPage) rights(t *testing.T, file string) (all [][]byte) {
	t.Helper()
	for _, manifest := range manifests(t, file) {
		all = append(all, []byte(strings.NewReplacer("${CLUSTER_NAME}", fleetCluster, "${NAMESPACE}", metav1.NamespaceDefault).Replace(string(manifest))))
	}
	return all
}

// checkLog looks for refusals of an API server, and for the Machines' tokens.
func (p *clusterAPIPage) checkLog(t *testing.T, r *replica) {
	t.Helper()
	r.checkLog(t)
	for _, m := range p.nodes {
		if _, secret, _ := strings.Cut(m.token, "."); strings.Contains(r.text(t), secret) {
			t.Errorf("%s logs the token of Machine %s", r.name, m.GetName())
		}
	}
}

// checkExplained has the operator's command say why a request was refused: which Machine, and which node
// it is.
func (p *clusterAPIPage) checkExplained(t *testing.T) {
	t.Helper()
	name, said := "", ""
	for _, r := range p.requests(t) {
		for _, c := range r.Status.Conditions {
			if c.Reason == "NotAMember" {
				name, said = r.Name, c.Message
			}
		}
	}
	out := p.shell.run(t, "KUBECONFIG=admin.kubeconfig kubectl nodeattest explain "+name)
	if uid := string(p.nodes[0].GetUID()); !strings.Contains(out, uid) || strings.Contains(said, uid) {
		t.Errorf("request %s: the operator reads\n%s\nand the requester %q, want the Machine's UID %s in the first alone", name, out, said, uid)
	}
	for command, want := range map[string]string{"nodes": "node-1", "pending": "node-2"} {
		if out := p.shell.run(t, "KUBECONFIG=admin.kubeconfig kubectl nodeattest "+command); !strings.Contains(out, want) {
			t.Errorf("%s: no %s in\n%s", command, want, out)
		}
	}
}

// checkNodes looks for what the component clusterapi-nodes leaves out: the cluster of the nodes has no
// program, no challenge keys, and of the account's rights in their namespace those to look for ways around
// attestation and to keep what it observes.
func (p *clusterAPIPage) checkNodes(t *testing.T) {
	t.Helper()
	in := client.InNamespace(namespace)
	for _, list := range []client.ObjectList{new(appsv1.DeploymentList), new(corev1.SecretList), new(corev1.ResourceQuotaList), new(policyv1.PodDisruptionBudgetList), new(networkingv1.NetworkPolicyList)} {
		if err := p.admin.List(t.Context(), list, in); err != nil || meta.LenList(list) != 0 {
			t.Errorf("%T: %d, %v, want none", list, meta.LenList(list), err)
		}
	}
	var roles rbacv1.RoleList
	if err := p.admin.List(t.Context(), &roles, in); err != nil {
		t.Fatal(err)
	}
	var rights []string
	for _, role := range roles.Items {
		for _, rule := range role.Rules {
			if role.Name != "node-attestation-operator" {
				rights = append(rights, role.Name+" "+strings.Join(rule.Resources, ","))
			}
		}
	}
	if want := []string{"node-attestation-controller roles,rolebindings", "node-attestation-controller-observed configmaps"}; !slices.Equal(rights, want) {
		t.Errorf("the rights are %q, want %q", rights, want)
	}
}

// checkMoved gives a node's Machine another UID, as clusterctl move does: the node does not renew until
// its record has the UID that the Machine has.
func (p *clusterAPIPage) checkMoved(t *testing.T, m *nodeMachine) {
	t.Helper()
	adopts := func(uid string) {
		t.Helper()
		p.shell.run(t, fmt.Sprintf("yes | KUBECONFIG=admin.kubeconfig kubectl nodeattest adopt %s --machine-uid %s --without-inventory", m.name, uid))
	}
	adopts("uid-of-a-machine-that-was-moved")
	if _, stderr, err := m.run(t.Context(), "rotate"); err == nil || !strings.Contains(stderr, "MachineUnknown") {
		t.Errorf("a record of no Machine: %v: %s", err, stderr)
	}
	adopts(string(p.nodes[0].GetUID()))
	if _, stderr, err := m.run(t.Context(), "rotate"); err != nil {
		t.Errorf("a record that has its Machine again: %v: %s", err, stderr)
	}
}

// testSigner adds the component with a signer, which certifies another Machine's node.
func (p *clusterAPIPage) testSigner(t *testing.T, before *replica, device *tpmsim.TPM) {
	const heading = "A signer with a CA of your own"
	component := p.page.take(t, heading, "yaml")
	p.folder(t, "nodes", strings.Replace(p.page.take(t, "The workload cluster", "yaml"), ", .../kube/deploy/clusterapi-nodes", ", .../kube/deploy/signer, .../kube/deploy/clusterapi-nodes", 1), nil)
	p.takes(t, "The workload cluster")
	p.takes(t, "Its account", controller.DefaultName, signer.DefaultName)
	controlplane.Write(t, p.dir, "ca.pem", controlplane.CertificatePEM(p.ca.Cert))
	controlplane.Write(t, p.dir, "ca-key.pem", controlplane.PrivatePEM(t, p.ca.Key))
	p.takes(t, heading)
	p.folder(t, "management", p.page.take(t, "The controller", "yaml")+component, map[string]string{
		"config.yaml": p.page.take(t, "Its configuration", "yaml") + p.page.take(t, "Its names and files", "yaml")})
	p.shell.run(t, p.applies(t)[0])
	if status := before.stop(t); status != 0 {
		t.Errorf("the controller ended with status %d", status)
	}
	programs := []*replica{p.deployed(t, controller.DefaultName), p.deployed(t, signer.DefaultName)}
	m := p.install(t, buildProgram(t, "kubelet-authenticator"), "node-2", device, func(config map[string]any) {
		config["providerID"], config["signerName"] = p.nodes[1].providerID, csr.SignerClientTPM
	})
	m.token = m.kubeconfig(t, "bootstrap", &clientcmdapi.AuthInfo{Token: p.nodes[1].token})
	if _, pair := m.credential(t); pair.Leaf.CheckSignatureFrom(p.ca.Cert) != nil {
		t.Errorf("a certificate by %s", pair.Leaf.Issuer)
	}
	for _, r := range programs {
		p.checkLog(t, r)
	}
	p.home.checkRights(t, p.rights(t, "clusterapi-signer/rbac.yaml"))
	p.checkNodes(t)
}
