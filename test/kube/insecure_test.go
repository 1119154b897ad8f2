package kube

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// insecureSigner is the name of the signer of nodes without evidence.
const insecureSigner = "node-attestation-insecure-signer"

// A mix is a cluster with three nodes that attest and one that cannot.
type mix struct {
	*cluster
	operator *operator
	// own signs for node-4 only. The API server trusts it for clients, by a file of its
	// own, which the other programs do not read.
	own        *controlplane.Authority
	attested   []*nodeMachine
	without    *nodeMachine
	controller *replica
	signers    []*replica
	change     func(config map[string]any)
	enforced   string // the kustomization with the component enforce
}

// TestInsecure has three nodes attest and renew, with our own signer, and one that cannot. A
// bootstrap token gets no name of those three, and the fourth once, while attestation is observed
// and when it is enforced.
func TestInsecure(t *testing.T) {
	t.Parallel()
	kubeletNeeds(t)
	m := newMix(t)
	defer func() {
		for _, r := range append(m.signers, m.controller) {
			r.checkLog(t)
		}
	}()
	for i, n := range m.attested {
		m.rotates(t, n)
		if s := n.status(t); !s.Usable {
			t.Fatalf("node-%d: %+v", i+1, s)
		}
	}
	for _, n := range m.attested {
		n.startKubelet(t, "")
	}
	kubelet, _ := m.without.startKubelet(t, "")
	for i := range 4 {
		m.nodeReady(t, fmt.Sprint("node-", i+1))
	}
	first := m.without.status(t).Certificates[0]
	t.Run("observed", func(t *testing.T) { m.testAttacks(t) })
	m.renewed(t, 1)
	m.enforce(t)
	t.Run("enforced", func(t *testing.T) {
		m.testAttacks(t)
		m.testBuiltIn(t)
	})
	m.renewed(t, 2)
	m.renewed(t, 3)
	t.Run("what is said of it", func(t *testing.T) { m.testSaid(t, first.NotAfter) })
	if now := m.without.status(t).Certificates[0]; now.CredentialID != first.CredentialID {
		t.Errorf("node-4 has another certificate, %s", now.CredentialID)
	}
	for _, e := range kubeletRequests(t, m.auditLog) {
		if id := strings.Join(e.User.Extra[csr.ExtraCredentialID], " "); e.User.Username == csr.NodeUserPrefix+"node-4" && id != first.CredentialID {
			t.Errorf("%s %s by %s", e.Verb, e.RequestURI, id)
		}
	}
	t.Run("release", func(t *testing.T) { m.testRelease(t, kubelet) })
	t.Run("a stolen CA key", func(t *testing.T) { m.testStolenCA(t) })
	manifests := manifests(t, "insecure/rbac.yaml")
	m.checkRights(t, manifests) // before other accounts use them
	t.Run("a stolen service account", func(t *testing.T) { m.testStolenAccount(t) })
}

func newMix(t *testing.T) *mix {
	t.Helper()
	m := &mix{own: controlplane.NewAuthority(t)}
	m.cluster = startCluster(t, func(c *cluster) []string {
		m.cluster = c
		return []string{"--client-ca-file=" + m.trusted(t, m.own)}
	})
	for _, id := range []string{attesttest.TokenID, otherTokenID} {
		m.makeToken(t, id)
	}
	ca := newCA(t, "")
	program := buildProgram(t, "kubelet-authenticator")
	var node *attesttest.Node
	for i := range 3 {
		device := tpmsim.Swtpm(t, tpmsim.Options{CA: ca, PersistEKs: true})
		node = attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, Road: attest.RoadEK, AK: tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}})
		m.attested = append(m.attested, m.install(t, program, fmt.Sprint("node-", i+1), device, func(config map[string]any) { config["signerName"] = csr.SignerClientTPM }))
	}
	m.without = m.install(t, program, "node-4", nil, func(config map[string]any) {
		config["signerName"], config["evidence"] = csr.SignerClientInsecure, map[string]any{"none": map[string]any{}}
		delete(config, "lifetime")
	})
	m.writeRoots(t, node)
	controlplane.Write(t, m.dir, "inventory.yaml", []byte("machines:\n- nodeName: node-1\n- nodeName: node-2\n- nodeName: node-3\n"+
		"- {nodeName: node-4, evidence: none}\n- {nodeName: node-5, evidence: none}\n- {nodeName: node-6, evidence: none}\n- {nodeName: node-7, evidence: none}\n"))
	certificate, key := controlplane.Write(t, m.dir, "signer.crt", controlplane.CertificatePEM(m.ca.Cert)), controlplane.Write(t, m.dir, "signer.key", controlplane.PrivatePEM(t, m.ca.Key))
	m.change = func(config map[string]any) {
		config["membership"].(map[string]any)["mode"] = "FirstUse"
		config["signers"] = map[string]any{"names": []any{csr.SignerClientTPM}, "maxLifetime": "10m"}
		config["signer"].(map[string]any)["certificateFile"], config["signer"].(map[string]any)["keyFile"] = certificate, key
		config["controller"].(map[string]any)["insecureAllowWaysAround"] = false
		config["insecureSigner"] = map[string]any{"maxLifetime": "1h", "certificateFile": controlplane.Write(t, m.dir, "own.crt", controlplane.CertificatePEM(m.own.Cert)),
			"keyFile": controlplane.Write(t, m.dir, "own.key", controlplane.PrivatePEM(t, m.own.Key))}
	}
	m.operator = &operator{kubectl: filepath.Join(controlplane.Binaries(t), "kubectl"), dir: filepath.Dir(buildProgram(t, "kubectl-nodeattest")),
		kubeconfig: m.kubeconfig(t, "admin.kubeconfig", "admin", "system:masters")}
	node.Name = "node-1"
	ports := controlplane.FreePorts(t, 4)
	m.enforced = overlay(t, node, ports, "insecure", "signer", "enforce")
	m.apply1(t, overlay(t, node, ports, "insecure", "signer"))
	m.startPrograms(t)
	return m
}

// trusted writes the CAs that the API server trusts for clients: the cluster's, and others.
func (m *mix) trusted(t *testing.T, others ...*controlplane.Authority) string {
	t.Helper()
	text := controlplane.CertificatePEM(m.ca.Cert)
	for _, a := range others {
		text = append(text, controlplane.CertificatePEM(a.Cert)...)
	}
	return controlplane.Write(t, m.dir, "client-cas.crt", text)
}

// apply1 applies a kustomization.
func (m *mix) apply1(t *testing.T, folder string) {
	t.Helper()
	eventually(t, func() error {
		_, err := m.operator.plain(t.Context(), "apply", "-k", folder, "--validate=strict")
		return err
	})
}

// startPrograms starts the programs of the Deployments, with their own flags. There is a Node and a
// record that came before them.
func (m *mix) startPrograms(t *testing.T) {
	t.Helper()
	d := m.deployment(t, insecureSigner)
	if args := d.Spec.Template.Spec.Containers[0].Args; d.Spec.Template.Spec.ServiceAccountName != insecureSigner || !slices.Contains(args, "--insecure") {
		t.Errorf("the Deployment is of %s, with %q", d.Spec.Template.Spec.ServiceAccountName, args)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: insecureSigner + "-"}, Spec: d.Spec.Template.Spec}
	eventually(t, func() error { return m.admin.Create(t.Context(), pod.DeepCopy(), client.DryRunAll) }) // with the namespace's restrictions
	if err := m.admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-5"}}); err != nil {
		t.Fatal(err)
	}
	if err := m.admin.Create(t.Context(), &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: "node-6"},
		Spec: v1alpha1.AttestedNodeSpec{Scope: "ek RSA-2048", Machine: "ek:sha256:" + strings.Repeat("00", 32), State: v1alpha1.NodeBound}}); err != nil {
		t.Fatal(err)
	}
	m.startController1(t, "observes")
	program := buildProgram(t, "node-attestation-signer")
	m.signers = []*replica{
		m.startProgram(t, program, "signer", "signer", m.change),
		m.startProgram(t, program, "insecure-signer", "insecureSigner", m.change, m.args(t, insecureSigner)...),
	}
	for _, r := range m.signers {
		r.isReady(t)
	}
}

// args are the flags of a Deployment, but for its configuration.
func (m *mix) args(t *testing.T, deployment string) []string {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(m.deployment(t, deployment).Spec.Template.Spec.Containers[0].Args), func(arg string) bool { return strings.HasPrefix(arg, "--config=") })
}

func (m *mix) startController1(t *testing.T, name string) {
	t.Helper()
	m.controller = m.startController(t, buildProgram(t, "node-attestation-controller"), name, m.change, m.args(t, controller.DefaultName)...)
	m.controller.isReady(t)
}

// enforce adds the component enforce: the controller is ready, so it has found the policies as
// they are to be with the component insecure.
func (m *mix) enforce(t *testing.T) {
	t.Helper()
	m.apply1(t, m.enforced)
	if status := m.controller.stop(t); status != 0 {
		t.Errorf("the controller ended with status %d", status)
	}
	m.startController1(t, "enforces")
}

// rotates has a node get a certificate now.
func (m *mix) rotates(t *testing.T, n *nodeMachine) {
	t.Helper()
	if _, stderr, err := n.run(t.Context(), "rotate"); err != nil {
		t.Fatalf("%s: %v: %s", n.name, err, stderr)
	}
}

// renewed has the three nodes renew, each as itself.
func (m *mix) renewed(t *testing.T, round int) {
	t.Helper()
	for _, n := range m.attested {
		before := n.status(t).Certificates[0].CredentialID
		m.rotates(t, n)
		if after := n.status(t); after.Certificates[0].CredentialID == before || !after.Usable {
			t.Errorf("renewal %d of %s: %+v", round, n.name, after)
		}
		if filed, want := m.filedBy(t, csr.NodeUserPrefix+n.name), 2*round; filed != want {
			t.Errorf("%s has filed %d requests, want %d", n.name, filed, want)
		}
	}
}

// as is a client with a node's own certificate.
func (m *mix) as(t *testing.T, n *nodeMachine) client.Client {
	t.Helper()
	_, pair := n.credential(t)
	return m.withCertificate(t, pair)
}

// testAttacks has another bootstrap token, and the node without evidence, request what they must
// not get.
func (m *mix) testAttacks(t *testing.T) {
	token, node4 := m.client(t, m.bearer(t, otherTokenID)), m.as(t, m.without)
	for name, row := range map[string]struct {
		as               client.Client
		nodeName, signer string
		reason           string
	}{
		"node-1 without evidence":       {token, "node-1", csr.SignerClientInsecure, "InventoryMachine"},
		"node-2 without evidence":       {token, "node-2", csr.SignerClientInsecure, "InventoryMachine"},
		"node-3 without evidence":       {token, "node-3", csr.SignerClientInsecure, "InventoryMachine"},
		"node-4 again":                  {token, "node-4", csr.SignerClientInsecure, "InsecureNameUsed"},
		"a name that has a Node":        {token, "node-5", csr.SignerClientInsecure, "InsecureNodeExists"},
		"a name recorded by evidence":   {token, "node-6", csr.SignerClientInsecure, "InsecureNameAttested"},
		"a name of no machine":          {token, "node-9", csr.SignerClientInsecure, "MachineUnknown"},
		"node-1 at the signer of TPMs":  {token, "node-1", csr.SignerClientTPM, "AttestationProvider"},
		"node-2 at the signer of TPMs":  {token, "node-2", csr.SignerClientTPM, "AttestationProvider"},
		"node-3 at the signer of TPMs":  {token, "node-3", csr.SignerClientTPM, "AttestationProvider"},
		"node-4 at the signer of TPMs":  {token, "node-4", csr.SignerClientTPM, "AttestationProvider"},
		"node-4 renews":                 {node4, "node-4", csr.SignerClientInsecure, "RequesterPurpose"},
		"node-4 as another":             {node4, "node-7", csr.SignerClientInsecure, "RequesterPurpose"},
		"node-4 as one that attests":    {node4, "node-1", csr.SignerClientTPM, "AttestationProvider"},
		"node-4 at that signer as such": {node4, "node-4", csr.SignerClientTPM, "AttestationProvider"},
	} {
		t.Run(name, func(t *testing.T) {
			denied(t, m.admin, file(t, row.as, m.plainFor(t, row.nodeName, row.signer)), row.reason)
		})
	}
}

// testBuiltIn: Kubernetes' own signer takes no request without evidence either.
func (m *mix) testBuiltIn(t *testing.T) {
	for name, as := range map[string]client.Client{"a bootstrap token": m.client(t, m.bearer(t, otherTokenID)), "node-4": m.as(t, m.without)} {
		err := as.Create(t.Context(), requestOf(m.plainFor(t, "node-4", csr.SignerKubeAPIServerClientKubelet)))
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "asks for its client certificate with evidence") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// testSaid: the node, the operator and the metrics know when its certificate ends.
func (m *mix) testSaid(t *testing.T, end time.Time) {
	text, _, err := m.without.run(t.Context(), "status")
	if err != nil || !strings.Contains(text, "evidence insecure") || !strings.Contains(text, "renewal:     not renewed") {
		t.Errorf("status: %v\n%s", err, text)
	}
	out := m.kubectl1(t, "nodeattest", "nodes")
	t.Logf("\n%s", out)
	for _, want := range []string{"insecure:node-4", "NONE", end.Format(time.RFC3339) + ", not renewed"} {
		if strings.Count(out, want) != 1 {
			t.Errorf("%s is not there once:\n%s", want, out)
		}
	}
	eventually(t, func() error {
		if got := counted(t, m.signers[1], "nodeattest_insecure_not_after_seconds"); got[`node="node-4"`] != float64(end.Unix()) || len(got) != 4 {
			return fmt.Errorf("the ends are %v, want %d", got, end.Unix())
		}
		return nil
	})
	if !strings.Contains(m.signers[1].text(t), "INSECURE") {
		t.Error("its log is silent")
	}
}

// kubectl1 runs one command of kubectl as an administrator, which must succeed.
func (m *mix) kubectl1(t *testing.T, args ...string) string {
	t.Helper()
	out, err := m.operator.plain(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// testRelease: the machine of node-4 is set up anew, and comes again once an operator has said so.
func (m *mix) testRelease(t *testing.T, kubelet *process) {
	kubelet.stop(t)
	token, again := m.client(t, m.bearer(t, otherTokenID)), m.plainFor(t, "node-4", csr.SignerClientInsecure)
	if out := m.kubectl1(t, "nodeattest", "release", "node-4", "--machine", "insecure:node-4"); !strings.Contains(out, "its old certificate and key still authenticate as node node-4 until") {
		t.Errorf("released: %s", out)
	}
	denied(t, m.admin, file(t, token, again), "InsecureNodeExists")
	if err := m.admin.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-4"}}); err != nil {
		t.Fatal(err)
	}
	if err := m.admin.Create(t.Context(), pointer("insecure:node-4", "node-4")); err != nil { // as a release that was interrupted leaves it
		t.Fatal(err)
	}
	object := decided(t, m.admin, file(t, token, again))
	if len(object.Status.Certificate) == 0 {
		t.Fatalf("after the release: %+v", object.Status.Conditions)
	}
	denied(t, m.admin, file(t, token, m.plainFor(t, "node-4", csr.SignerClientInsecure)), "InsecureNameUsed")
}

// testStolenCA: an attacker with the key of the CA can do this until the API server trusts it no
// more: everything.
func (m *mix) testStolenCA(t *testing.T) {
	minted := func(name, group string) client.Client {
		config := m.user(t, "stranger")
		config.CertData, config.KeyData = m.own.Issue(t, pkix.Name{CommonName: name, Organization: []string{group}}, x509.ExtKeyUsageClientAuth)
		return m.client(t, config)
	}
	master, node := minted("thief", "system:masters"), minted(csr.NodeUserPrefix+"node-1", csr.NodesGroup)
	if err := master.List(t.Context(), new(corev1.SecretList)); err != nil {
		t.Errorf("as system:masters: %v", err)
	}
	if err := node.Get(t.Context(), client.ObjectKey{Name: "node-1"}, new(corev1.Node)); err != nil {
		t.Errorf("as node-1: %v", err)
	}
	denied(t, m.admin, file(t, node, m.plainFor(t, "node-1", csr.SignerClientTPM)), "AttestationProvider") // but nothing that lasts
	attested := m.as(t, m.attested[0])
	m.trusted(t)
	eventually(t, func() error {
		if err := master.List(t.Context(), new(corev1.SecretList)); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("after the CA was taken away: %v", err)
		}
		return nil
	})
	if err := attested.Get(t.Context(), client.ObjectKey{Name: "node-1"}, new(corev1.Node)); err != nil {
		t.Errorf("a node that has attested: %v", err)
	}
}

// testStolenAccount: an attacker with the token of the signer's service account
// decides for its own signer only, and about no attested node.
func (m *mix) testStolenAccount(t *testing.T) {
	for _, r := range append(m.signers, m.controller) {
		if status := r.stop(t); status != 0 {
			t.Errorf("%s ended with status %d", r.name, status)
		}
	}
	token := m.client(t, m.bearer(t, otherTokenID))
	thief, decider := m.client(t, m.user(t, "system:serviceaccount:"+namespace+":"+insecureSigner, "system:serviceaccounts")), m.client(t, m.user(t, controllerUser, "system:serviceaccounts"))
	signs := m.client(t, m.user(t, signerUser, "system:serviceaccounts"))
	for name, row := range map[string]struct {
		as      client.Client
		signer  string
		status  bool // writes a certificate, and else approves
		allowed bool
	}{
		"it approves for its signer":                 {as: thief, signer: csr.SignerClientInsecure, allowed: true},
		"it writes certificates for its signer":      {as: thief, signer: csr.SignerClientInsecure, status: true, allowed: true},
		"it approves what a TPM signs":               {as: thief, signer: csr.SignerClientTPM},
		"it writes certificates of nodes with TPMs":  {as: thief, signer: csr.SignerClientTPM, status: true},
		"an administrator approves for it":           {as: m.admin, signer: csr.SignerClientInsecure},
		"an administrator writes its certificates":   {as: m.admin, signer: csr.SignerClientInsecure, status: true},
		"the controller approves for it":             {as: decider, signer: csr.SignerClientInsecure},
		"the other signer writes its certificates":   {as: signs, signer: csr.SignerClientInsecure, status: true},
		"the controller approves for nodes with TPM": {as: decider, signer: csr.SignerClientTPM, allowed: true},
		"and their signer signs":                     {as: signs, signer: csr.SignerClientTPM, status: true, allowed: true},
	} {
		t.Run(name, func(t *testing.T) {
			object, subresource := file(t, token, m.plainFor(t, "node-7", row.signer)), "approval"
			if row.status {
				subresource, object.Status.Certificate = "status", controlplane.CertificatePEM(m.ca.Cert)
			} else {
				object.Status.Conditions = condition(certificatesv1.CertificateApproved)
			}
			if err := row.as.SubResource(subresource).Update(t.Context(), object, client.DryRunAll); (err == nil) != row.allowed || err != nil && !apierrors.IsForbidden(err) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("records", func(t *testing.T) { m.testStolenRecords(t, thief) })
	t.Run("metadata", func(t *testing.T) {
		m.testStolenMetadata(t, map[string]client.Client{insecureSigner: thief, controllerUser: decider, signerUser: signs})
	})
	for _, name := range []string{"node-1", "node-6"} {
		var record v1alpha1.AttestedNode
		if err := thief.Get(t.Context(), client.ObjectKey{Name: name}, &record); err != nil {
			t.Fatal(err)
		}
		for what, row := range map[string]struct {
			change func(s *v1alpha1.AttestedNodeSpec)
			want   string
		}{
			"changed": {func(s *v1alpha1.AttestedNodeSpec) { s.ProviderID = "rack://1" }, "of a node that has attested"},
			"released": {func(s *v1alpha1.AttestedNodeSpec) {
				s.State, s.LastEnd, s.Certificates = v1alpha1.NodeResting, in(3*time.Hour), nil
			}, "of a node that has attested"},
			"taken over": {func(s *v1alpha1.AttestedNodeSpec) { s.Scope, s.Machine = "insecure document", "insecure:"+name }, "the scope is immutable"},
		} {
			changed := record.DeepCopy()
			row.change(&changed.Spec)
			if err := thief.Update(t.Context(), changed, client.DryRunAll); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("the record of %s %s: %v", name, what, err)
			}
		}
		if err := thief.Delete(t.Context(), &record, client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("the record of %s deleted: %v", name, err)
		}
	}
}
