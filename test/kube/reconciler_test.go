package kube

import (
	"bytes"
	"path/filepath"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestReconciler runs the example of a controller of one's own as the account of the manifest next to
// it, which has each right that it needs and no other.
func TestReconciler(t *testing.T) {
	t.Parallel()
	program := buildFolder(t, "examples/reconciler")
	c := startCluster(t)
	c.prepare(t)
	rights := bytes.Split(controlplane.Read(t, filepath.Join("..", "..", "kube", "examples", "reconciler", "rbac.yaml")), []byte("\n---\n"))
	for _, manifest := range rights {
		c.create(t, manifest)
	}
	ca := newCA(t, "")
	certified := func(name string) *attesttest.Node {
		return attesttest.NewNode(t, attesttest.NodeOptions{Name: name, ClusterID: c.clusterID(t), ExpirationSeconds: 3600,
			TPM: tpmsim.Swtpm(t, tpmsim.Options{CA: ca})})
	}
	node, thief := certified(attesttest.NodeName), certified(attesttest.NodeName)
	p := start(t, program, c.dir,
		"--kubeconfig="+c.writeKubeconfig(t, "reconciler.kubeconfig", &clientcmdapi.AuthInfo{Token: c.serviceAccountToken(t, "kube-system", "nodeattest-reconciler")}),
		"--ca-cert="+controlplane.Write(t, c.dir, "signing.crt", controlplane.CertificatePEM(c.ca.Cert)),
		"--ca-key="+controlplane.Write(t, c.dir, "signing.key", controlplane.PrivatePEM(t, c.ca.Key)),
		"--roots="+controlplane.Write(t, c.dir, "ak-roots.pem", certificatesPEM(node.Roots())),
		"--machines="+controlplane.Write(t, c.dir, "machines.txt", []byte(string(akIdentity(t, node))+" "+node.Name+" "+attesttest.ProviderID+"\n")))

	bootstrapper := c.client(t, c.bearer(t, attesttest.TokenID))
	foreign := file(t, bootstrapper, c.plain(t, node, csr.SignerKubeAPIServerClientKubelet))
	leaf := c.gets(t, bootstrapper, node)
	if id, err := oid.ParseProviderID(leaf.Extensions); err != nil || id != attesttest.ProviderID || leaf.Subject.CommonName != csr.NodeUserPrefix+node.Name {
		t.Errorf("a certificate of %s, with the provider ID %q, %v", leaf.Subject, id, err)
	}
	denied(t, bootstrapper, file(t, bootstrapper, c.plain(t, node, csr.SignerClientTPM)), "AttestationProvider")
	if _, err := challenged(t, bootstrapper, thief); err == nil {
		t.Error("another machine has a challenge")
	}
	if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil || len(foreign.Status.Conditions) != 0 {
		t.Errorf("a request to Kubernetes' signer: %+v, %v, want no condition", foreign.Status, err)
	}
	if status := p.stop(t); status != 0 {
		t.Errorf("status %d; the end of the log:\n%s", status, p.tail())
	}
	c.checkRights(t, rights)
}

// akIdentity is the machine's identity by its AK certificate, as the node's profile has it.
func akIdentity(t *testing.T, node *attesttest.Node) attest.Identity {
	t.Helper()
	for _, source := range node.Profile.Identity {
		if id, err := source.Identify(node.TPM.AKCertificate(tpmsim.RSA2048)); err != nil || id != "" {
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
	}
	t.Fatal("the AK certificate names no machine")
	return ""
}
