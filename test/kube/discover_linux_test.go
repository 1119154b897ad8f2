package kube

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// bareKubelet is the unit of a kubelet on a machine that no installer has touched. With its address, the kubelet
// does not ask for that of its name, which a machine without DNS takes 20 s to miss.
const bareKubelet = `[Unit]
After=kubelet-authenticator.service

[Service]
ExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml --kubeconfig=/etc/kubernetes/kubelet.conf --node-ip=192.0.2.10
Restart=always
RestartSec=1

[Install]
WantedBy=multi-user.target
`

// TestDiscover has a machine with nothing but a token, an address and a pin become a node: it finds the
// cluster, attests, and its kubelet is ready. Before there is trust it sends only anonymous requests for the
// discovery document.
func TestDiscover(t *testing.T) {
	t.Parallel()
	g := boxNeeds(t, 2)
	program := buildProgram(t, "kubelet-authenticator")
	c := startJoinable(t, anonymous)
	c.signsDiscovery(t)
	c.publish(t, c.ca)
	t.Run("refused", func(t *testing.T) { c.testDiscoverRefused(t, program) })
	from := len(c.audit(t))

	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	r := c.firstUse(t, device, "worker-1")
	m := c.newMember(t, "worker-1", g, device, "/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/ca.crt", "minimumVersion: 0", "minimumVersion: 0\ndiscovery: {interval: 10s}")
	m.cut = m.connect(t, c.address())
	m.run(t, "[ -z \"$(ls -A /etc/kubernetes)\" ]")
	m.put(t, "/run/token", 0o600, []byte(attesttest.TokenID+"."+tokenSecret+"\n"))
	out := m.run(t, "kubelet-authenticator discover --token-file /run/token --ca-cert-hash "+pin(c.ca)+" "+c.address()+"; rm /run/token; stat -c '%a %n' /etc/kubernetes/*")
	for _, want := range []string{"600 /etc/kubernetes/ca.crt\n", "600 /etc/kubernetes/kubelet-authenticator.conf\n", pin(c.ca)} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	t.Logf("%s", out)
	c.checkAnonymous(t, from)

	files := maps.Clone(daemonFiles)
	delete(files, "kubelet-authenticator.conf") // discover wrote it
	files["kubelet.conf"] = kubeletFiles["kubelet.conf"]
	m.put(t, "/etc/systemd/system/kubelet-authenticator.service.d/discovery.conf", 0o644, []byte("[Service]\nReadWritePaths=/etc/kubernetes\n"))
	m.put(t, "/usr/lib/systemd/system/kubelet.service", 0o644, []byte(bareKubelet))
	m.put(t, "/var/lib/kubelet/config.yaml", 0o600, fmt.Appendf(nil, kubeletConfig, startRuntime(t, m.dir), "10250", "/etc/kubernetes/ca.crt", "/var/lib/kubelet/podlogs", "/var/lib/kubelet/plugins", ""))
	m.run(t, "ln -sf "+controlplane.Kubelet(t)+" /usr/bin/kubelet")
	m.install(t, "", files)
	began := time.Now()
	m.run(t, "systemctl enable kubelet-authenticator kubelet; systemctl start --no-block kubelet-authenticator kubelet")
	m.alive(t, began)
	c.nodeReady(t, m.name)
	var record v1alpha1.AttestedNode
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: m.name}, &record); err != nil || record.Spec.State != v1alpha1.NodeBound {
		t.Errorf("the record is %+v, %v", record.Spec, err)
	}
	m.eventually(t, func() error {
		if text := m.run(t, "kubelet-authenticator status"); !strings.Contains(text, "Discovery document: last verified 2") || strings.Contains(text, "Problem") {
			return fmt.Errorf("%w:\n%s", errNotYet, text)
		}
		return nil
	})
	r.checkLog(t)
}
