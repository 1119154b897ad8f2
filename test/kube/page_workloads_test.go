package kube

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// exampleService is the namespace, the Deployment and the account of the example service.
const exampleService = "boundtokens-example"

// TestWorkloadsPage installs the example service as docs/workloads.md says, and runs its program as the
// Deployment does. The example of a caller calls it from an attested node. Each right of the service was
// needed, and none was missing.
func TestWorkloadsPage(t *testing.T) {
	t.Parallel()
	c := startJoinable(t)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	c.firstUse(t, device, "node-1")
	m := c.install(t, buildProgram(t, "kubelet-authenticator"), "node-1", device, nil)
	_, pair := m.credential(t)
	c.recorded(t, m.name, pair.Leaf)
	c.makePodAccount(t)
	c.makeNode(t, m.name)

	service, url, audience := c.exampleService(t)
	pod := c.makePod(t, "own", m.name, podAccount, audience)
	_, api := m.asNode(t)
	eventually(t, func() error { // admission learns of the pod a moment later
		_, err := askToken(t, api, pod.Name, pod.UID, audience)
		return err
	})
	m.example(t, pod, url, c.ca.Cert, audience)
	decisions := counted(t, service, "nodeattest_token_decisions_total")
	t.Logf("decisions: %v", decisions)
	for labels, n := range decisions {
		if want := labels == `check="accepted",protocol="http"`; n != 0 != want || len(decisions) < 4 {
			t.Errorf("the service counts %v, want one that it accepted", decisions)
		}
	}
	c.checkRights(t, manifests(t, "boundtokens/rbac.yaml"))
}

// exampleService goes through the page's installation, and stands in for the Deployment's kubelet.
func (c *cluster) exampleService(t *testing.T) (r *replica, url, audience string) {
	t.Helper()
	p, dir := readPage(t, "workloads.md", "sh", "yaml"), t.TempDir()
	folder := filepath.Join(dir, "my-cluster")
	shipped, err := filepath.Abs(filepath.Join("..", "..", "kube", "deploy"))
	if err == nil {
		shipped, err = filepath.Rel(folder, shipped)
	}
	if err = errors.Join(err, os.Mkdir(folder, 0o700)); err != nil {
		t.Fatal(err)
	}
	const heading = "Deploy an example"
	controlplane.Write(t, folder, "kustomization.yaml", []byte(strings.NewReplacer(".../kube/deploy", shipped, "REGISTRY", "registry.example",
		"sha256:...", "sha256:"+strings.Repeat("0", 64)).Replace(p.take(t, heading, "yaml"))))
	certificate, key := c.ca.Issue(t, pkix.Name{CommonName: exampleService}, x509.ExtKeyUsageServerAuth, net.IPv4(127, 0, 0, 1))
	controlplane.Write(t, dir, "service.crt", certificate)
	controlplane.Write(t, dir, "service.key", key)
	s := startShell(t, dir, "KUBECONFIG="+c.kubeconfig(t, "operator.kubeconfig", "admin", "system:masters"), "PATH="+controlplane.Binaries(t)+":"+os.Getenv("PATH"))
	s.run(t, "( set -e\n"+p.take(t, heading, "sh")+")")

	var deployment appsv1.Deployment
	var secret corev1.Secret
	for name, object := range map[string]client.Object{exampleService: &deployment, exampleService + "-tls": &secret} {
		if err := c.admin.Get(t.Context(), client.ObjectKey{Namespace: exampleService, Name: name}, object); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range secret.Data {
		controlplane.Write(t, dir, file, text)
	}
	ports := controlplane.FreePorts(t, 3)
	args := []string{"--https=127.0.0.1:" + ports[0], "--grpc=127.0.0.1:" + ports[1], "--health=127.0.0.1:" + ports[2], "--kubeconfig=" + c.writeKubeconfig(t, "service.kubeconfig",
		&clientcmdapi.AuthInfo{Token: c.serviceAccountToken(t, exampleService, deployment.Spec.Template.Spec.ServiceAccountName)})}
	for _, arg := range deployment.Spec.Template.Spec.Containers[0].Args {
		if value, ok := strings.CutPrefix(arg, "--audience="); ok {
			audience = value
		}
		args = append(args, strings.NewReplacer("/etc/boundtokens/tls", dir, "/etc/boundtokens/client-ca", c.dir).Replace(arg))
	}
	health := "http://127.0.0.1:" + ports[2]
	r = &replica{process: startAs(t, exampleService, buildFolder(t, "examples/boundtokens"), dir, args...), metrics: health + "/metrics"}
	r.ready(t, func() error { return controlplane.Healthy(health + "/healthz") })
	return r, "https://127.0.0.1:" + ports[0], audience
}
