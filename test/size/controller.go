package main

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/kube/deploy"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

const (
	namespace = "nodeattest-system"
	account   = "node-attestation-controller"
	// replicas, memoryLimit and memoryLimitMB are as in kube/deploy/deployment.yaml.
	replicas      = 2
	memoryLimit   = "GOMEMLIMIT=256MiB"
	memoryLimitMB = 512 << 20 / 1e6
	// restart is the first pause of a kubelet before it starts a container again.
	restart = 10 * time.Second
)

// builds builds the controller once.
var builds = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "nodeattest-size-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, account)
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir, cmd.Env = filepath.Join("..", "..", "kube", "cmd", account), append(os.Environ(), "CGO_ENABLED=0") // as the image's
	cmd.Stderr = os.Stderr
	return path, cmd.Run()
})

// install applies the shipped manifests, with the component enforce.
func (c *cluster) install() {
	c.apply("crd/*.yaml", "rbac.yaml", "operator.yaml", "publisher.yaml", "admission.yaml", "approval.yaml", "records.yaml",
		"observe.yaml", "enforce/*.yaml")
}

// startControllers starts the replicas of the shipped controller with the shipped configuration, but for
// the inventory, the roots and the algorithm of the nodes' keys.
func (c *cluster) startControllers(ca *tpmsim.CA, f *fleet) (all []*program) {
	built, err := builds()
	c.check(err)
	for i := range replicas {
		name := "controller-" + string(rune('a'+i))
		ports := controlplane.FreePorts(c.t, 2)
		p := c.start(name, built, []string{memoryLimit}, "--config="+c.controllerConfig(name, ca, f, ports),
			"--kubeconfig="+c.kubeconfigOf(name+".kubeconfig", &clientcmdapi.AuthInfo{Token: c.accountToken()}))
		p.ready(func() error { return controlplane.Healthy("http://127.0.0.1:" + ports[1] + "/readyz") })
		p.keep(restart)
		p.metrics = "http://127.0.0.1:" + ports[0] + "/metrics"
		all = append(all, p)
	}
	return all
}

func (c *cluster) controllerConfig(name string, ca *tpmsim.CA, f *fleet, ports []string) string {
	manifests, err := deploy.Manifests("config.yaml")
	c.check(err)
	var config map[string]any
	c.check(yaml.UnmarshalStrict(manifests[0], &config))
	var machines []map[string]string
	for _, n := range f.nodes {
		machines = append(machines, map[string]string{"nodeName": n.name, "identity": n.identity})
	}
	inventory, err := yaml.Marshal(map[string]any{"machines": machines})
	c.check(err)
	config["cluster"].(map[string]any)["caFile"] = filepath.Join(c.dir, "ca.crt")
	config["inventory"] = map[string]any{"file": controlplane.Write(c.t, c.dir, "inventory.yaml", inventory)}
	config["tpm"].(map[string]any)["ekIssuers"] = []any{map[string]any{
		"rootsFile": controlplane.Write(c.t, c.dir, "ek-roots.pem", controlplane.CertificatePEM(ca.Root())), "profile": "tcg"}}
	config["membership"].(map[string]any)["identityClass"] = "P-256"
	addresses := config["controller"].(map[string]any)
	addresses["metricsAddress"], addresses["healthAddress"] = net.JoinHostPort("127.0.0.1", ports[0]), net.JoinHostPort("127.0.0.1", ports[1])
	text, err := yaml.Marshal(config)
	c.check(err)
	return controlplane.Write(c.t, c.dir, name+".yaml", text)
}

// accountToken is a token such as the controller's pod has.
func (c *cluster) accountToken() string {
	lasts := int64(24 * 3600)
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &lasts}}
	o := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	c.eventually(func() error { return c.admin.SubResource("token").Create(c.t.Context(), o, token) })
	return token.Status.Token
}

// leads reports whether a replica is the one that decides.
func (p *program) leads() bool {
	of, err := scrape(http.DefaultClient, p.metrics)
	return err == nil && of[`leader_election_master_status{name="`+account+`"}`] == 1
}
