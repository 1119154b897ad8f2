package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestRotation has certificates of Kubernetes' own signer that last 90 s renewed by a daemon:
// two requests for each, and the plugin always at hand. The control plane goes away until the
// last one has ended, the bootstrap token with it; with a token that an operator makes for this
// node it comes back, and no other machine does.
func TestRotation(t *testing.T) {
	t.Parallel()
	newRotation(t, false).run(t)
}

// TestRotationOwnSigners is the same with certificates of our own signers, one for serving
// among them. The node comes back by itself, by its recovery certificate on a key in the TPM.
func TestRotationOwnSigners(t *testing.T) {
	t.Parallel()
	newRotation(t, true).run(t)
}

// rotation is a cluster with one node, whose certificates are renewed.
type rotation struct {
	*cluster
	own      bool // the signers are ours
	tpms     *tpmsim.CA
	node     *nodeMachine
	deciders []*replica
}

func newRotation(t *testing.T, own bool) *rotation {
	t.Helper()
	program := buildProgram(t, "kubelet-authenticator")
	r := &rotation{cluster: startCluster(t), own: own}
	r.signingDuration = "90s"
	r.prepare(t)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	r.tpms = device.CA()
	if own {
		config := r.ownSigning(t, device, "node-1")
		r.deciders = r.startOwnSigners(t, func(all map[string]any) {
			config(all)
			all["signers"].(map[string]any)["maxLifetime"] = r.signingDuration
		})
	} else {
		r.startSigner(t)
		r.deciders = []*replica{r.firstUse(t, device, "node-1", "node-2")}
	}
	r.node = r.install(t, program, "node-1", device, func(config map[string]any) {
		config["lifetime"] = "10m" // the API takes no less
		if own {
			config["signerName"], config["recoverySigner"] = csr.SignerClientTPM, csr.SignerRecoveryTPM
			config["serving"] = map[string]any{"dnsNames": []any{"node-1"}}
		}
	})
	return r
}

func (r *rotation) run(t *testing.T) {
	m := r.node
	daemon := startAs(t, "daemon", m.program, m.dir, "--config", m.config, "daemon")
	last := r.renewed(t, 4*time.Minute)
	for _, each := range r.deciders {
		each.kill(t)
	}
	if err := r.admin.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + attesttest.TokenID}}); err != nil {
		t.Fatal(err)
	}
	r.forsaken(t, last)

	want := csr.RecoveryUserPrefix + m.name
	var file string // with the token
	disk := t.TempDir()
	if err := os.CopyFS(disk, os.DirFS(filepath.Join(m.dir, "state"))); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, each := range r.deciders {
		if err := each.launch(); err != nil {
			t.Fatal(err)
		}
	}
	if !r.own {
		m.kubeconfig(t, "bootstrap", new(clientcmdapi.AuthInfo))
		if s := m.status(t); len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "kubectl nodeattest token "+m.name) {
			t.Errorf("problems %q", s.Problems)
		}
		file, want = r.readmit(t)
		m.kubeconfig(t, "bootstrap", &clientcmdapi.AuthInfo{TokenFile: file})
	}
	var s *authenticator.Status
	eventually(t, func() error {
		if s = m.status(t); !s.Usable {
			return errNotYet
		}
		return nil
	})
	t.Logf("back after %s with a certificate until %s", time.Since(began).Round(100*time.Millisecond), s.Certificates[0].NotAfter)
	if n := r.filedBy(t, want); n != 2 {
		t.Errorf("%d requests of %s, want 2", n, want)
	}
	if daemon.ended() {
		t.Errorf("the daemon has ended:\n%s", daemon.tail())
	}
	if !r.own {
		r.elsewhere(t, file, disk, daemon)
	}
}

// readmit has an operator make a token for the node. It returns the file that its standard output
// went to, and the user of the token.
func (r *rotation) readmit(t *testing.T) (file, user string) {
	t.Helper()
	o := r.newOperator(t)
	eventually(t, func() error { // its rights may be late
		text, err := o.command(t.Context(), "nodeattest", "token", r.node.name).Output()
		if err != nil {
			return err
		}
		id, _, _ := strings.Cut(string(text), ".")
		file, user = controlplane.Write(t, t.TempDir(), "token", text), csr.BootstrapUserPrefix+id
		return nil
	})
	return file, user
}

// elsewhere has another machine, which may join as node-2, use the token: it is neither that node
// nor the token's, not even with a copy of this node's disk. The token is in no log.
func (r *rotation) elsewhere(t *testing.T, file, disk string, daemon *process) {
	t.Helper()
	device := tpmsim.Swtpm(t, tpmsim.Options{CA: r.tpms})
	short := func(config map[string]any) { config["lifetime"] = "10m" }
	for _, row := range []struct{ name, want string }{{"node-2", "requester-other-node"}, {r.node.name, "registry-name"}} {
		other := r.install(t, r.node.program, row.name, device, short)
		if row.name == r.node.name {
			if err := os.CopyFS(filepath.Join(other.dir, "state"), os.DirFS(disk)); err != nil {
				t.Fatal(err)
			}
		}
		other.kubeconfig(t, "bootstrap", &clientcmdapi.AuthInfo{TokenFile: file})
		if got := other.refused(t); !strings.Contains(got, row.want) {
			t.Errorf("as %s: got %q, want %s", row.name, got, row.want)
		}
	}
	other := r.install(t, r.node.program, "node-2", device, short)
	other.kubeconfig(t, "bootstrap", &clientcmdapi.AuthInfo{Token: otherTokenID + "." + tokenSecret})
	other.credential(t) // it was the token
	token := controlplane.Read(t, file)
	_, half, _ := strings.Cut(strings.TrimSpace(string(token)), ".")
	for _, each := range []*process{daemon, r.deciders[0].process, r.server} {
		if strings.Contains(each.text(t), half) {
			t.Errorf("%s has logged the token", each.name)
		}
	}
}

// renewed watches the certificates for some minutes, and counts the requests. It ends when
// the client certificate is a new one, and returns that.
func (r *rotation) renewed(t *testing.T, watched time.Duration) (last authenticator.CertificateStatus) {
	t.Helper()
	m := r.node
	if os.Getenv(longVar) != "" {
		watched = 10 * time.Minute
	}
	users := []string{csr.NodeUserPrefix + m.name, csr.BootstrapUserPrefix + attesttest.TokenID}
	filed := func() (n int) {
		for _, user := range users {
			n += r.filedBy(t, user)
		}
		return n
	}
	before := filed() // looking whether the admission policy is in force
	eventually(t, func() error {
		for _, each := range m.status(t).Certificates {
			if !each.Usable {
				return errNotYet
			}
		}
		return nil
	})
	slowest, seen, fresh := time.Duration(0), map[string]map[string]bool{}, false
	for began := time.Now(); time.Since(began) < watched || !fresh; time.Sleep(3 * time.Second) {
		ran := time.Now()
		_, pair := m.credential(t)
		slowest = max(slowest, time.Since(ran))
		if now := time.Now(); now.After(pair.Leaf.NotAfter) {
			t.Errorf("at %s, a certificate that ended at %s", now, pair.Leaf.NotAfter)
		}
		for n, each := range m.status(t).Certificates {
			if !each.Usable {
				t.Errorf("no %s certificate: %s", each.Purpose, each.LastError)
			}
			if seen[each.Purpose] == nil {
				seen[each.Purpose] = map[string]bool{}
			}
			if n == 0 {
				fresh, last = !seen[each.Purpose][each.CredentialID], each
			}
			seen[each.Purpose][each.CredentialID] = true
		}
		if time.Since(began) > watched+patience {
			t.Fatal("no new certificate")
		}
	}
	certificates, least := 0, int(watched/(85*time.Second))
	for purpose, ids := range seen {
		certificates += len(ids)
		if len(ids) < least && purpose != csr.PurposeRecovery.String() {
			t.Errorf("%d %s certificates in %s, want %d at least", len(ids), purpose, watched, least)
		}
		t.Logf("%d %s certificates", len(ids), purpose)
	}
	n := filed() - before
	t.Logf("%d certificates, %d requests; a run of the plugin took %s at most", certificates, n, slowest.Round(time.Millisecond))
	if n > 2*certificates+2 { // one may be on its way
		t.Errorf("%d requests for %d certificates, want two for each", n, certificates)
	}
	return last
}

// forsaken watches the node keep its certificate to the end, without a decision.
func (r *rotation) forsaken(t *testing.T, last authenticator.CertificateStatus) {
	t.Helper()
	m, node := r.node, csr.NodeUserPrefix+r.node.name
	before := r.filedBy(t, node)
	for time.Until(last.NotAfter) > 15*time.Second {
		if _, pair := m.credential(t); csr.CredentialID(pair.Leaf) != last.CredentialID {
			t.Fatal("another certificate, without a signer")
		}
		time.Sleep(3 * time.Second)
	}
	time.Sleep(time.Until(last.NotAfter) + time.Second)
	if n := r.filedBy(t, node) - before; n > 3 {
		t.Errorf("%d requests without a decision", n)
	}
	if s := m.status(t); s.Usable || !s.Daemon || s.Recoverable != r.own {
		t.Errorf("status %+v", s)
	}
}
