package kube

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A follower is a machine that found its cluster by discover, and whose daemon keeps its files current.
type follower struct {
	*nodeMachine
	files  string // the folder of ca.crt and kubelet-authenticator.conf
	daemon *process
}

// newFollower discovers the cluster on a machine with a TPM, and starts the daemon.
func (c *cluster) newFollower(t *testing.T, program, name string, device *tpmsim.TPM) *follower {
	t.Helper()
	f := &follower{files: t.TempDir()}
	f.nodeMachine = c.install(t, program, name, device, func(config map[string]any) {
		config["kubeconfig"] = filepath.Join(f.files, "kubelet-authenticator.conf")
		config["discovery"] = map[string]any{"interval": "10s"}
	})
	f.discover(t)
	f.daemon = startAs(t, name, program, f.dir, "--config", f.config, "daemon")
	f.renews(t)
	return f
}

// discover runs the command discover with the cluster's CA.
func (f *follower) discover(t *testing.T, more ...string) {
	t.Helper()
	args := append(more, "--dir", f.files, "--token-file", tokenFile(t, attesttest.TokenID+"."+tokenSecret), "--ca-cert-hash", pin(f.c.ca), f.c.address())
	if status, out := discover(t, f.program, args...); status != 0 {
		t.Fatalf("%s: status %d: %s", f.name, status, out)
	}
}

// knows waits until the node's file has these CAs and no others.
func (f *follower) knows(t *testing.T, cas ...*controlplane.Authority) {
	t.Helper()
	eventually(t, func() error {
		found, err := bootstraptoken.ParseCAs(controlplane.Read(t, filepath.Join(f.files, "ca.crt")))
		if err == nil && len(found) != len(cas) {
			err = fmt.Errorf("%s has %d CAs, want %d; the daemon's log ends\n%s", f.name, len(found), len(cas), f.daemon.tail())
		}
		for i, ca := range cas {
			if err == nil && !found[i].Equal(ca.Cert) {
				err = fmt.Errorf("%s has another CA %d", f.name, i)
			}
		}
		return err
	})
}

// renews has the node get a new certificate, and renew its Lease with it: by the CAs and the server of its own
// files.
func (f *follower) renews(t *testing.T) *x509.Certificate {
	t.Helper()
	if _, stderr, err := f.run(t.Context(), "rotate"); err != nil {
		t.Fatalf("%s: %v: %s", f.name, err, stderr)
	}
	credential, pair := f.credential(t)
	own, err := clientcmd.BuildConfigFromFlags("", filepath.Join(f.files, "kubelet-authenticator.conf"))
	if err != nil {
		t.Fatal(err)
	}
	as := f.c.client(t, &rest.Config{Host: own.Host, TLSClientConfig: rest.TLSClientConfig{CAFile: own.CAFile, CertData: []byte(credential.Status.ClientCertificateData), KeyData: []byte(credential.Status.ClientKeyData)}})
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: f.name}}
	eventually(t, func() error {
		err := as.Get(t.Context(), client.ObjectKeyFromObject(lease), lease)
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &f.name, new(int32(40)), &metav1.MicroTime{Time: time.Now()}
		switch {
		case apierrors.IsNotFound(err):
			return as.Create(t.Context(), lease)
		case err != nil:
			return err
		}
		return as.Update(t.Context(), lease)
	})
	return pair.Leaf
}

// signsBy starts the signer of Kubernetes with a CA's key.
func (c *cluster) signsBy(t *testing.T, ca *controlplane.Authority) *process {
	t.Helper()
	of := &cluster{ca: ca, url: c.url, dir: t.TempDir(), scheme: c.scheme}
	controlplane.Write(t, of.dir, "ca.crt", controlplane.CertificatePEM(ca.Cert))
	return of.startSigner(t)
}

// serveBy restarts the API server: it trusts these CAs for clients, and serves by a certificate of the last
// one, by which the test reaches it from now on.
func (c *cluster) serveBy(t *testing.T, cas ...*controlplane.Authority) {
	t.Helper()
	c.trustClients(t, cas...)
	c.ca = cas[len(cas)-1]
	cert, key := c.ca.Issue(t, pkix.Name{CommonName: "kube-apiserver"}, x509.ExtKeyUsageServerAuth, net.IPv4(127, 0, 0, 1))
	controlplane.Write(t, c.dir, "serving.crt", cert)
	controlplane.Write(t, c.dir, "serving.key", key)
	c.server.kill(t) // it would wait for watches to end
	if err := c.server.launch(); err != nil {
		t.Fatal(err)
	}
	c.admin = c.client(t, c.user(t, "admin", "system:masters"))
	eventually(t, func() error {
		return c.admin.Get(t.Context(), client.ObjectKey{Namespace: "kube-node-lease", Name: "node-1"}, new(coordinationv1.Lease))
	})
}

// trustClients writes the file of the CAs that sign certificates of clients.
func (c *cluster) trustClients(t *testing.T, cas ...*controlplane.Authority) {
	t.Helper()
	var all []byte
	for _, ca := range cas {
		all = append(all, controlplane.CertificatePEM(ca.Cert)...)
	}
	controlplane.Write(t, c.dir, "ca.crt", all)
}

// TestCARotation replaces the CA of a cluster. Three nodes that are on keep their leases, and get new
// certificates, at each step: the document names both CAs, the API server and the signer use the new one, the
// document drops the old one, the API server trusts it no longer. A node that was off in between says in one
// sentence that it has to discover the cluster again.
func TestCARotation(t *testing.T) {
	t.Parallel()
	program := buildProgram(t, "kubelet-authenticator")
	c := startCluster(t, anonymous)
	c.prepare(t)
	before, next := c.ca, controlplane.NewAuthority(t)
	signer := c.signsBy(t, before)
	c.signsDiscovery(t)
	c.publish(t, before)
	maker := newCA(t, "")
	devices := map[string]*tpmsim.TPM{}
	for _, name := range []string{"node-1", "node-2", "node-3", "node-4"} {
		devices[name] = tpmsim.Swtpm(t, tpmsim.Options{CA: maker, PersistEKs: true})
	}
	r := c.firstUse(t, devices["node-1"], "node-1", "node-2", "node-3", "node-4")
	var nodes []*follower
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		nodes = append(nodes, c.newFollower(t, program, name, devices[name]))
	}
	sleeper := c.newFollower(t, program, "node-4", devices["node-4"])
	sleeper.daemon.stop(t)
	live := func(step string, by *controlplane.Authority) {
		t.Helper()
		began := time.Now()
		for _, node := range nodes {
			if leaf := node.renews(t); leaf.CheckSignatureFrom(by.Cert) != nil {
				t.Errorf("%s: %s has a certificate of another CA", step, node.name)
			}
		}
		t.Logf("%s: three nodes have renewed, in %s", step, time.Since(began).Round(time.Millisecond))
	}
	controls := func(name string) { // with the CAs that are known when it starts
		t.Helper()
		r = c.startController(t, buildProgram(t, controller.DefaultName), name, func(config map[string]any) {
			config["membership"].(map[string]any)["mode"] = "FirstUse"
		})
		r.isReady(t)
	}
	know := func(cas ...*controlplane.Authority) {
		t.Helper()
		began := time.Now()
		for _, node := range nodes {
			node.knows(t, cas...)
		}
		t.Logf("three nodes know %d CAs after %s", len(cas), time.Since(began).Round(time.Millisecond))
	}
	live("before", before)

	c.publish(t, before, next)
	know(before, next)
	c.trustClients(t, before, next)
	r.stop(t)
	controls("controller-2")
	live("both CAs are published", before)

	signer.stop(t)
	r.stop(t)
	c.serveBy(t, before, next)
	c.startBootstrapSigner(t)
	c.signsBy(t, next)
	controls("controller-3")
	live("the API server and the signer use the new CA", next)

	c.publish(t, next)
	know(next)
	r.stop(t) // without the API server it loses its lease and ends; a Deployment starts it again
	c.serveBy(t, next)
	controls("controller-4")
	live("the old CA is gone", next)
	for _, node := range nodes {
		if text, _, _ := node.run(t.Context(), "status"); strings.Contains(text, "Problem") {
			t.Errorf("%s: %s", node.name, text)
		}
	}
	sleeper.testSleeper(t)
	r.checkLog(t)
}

// testSleeper wakes a node that knows the old CA alone.
func (f *follower) testSleeper(t *testing.T) {
	if err := f.daemon.launch(); err != nil {
		t.Fatal(err)
	}
	var said []string
	eventually(t, func() error {
		said = nil
		for _, problem := range f.status(t).Problems {
			if strings.Contains(problem, "discover") {
				said = append(said, problem)
			}
		}
		if len(said) == 0 {
			return errors.Join(errNotYet, errors.New(string(f.daemon.tail())))
		}
		return nil
	})
	if len(said) != 1 || strings.Contains(said[0], "\n") || !strings.Contains(said[0], "kubelet-authenticator discover --replace") {
		t.Errorf("it says %q", said)
	}
	t.Logf("%s says: %s", f.name, said[0])
	old := controlplane.Read(t, filepath.Join(f.files, "ca.crt"))
	if cas, err := bootstraptoken.ParseCAs(old); err != nil || len(cas) != 1 || cas[0].Equal(f.c.ca.Cert) {
		t.Errorf("it has changed its CAs: %v", err)
	}
	f.discover(t, "--replace")
	f.knows(t, f.c.ca)
	leaf := f.renews(t)
	if leaf.CheckSignatureFrom(f.c.ca.Cert) != nil {
		t.Error("its certificate is another CA's")
	}
	f.c.recorded(t, f.name, leaf)
	if n := f.c.filedBy(t, csr.NodeUserPrefix+f.name); n == 0 {
		t.Log("it came back by the bootstrap token")
	}
}
