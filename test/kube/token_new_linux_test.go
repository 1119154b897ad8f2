package kube

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestTokenForANewMachine: an operator publishes the cluster and makes a token for a machine of the
// inventory that never joined. The machine finds the cluster by the command's text alone and joins under
// that name, and under no other, not even once the token is gone.
func TestTokenForANewMachine(t *testing.T) {
	t.Parallel()
	c := startCluster(t, func(*cluster) []string { return []string{"--anonymous-auth=true"} })
	c.prepare(t)
	c.startSigner(t)
	c.startBootstrapSigner(t)
	program, device := buildProgram(t, "kubelet-authenticator"), tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	r := c.firstUse(t, device, "node-1", "node-2")
	c.makeConfigMap(t, string(controlplane.Read(t, filepath.Join(c.dir, "inventory.yaml"))), func(map[string]any) {})
	o, publisher := c.newOperator(t), c.newPublisher(t)

	o.refuse(t, "token node-1 --new --join", 1, "publishes no discovery document")
	c.testPublish(t, publisher)
	o.run(t, "cluster-info show", "server            "+c.url, "published by      nodeattest", "cluster-info: can read it", "all of kube-public: 403")
	o.refuse(t, "token node-3 --new", 1, "the inventory has no node")
	o.refuse(t, "token node-1", 1, "node node-1 has no record")

	token, command := o.token(t, "node-1", "--new", "--join")
	c.discovers(t, token, command)
	o.run(t, "cluster-info verify --token-file "+controlplane.Write(t, t.TempDir(), "token", []byte(token+"\n")), "signed by token  "+token[:6])

	other := c.install(t, program, "node-2", device, nil)
	other.token = other.kubeconfig(t, "bootstrap", &clientcmdapi.AuthInfo{Token: token})
	if said := other.refused(t); !strings.Contains(said, "RequesterOtherNode") {
		t.Errorf("another name: %s", said)
	}
	t.Run("another name, and then no Secret", func(t *testing.T) { c.testTokenGone(t, o, r, device) })

	machine := c.install(t, program, "node-1", device, nil)
	machine.token = machine.kubeconfig(t, "bootstrap", &clientcmdapi.AuthInfo{Token: token})
	if _, pair := machine.credential(t); pair.Leaf.Subject.CommonName != "system:node:node-1" {
		t.Errorf("a certificate for %s", pair.Leaf.Subject)
	}
	o.refuse(t, "token node-1 --new", 1, "node node-1 has a record, which is bound")
	if _, command := o.token(t, "node-1"); command != "" {
		t.Errorf("without --join it shows %q", command)
	}
}

// newPublisher makes a user with the shipped role for publishing, and nothing else.
func (c *cluster) newPublisher(t *testing.T) *operator {
	t.Helper()
	c.apply(t, "publisher.yaml")
	c.create(t, publisherBinding(t))
	return &operator{kubectl: filepath.Join(controlplane.Binaries(t), "kubectl"), dir: filepath.Dir(buildProgram(t, "kubectl-nodeattest")),
		kubeconfig: c.kubeconfig(t, "publisher.kubeconfig", "publisher", "publishers")}
}

// publisherBinding binds the role to a group.
func publisherBinding(t *testing.T) []byte {
	t.Helper()
	text, err := yaml.Marshal(&rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: bootstraptoken.ClusterInfoNamespace, Name: "publishers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "node-attestation-publisher"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "publishers"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// testPublish publishes with each right of the role, and without any other; and refuses what would cut
// nodes off.
func (c *cluster) testPublish(t *testing.T, o *operator) {
	t.Helper()
	key := client.ObjectKey{Namespace: bootstraptoken.ClusterInfoNamespace, Name: bootstraptoken.ClusterInfoName}
	next := controlplane.NewAuthority(t)
	ours := controlplane.CertificatePEM(c.ca.Cert)
	one, both := controlplane.Write(t, c.dir, "one.pem", ours), controlplane.Write(t, c.dir, "both.pem", slices.Concat(ours, controlplane.CertificatePEM(next.Cert)))
	theirs := controlplane.Write(t, c.dir, "next.pem", controlplane.CertificatePEM(next.Cert))
	publish := "cluster-info publish --server " + c.url + " --ca "
	o.refuse(t, "cluster-info publish --ca "+one, 2, "takes --server and --ca")
	o.refuse(t, "cluster-info publish --server https://127.0.0.1:1 --ca "+one, 3, "is not decided")
	eventually(t, func() error {
		return c.admin.Get(t.Context(), client.ObjectKey{Name: key.Namespace}, new(corev1.Namespace))
	})
	o.run(t, publish+one, "cluster-info: written", "Role kube-public/cluster-info-reader: written", "RoleBinding kube-public/cluster-info-reader: written")
	o.run(t, publish+one, "cluster-info: unchanged", "Role kube-public/cluster-info-reader: unchanged")
	o.run(t, publish+both, "cluster-info: written")
	o.refuse(t, publish+theirs, 1, "server "+c.url+" still serves under the CA")
	o.run(t, publish+one, "cluster-info: written")

	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := c.admin.Get(t.Context(), key, foreign); err != nil {
		t.Fatal(err)
	}
	foreign.Annotations = nil // as kubeadm writes it
	foreign.Data[bootstraptoken.KubeconfigKey] = strings.Replace(foreign.Data[bootstraptoken.KubeconfigKey], c.url, c.url+"/", 1)
	eventually(t, func() error { return c.admin.Patch(t.Context(), foreign, client.Merge) })
	o.refuse(t, publish+one, 1, "another program")
	o.run(t, publish+one+" --replace", "cluster-info: written")
	c.checkRights(t, append(manifests(t, "publisher.yaml"), publisherBinding(t)))
	for _, a := range c.audit(t) {
		if a.User.Username == "publisher" && a.ResponseStatus.Code == 403 {
			t.Errorf("the publisher was refused: %s %+v", a.Verb, a.ObjectRef)
		}
	}
}

// token has the operator make a token. It returns the token, and the command that was shown.
func (o *operator) token(t *testing.T, args ...string) (token, command string) {
	t.Helper()
	cmd := o.command(t.Context(), append([]string{"nodeattest", "token"}, args...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &said)
	}
	token = strings.TrimSpace(string(out))
	if _, err := bootstraptoken.Parse(token); err != nil || strings.Contains(said.String(), token[7:]) {
		t.Fatalf("standard output is not the token alone: %v, %q", err, &said)
	}
	_, command, _ = strings.Cut(said.String(), "with the token in FILE: ")
	return token, strings.TrimSpace(command)
}

// discovers reads the pins and the address out of the command, and finds the cluster with them and the token.
func (c *cluster) discovers(t *testing.T, token, command string) {
	t.Helper()
	words := strings.Fields(command)
	if len(words) < 7 || strings.Join(words[:4], " ") != "kubelet-authenticator discover --token-file FILE" {
		t.Fatalf("got the command %q", command)
	}
	config := bootstraptoken.DiscoverConfig{Addresses: words[len(words)-1:], Network: bootstraptoken.Network{Timeout: patience}}
	for n := 4; n < len(words)-1; n += 2 {
		pin, err := bootstraptoken.ParsePin(words[n+1])
		if err != nil || words[n] != "--ca-cert-hash" {
			t.Fatalf("%s: %v", words[n], err)
		}
		config.Pins = append(config.Pins, pin)
	}
	var err error
	if config.Token, err = bootstraptoken.Parse(token); err != nil {
		t.Fatal(err)
	}
	found, err := bootstraptoken.Discover(t.Context(), config)
	if err != nil || found.Info.Server != c.url || len(found.Info.CAs) != 1 || !found.Info.CAs[0].Equal(c.ca.Cert) {
		t.Fatalf("%+v, %v", found, err)
	}
}

// testTokenGone files a request for another name, and deletes the token's Secret before the controller sees
// the request.
func (c *cluster) testTokenGone(t *testing.T, o *operator, r *replica, device *tpmsim.TPM) {
	token, _ := o.token(t, "node-1", "--new")
	if status := r.stop(t); status != 0 {
		t.Fatalf("%s ended with status %d", controller.DefaultName, status)
	}
	as := c.client(t, c.withToken(t, token))
	n := c.nodeOn(t, device, "node-2")
	hello, err := n.Attester.Hello(t.Context(), n.Subject)
	if err != nil {
		t.Fatal(err)
	}
	object := file(t, as, hello)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: bootstraptoken.SecretName(token[:6])}}
	if err := c.admin.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if err := r.launch(); err != nil {
		t.Fatal(err)
	}
	r.isReady(t)
	denied(t, c.admin, object, "RequesterOtherNode")
}
