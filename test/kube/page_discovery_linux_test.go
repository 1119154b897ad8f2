package kube

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A discoveryPage is an operator who does as docs/discovery.md says, on a cluster that takes anonymous
// requests as the page configures it.
type discoveryPage struct {
	*cluster
	page  *page
	shell *shell
	dir   string
	// next is the CA that replaces the cluster's.
	next *controlplane.Authority
}

// TestDiscoveryPage goes through docs/discovery.md, command by command: an operator publishes the cluster
// and makes a token, a machine finds the cluster and joins, and the API server gets a certificate of
// another CA. It takes anonymous requests to the page's paths and to no other.
func TestDiscoveryPage(t *testing.T) {
	t.Parallel()
	p := openDiscoveryPage(t)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	p.firstUse(t, device, "node-1")
	p.makeConfigMap(t, string(controlplane.Read(t, filepath.Join(p.cluster.dir, "inventory.yaml"))), func(map[string]any) {})
	p.testAnonymous(t)

	says(t, p.takes(t, "Publish"), "ConfigMap kube-public/cluster-info: written", "/livez: can read it", "all of kube-public: 401", "/version: 401")
	said := p.takes(t, "Join a bare machine", "NODE", "node-1", "> token", "2>&1 >token")
	_, command, _ := strings.Cut(said, "with the token in FILE: ")
	pin := strings.Fields(command)[5]
	section := p.page.take(t, "Keep the node's view of the cluster current", "yaml")
	node := p.install(t, buildProgram(t, "kubelet-authenticator"), "node-1", device, func(config map[string]any) {
		if err := yaml.UnmarshalStrict([]byte(section), &config); err != nil || config["discovery"] == nil {
			t.Fatalf("%v, %s", err, section)
		}
	})
	says(t, p.takes(t, "On the machine", "sha256:...", pin, "authenticator discover", "authenticator discover --dir "+node.dir), "cluster: "+p.url, "CA: "+pin)
	says(t, p.takes(t, "Whether a token has signed"), "signed by token", p.url, pin)

	token := p.shell.run(t, "cat token")
	node.token = filepath.Join(node.dir, "kubelet-authenticator.conf")
	if text := string(controlplane.Read(t, node.token)); !strings.Contains(text, strings.TrimSpace(token)) || !strings.Contains(text, filepath.Join(node.dir, "ca.crt")) {
		t.Error("discover's kubeconfig lacks the token or the CA's file")
	}
	text := strings.Replace(string(controlplane.Read(t, node.config)), filepath.Join(node.dir, "bootstrap.kubeconfig"), node.token, 1)
	controlplane.Write(t, node.dir, filepath.Base(node.config), []byte(text))
	if _, pair := node.credential(t); pair.Leaf.Subject.CommonName != "system:node:node-1" {
		t.Errorf("a certificate for %s", pair.Leaf.Subject)
	}
	p.testRotation(t)
	p.testComponent(t)
}

// openDiscoveryPage starts the cluster, and a shell with an administrator's tools and a kubeconfig that
// trusts both CAs.
func openDiscoveryPage(t *testing.T) *discoveryPage {
	t.Helper()
	p := &discoveryPage{page: readPage(t, "discovery.md", "sh", "yaml"), dir: t.TempDir(), next: controlplane.NewAuthority(t)}
	config := p.page.take(t, "Leave one path to anonymous clients", "yaml")
	p.cluster = startCluster(t, func(c *cluster) []string {
		return []string{"--authentication-config=" + controlplane.Write(t, c.dir, "authentication.yaml", []byte(config))}
	})
	p.prepare(t)
	p.startSigner(t)
	p.startBootstrapSigner(t)
	ours, theirs := controlplane.CertificatePEM(p.ca.Cert), controlplane.CertificatePEM(p.next.Cert)
	controlplane.Write(t, p.dir, "ca.crt", ours)
	controlplane.Write(t, p.dir, "new-ca.crt", theirs)
	as := p.user(t, "admin", "system:masters")
	kubeconfig := controlplane.Kubeconfig(t, p.dir, "operator.kubeconfig", &clientcmdapi.Cluster{Server: p.url, CertificateAuthorityData: slices.Concat(ours, theirs)},
		&clientcmdapi.AuthInfo{ClientCertificateData: as.CertData, ClientKeyData: as.KeyData})
	folders := []string{filepath.Dir(buildProgram(t, "kubectl-nodeattest")), filepath.Dir(buildProgram(t, "kubelet-authenticator")), controlplane.Binaries(t), os.Getenv("PATH")}
	p.shell = startShell(t, p.dir, "KUBECONFIG="+kubeconfig, "PATH="+strings.Join(folders, ":"))
	eventually(t, func() error {
		return p.admin.Get(t.Context(), client.ObjectKey{Name: "kube-public"}, new(corev1.Namespace))
	})
	return p
}

// takes runs the commands under a heading of the page.
func (p *discoveryPage) takes(t *testing.T, heading string, replaced ...string) string {
	t.Helper()
	return p.shell.run(t, p.commands(t, heading, replaced...))
}

func (p *discoveryPage) commands(t *testing.T, heading string, replaced ...string) string {
	t.Helper()
	return "( set -e\n" + strings.NewReplacer(append(replaced, "https://API_SERVER:6443", p.url)...).Replace(p.page.take(t, heading, "sh")) + ")"
}

func says(t *testing.T, said string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(said, w) {
			t.Errorf("got\n%s\nwant %q", said, w)
		}
	}
}

// testAnonymous asks the API server for paths without a credential: the page's, as a whole and without
// their queries, and no other, health checks among them.
func (p *discoveryPage) testAnonymous(t *testing.T) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(p.ca.Cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}
	defer transport.CloseIdleConnections()
	const document = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
	for path, want := range map[string]int{
		document: http.StatusForbidden, // until it is published, with the role
		"/livez": http.StatusOK, "/readyz": http.StatusOK, "/healthz": http.StatusOK, "/livez?verbose": http.StatusOK,
		document + "/": http.StatusUnauthorized, "/api/v1/namespaces/kube-public/configmaps": http.StatusUnauthorized,
		"/livez/ping": http.StatusUnauthorized, "/readyz/ping": http.StatusUnauthorized, "/version": http.StatusUnauthorized, "/": http.StatusUnauthorized,
	} {
		res, err := (&http.Client{Transport: transport}).Get(p.url + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, res.Status, want)
		}
	}
}

// testRotation gives the API server a certificate of the next CA. The old CA is not dropped before that.
func (p *discoveryPage) testRotation(t *testing.T) {
	says(t, p.takes(t, "Rotate the CA"), "cluster-info: written")
	command := p.commands(t, "The new one alone")
	if out, err := p.shell.try(t, command); err == nil || !strings.Contains(out, "still serves under the CA") {
		t.Errorf("the old CA is dropped while the server serves under it: %v", err)
	}
	cert, key := p.next.Issue(t, pkix.Name{CommonName: "kube-apiserver"}, x509.ExtKeyUsageServerAuth, net.IPv4(127, 0, 0, 1))
	controlplane.Write(t, p.cluster.dir, "serving.key", key) // for a moment the two do not fit, and the server keeps its certificate
	controlplane.Write(t, p.cluster.dir, "serving.crt", cert)
	eventually(t, func() error {
		out, err := p.shell.try(t, command)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	says(t, p.shell.run(t, "kubectl nodeattest cluster-info show"), "published by      nodeattest", "cluster-info: can read it")
}

// testComponent builds the page's kustomization, and has its publisher publish both CAs.
func (p *discoveryPage) testComponent(t *testing.T) {
	const heading = "Sign, publish and clean without kube-controller-manager"
	folder := filepath.Join(p.dir, "my-cluster")
	shipped, err := filepath.Abs(filepath.Join("..", "..", "kube", "deploy"))
	if err == nil {
		shipped, err = filepath.Rel(folder, shipped)
	}
	if err = errors.Join(err, os.Mkdir(folder, 0o700)); err != nil {
		t.Fatal(err)
	}
	config := p.page.take(t, "Its configuration", "yaml")
	first, _, _ := strings.Cut(config, "controllers:")
	controlplane.Write(t, folder, "kustomization.yaml", []byte(strings.ReplaceAll(p.page.take(t, heading, "yaml"), "../kube/deploy", shipped)))
	controlplane.Write(t, folder, "signer.yaml", []byte(config))
	controlplane.Write(t, folder, "cleaner.yaml", []byte(first+"controllers: [cleaner]\n"))
	says(t, p.shell.run(t, "kubectl kustomize my-cluster"), "name: bootstrap-signer\n", "name: bootstrap-cleaner\n", "signer.yaml: |")

	ports := controlplane.FreePorts(t, 2)
	text := strings.NewReplacer("https://api.example.com:6443", p.url, "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt", filepath.Join(p.dir, "both.crt")).Replace(config) +
		"metricsAddress: 127.0.0.1:" + ports[0] + "\nhealthAddress: 127.0.0.1:" + ports[1] + "\n"
	startAs(t, "bootstrap-controller", buildProgram(t, "bootstrap-controller"), p.dir, "--config="+controlplane.Write(t, p.dir, "signer.yaml", []byte(text)),
		"--kubeconfig="+filepath.Join(p.dir, "operator.kubeconfig"))
	eventually(t, func() error {
		if out := p.shell.run(t, "kubectl nodeattest cluster-info show"); strings.Count(out, "\nCA ") != 2 {
			return fmt.Errorf("not both CAs in:\n%s", out)
		}
		return nil
	})
}
