package kube

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// lost is a cluster with trust on first use and a node that runs, which may lose its records, and
// another machine that wants to be that node.
type lost struct {
	*cluster
	node, thief *attesttest.Node
	machine     string // the node's
	own, token  client.Client
	leaf        *x509.Certificate // the node's certificate, with which own files
}

// TestLost has nodes renew after a loss: the records of a cluster, the room on a disk,
// and room in the record for the certificate in use.
func TestLost(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.prepare(t)
	c.apply(t, "serving/rbac.yaml")
	c.startSigner(t)
	ca := newCA(t, "")
	swtpm := func() *tpmsim.TPM { return tpmsim.Swtpm(t, tpmsim.Options{CA: ca, PersistEKs: true}) }
	w := &lost{cluster: c, node: c.nodeOn(t, swtpm(), "node-1"), thief: c.nodeOn(t, swtpm(), "node-1"), token: c.client(t, c.bearer(t, attesttest.TokenID))}
	c.writeRoots(t, w.node)
	w.knows(t, "")
	c.startController(t, buildProgram(t, "node-attestation-controller"), "controller", func(config map[string]any) {
		config["membership"].(map[string]any)["mode"] = "FirstUse"
		config["signers"].(map[string]any)["builtInDuration"] = "1h"
	}).isReady(t)
	w.leaf = c.joins(t, w.token, w.node)
	w.own = c.withCertificate(t, tls.Certificate{Certificate: [][]byte{w.leaf.Raw}, PrivateKey: w.node.Key, Leaf: w.leaf})
	w.machine = w.record(t).Machine
	if err := c.admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node.Name}}); err != nil {
		t.Fatal(err)
	}
	t.Run("a full disk", func(t *testing.T) { testFullDisk(t, c, swtpm()) })
	t.Run("the certificate in use stays in the record", w.testInUse)
	t.Run("the inventory names the machine", w.testNamed)
	t.Run("an operator approves the machine", w.testApproved)
}

// knows writes an inventory that has an identity for the node, or none.
func (w *lost) knows(t *testing.T, identity string) {
	t.Helper()
	controlplane.Write(t, w.dir, "inventory.yaml", []byte("machines:\n- {nodeName: node-2, uid: u2}\n- {nodeName: node-1, uid: u1, dnsNames: [node-1], identity: \""+identity+"\"}\n"))
}

func (w *lost) record(t *testing.T) *v1alpha1.AttestedNodeSpec {
	t.Helper()
	var record v1alpha1.AttestedNode
	if err := w.admin.Get(t.Context(), client.ObjectKey{Name: w.node.Name}, &record); err != nil {
		t.Fatal(err)
	}
	return &record.Spec
}

// refused expects a machine to be refused, at its answer at the latest: a hello may be admitted by a
// cache that is behind.
func (w *lost) refused(t *testing.T, as client.Client, node *attesttest.Node) {
	t.Helper()
	challenge, err := challenged(t, as, node)
	if err != nil {
		if !strings.Contains(err.Error(), "NotAMember") {
			t.Errorf("got %v, want a refusal", err)
		}
		return
	}
	answer, err := node.Attester.Answer(t.Context(), challenge, node.Certified, node.Subject)
	if err != nil {
		t.Fatal(err)
	}
	denied(t, as, file(t, as, answer), "NotAMember")
}

// testInUse has the node throw away more certificates than a record holds, as while the API server does
// not trust a new CA. It goes on with its first one, by which the control plane still knows it.
func (w *lost) testInUse(t *testing.T) {
	tries := membership.MaxIssued + 2
	if os.Getenv(longVar) != "" {
		tries = 50
	}
	for range tries {
		w.gets(t, w.own, w.node)
	}
	w.recorded(t, w.node.Name, w.leaf)
	if n := len(w.record(t).Certificates); n > membership.MaxIssued {
		t.Errorf("%d certificates are recorded", n)
	}
	testServing(t, w.cluster, w.node, w.leaf)
}

// testNamed loses the records. First use alone refuses the node, and admits it once the inventory
// names its machine.
func (w *lost) testNamed(t *testing.T) {
	w.clear(t)
	eventually(t, func() error {
		_, err := challenged(t, w.own, w.node)
		if err == nil {
			return errors.New("the controller still has the record")
		}
		return nil
	})
	w.refused(t, w.own, w.node)
	w.refused(t, w.token, w.node)
	w.refused(t, w.token, w.thief)
	w.knows(t, w.machine)
	eventually(t, func() error {
		_, err := challenged(t, w.own, w.node)
		return err
	})
	w.refused(t, w.token, w.thief)
	w.refused(t, w.own, w.thief)
	w.joins(t, w.own, w.node)
	if got := w.record(t).Machine; got != w.machine {
		t.Errorf("recorded is %s", got)
	}
}

// testApproved loses the records again, with an inventory that names no machine: an operator has the
// node come back, by its machine.
func (w *lost) testApproved(t *testing.T) {
	o := w.newOperator(t)
	w.knows(t, "")
	w.clear(t)
	eventually(t, func() error {
		_, err := challenged(t, w.own, w.node)
		if err == nil {
			return errors.New("the controller still has the record, or the inventory of before")
		}
		return nil
	})
	w.newestHello(t, "NotAMember") // which the command looks for
	o.run(t, "approve node-1 --existing-node --without-inventory --machine-uid u1 --machine "+w.machine, "node node-1 is machine "+w.machine)
	w.refused(t, w.token, w.thief)
	eventually(t, func() error {
		_, err := challenged(t, w.own, w.node)
		return err
	})
	w.joins(t, w.own, w.node)
}

// testFullDisk fills the disk of the authenticator's state, but not that of its keys: the node renews.
func testFullDisk(t *testing.T, c *cluster, device *tpmsim.TPM) {
	disk, keys := filepath.Join(t.TempDir(), "var"), filepath.Join(t.TempDir(), "keys")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64k,mode=0700")
	if errors.Is(err, unix.EPERM) {
		t.Skip("mounting takes root")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	m := c.install(t, buildProgram(t, "kubelet-authenticator"), "node-2", device, func(config map[string]any) {
		config["stateDir"], config["keyDir"] = filepath.Join(disk, "state"), keys
	})
	if _, stderr, err := m.run(t.Context(), "rotate"); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	if err := os.WriteFile(filepath.Join(disk, "fill"), make([]byte, 128<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk does not fill: %v", err)
	}
	store, err := certstore.Open(keys)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plugin", "daemon"} {
		t.Run(name, func(t *testing.T) {
			before, began := due(t, store, authenticator.ClientFile), time.Now()
			if name == "daemon" {
				startAs(t, "daemon", m.program, m.dir, "--config", m.config, "daemon")
			}
			eventually(t, func() error {
				if name == "plugin" { // which waits for a second after each success
					m.credential(t)
				}
				if now := pair(t, store, authenticator.ClientFile); now.Leaf.Equal(before.Leaf) {
					return fmt.Errorf("not renewed: %+v", m.status(t).Certificates[0])
				}
				return nil
			})
			t.Logf("renewed in %s, as %s", time.Since(began).Round(time.Millisecond), csr.CredentialID(pair(t, store, authenticator.ClientFile).Leaf))
		})
	}
}
