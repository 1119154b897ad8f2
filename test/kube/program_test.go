package kube

import (
	"bufio"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// builds are the programs of module kube that tests have asked for, by their folders.
var builds sync.Map

// buildProgram builds a command of module kube, once for all tests.
func buildProgram(t *testing.T, name string) string {
	t.Helper()
	return buildFolder(t, "cmd/"+name)
}

// buildFolder builds the program in a folder of module kube, or of a module there, once for all tests.
func buildFolder(t *testing.T, folder string) string {
	t.Helper()
	build := sync.OnceValues(func() (string, error) {
		path := filepath.Join(programs, filepath.Base(folder))
		cmd := exec.Command("go", "build", "-o", path, ".")
		cmd.Dir, cmd.Env = filepath.Join("..", "..", "kube", folder), append(os.Environ(), "CGO_ENABLED=0") // as the image's
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build: %w\n%s", err, out)
		}
		return path, nil
	})
	first, _ := builds.LoadOrStore(folder, build)
	path, err := first.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A replica is a running program with its own addresses.
type replica struct {
	*process
	metrics, health string
}

// programConfig is the shipped configuration, with the paths and addresses of a test.
func (c *cluster) programConfig(t *testing.T, name string, change func(config map[string]any)) string {
	t.Helper()
	manifests := manifests(t, "config.yaml")
	var config map[string]any
	if err := yaml.UnmarshalStrict(manifests[0], &config); err != nil {
		t.Fatal(err)
	}
	config["cluster"].(map[string]any)["caFile"] = filepath.Join(c.dir, "ca.crt")
	config["inventory"] = map[string]any{"file": filepath.Join(c.dir, "inventory.yaml")}
	config["tpm"].(map[string]any)["ekIssuers"] = []any{map[string]any{"rootsFile": filepath.Join(c.dir, "ek-roots.pem"), "profile": "tcg"}}
	config["controller"].(map[string]any)["insecureAllowWaysAround"] = true // few tests apply the admission policies
	change(config)
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return controlplane.Write(t, c.dir, name+".yaml", text)
}

// startController starts a replica of the controller's binary as its service account.
func (c *cluster) startController(t *testing.T, program, name string, change func(config map[string]any), args ...string) *replica {
	t.Helper()
	return c.startProgram(t, program, name, "controller", change, args...)
}

// startProgram starts a replica of a binary with its part of the configuration, by the token
// of its service account.
func (c *cluster) startProgram(t *testing.T, program, name, part string, change func(config map[string]any), args ...string) *replica {
	t.Helper()
	ports := controlplane.FreePorts(t, 2)
	r := &replica{metrics: "http://127.0.0.1:" + ports[0] + "/metrics", health: "http://127.0.0.1:" + ports[1]}
	path := c.programConfig(t, name, func(config map[string]any) {
		change(config)
		addresses := config[part].(map[string]any)
		addresses["metricsAddress"], addresses["healthAddress"] = "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1]
	})
	account := "node-attestation-" + strings.Replace(part, "insecureSigner", "insecure-signer", 1)
	r.process = startAs(t, name, program, c.dir, append(args, "--config="+path,
		"--kubeconfig="+c.writeKubeconfig(t, name+".kubeconfig", &clientcmdapi.AuthInfo{Token: c.serviceAccountToken(t, namespace, account)}))...)
	return r
}

// isReady waits until a replica says so.
func (r *replica) isReady(t *testing.T) {
	t.Helper()
	r.ready(t, func() error {
		if status, text := body(t, r.health+"/readyz?verbose"); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, text)
		}
		return controlplane.Healthy(r.health + "/healthz")
	})
}

// writeRoots writes the roots of a node's EK certificate where the configuration has them.
func (c *cluster) writeRoots(t *testing.T, node *attesttest.Node) {
	t.Helper()
	controlplane.Write(t, c.dir, "ek-roots.pem", certificatesPEM(node.Roots()))
}

func certificatesPEM(certificates []*x509.Certificate) (text []byte) {
	for _, c := range certificates {
		text = append(text, controlplane.CertificatePEM(c)...)
	}
	return text
}

// checkLog looks for what no program logs, and for a right that it lacks.
func (p *process) checkLog(t *testing.T) {
	t.Helper()
	for line := range strings.Lines(p.text(t)) {
		if strings.Contains(line, tokenSecret) || strings.Contains(line, "PRIVATE") || strings.Contains(line, "forbidden") {
			t.Errorf("logged: %s", line)
		}
	}
}

// leads waits until one of some replicas has the lease, and returns it.
func (c *cluster) leads(t *testing.T, replicas map[string]*replica) string {
	t.Helper()
	var leader string
	eventually(t, func() error {
		var lease coordinationv1.Lease
		if err := c.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: controller.DefaultName}, &lease); err != nil {
			return err
		}
		for name, r := range replicas {
			if strings.Contains(r.text(t), "Successfully acquired lease") {
				leader = name
			}
		}
		if leader == "" || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return fmt.Errorf("no leader: %+v", lease.Spec)
		}
		return nil
	})
	return leader
}

// controllerLabel begins the counters of every controller.
var controllerLabel = regexp.MustCompile(`^controller="[^"]+",?`)

// counted returns the samples of a metric, by their labels.
func counted(t *testing.T, r *replica, metric string) map[string]float64 {
	t.Helper()
	response, err := http.Get(r.metrics)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	found := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if i := strings.LastIndex(lines.Text(), " "); i > 0 {
			name, value = lines.Text()[:i], lines.Text()[i+1:]
		}
		labels, ok := strings.CutPrefix(name, metric)
		if n, err := strconv.ParseFloat(value, 64); ok && err == nil {
			found[controllerLabel.ReplaceAllString(strings.Trim(labels, "{}"), "")] = n
		}
	}
	return found
}

func body(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// TestController runs the binary, two of it, with the shipped configuration.
func TestController(t *testing.T) {
	t.Parallel()
	program := buildProgram(t, "node-attestation-controller")
	c := startCluster(t)
	c.prepare(t)
	c.apply(t, "serving/rbac.yaml")
	ca := newCA(t, "")
	device := tpmsim.Swtpm(t, tpmsim.Options{CA: ca})
	node, unknown := c.nodeOn(t, device, "node-1", tpmkind.DefaultPCRs()...), c.nodeOn(t, device, "node-2")
	other := c.nodeOn(t, tpmsim.Swtpm(t, tpmsim.Options{CA: ca}), "node-3")
	c.writeRoots(t, node)
	controlplane.Write(t, c.dir, "inventory.yaml", []byte("machines:\n- nodeName: node-1\n  dnsNames: [node-1]\n- nodeName: node-3\n- nodeName: node-2\n  identity: ek:sha256:"+strings.Repeat("00", 32)+"\n"))
	firstUse := func(config map[string]any) {
		config["membership"].(map[string]any)["mode"] = "FirstUse"
		config["signers"].(map[string]any)["builtInDuration"] = "1h"
		config["controller"].(map[string]any)["insecureAllowWaysAround"] = false
	}
	false1 := c.approvedByHand(t, c.admin, c.plain(t, node, csr.SignerKubeAPIServerClientKubelet)) // before a signer runs
	false2 := c.approvedByHand(t, c.admin, c.plain(t, node, csr.SignerKubeletServing))
	c.applyAdmission(t)
	c.applyWall(t)
	c.reservedLongAgo(t, node)
	former := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: other.Name}}
	if err := c.admin.Create(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	replicas := map[string]*replica{}
	for _, name := range []string{"replica-1", "replica-2"} {
		replicas[name] = c.startController(t, program, name, firstUse)
	}
	for _, r := range replicas {
		r.isReady(t)
	}
	leader := c.leads(t, replicas)
	bootstrapper := c.client(t, c.bearer(t, attesttest.TokenID))

	t.Run("approvals that are false", func(t *testing.T) {
		for _, object := range []*certificatesv1.CertificateSigningRequest{false1, false2} {
			if c.finished(t, object); object.Status.Conditions[1].Type != certificatesv1.CertificateFailed {
				t.Errorf("%s: conditions %+v, want Failed", object.Spec.SignerName, object.Status.Conditions)
			}
		}
	})
	c.startSigner(t)
	leaf := c.joins(t, bootstrapper, node)
	t.Run("serving certificates", func(t *testing.T) { testServing(t, c, node, leaf) })
	t.Run("a name that has a Node", func(t *testing.T) {
		answer := answers(t, bootstrapper, other)
		denied(t, bootstrapper, file(t, bootstrapper, answer), "NotAMember")
		if err := c.admin.Delete(t.Context(), former); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("another node joins", func(t *testing.T) {
		c.bootRecorded(t, node.Name) // which is a write after the join
		before := len(c.audit(t))
		c.joins(t, bootstrapper, other)
		c.checkCost(t, c.audit(t)[before:], 11, 3) // where caches are behind, and its Node has just gone: TestThroughput has the usual cost
	})
	t.Run("who waits may watch", func(t *testing.T) { c.watchesOwn(t, node) })
	t.Run("a machine that the inventory has not", func(t *testing.T) {
		if _, err := challenged(t, bootstrapper, unknown); err == nil || !strings.Contains(err.Error(), "NotAMember") {
			t.Errorf("got %v, want a refusal", err)
		}
	})
	t.Run("metrics", func(t *testing.T) { testMetrics(t, replicas[leader]) })
	t.Run("admission", func(t *testing.T) { testAdmission(t, c, node, bootstrapper) })
	t.Run("ways around", func(t *testing.T) {
		c.alarms(t, replicas[leader], c.grants(t, "impersonator", []rbacv1.PolicyRule{{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"users"}}},
			rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "support"}))
	})
	t.Run("a new challenge key", func(t *testing.T) { testRotation(t, c) })
	t.Run("the leader dies", func(t *testing.T) {
		replicas[leader].kill(t)
		delete(replicas, leader)
		c.joins(t, bootstrapper, node)
	})
	t.Run("it ends when told to", func(t *testing.T) {
		for _, r := range replicas {
			if status := r.stop(t); status != 0 {
				t.Errorf("status %d; the end of the log:\n%s", status, r.tail())
			}
		}
		var lease coordinationv1.Lease
		if err := c.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: controller.DefaultName}, &lease); err != nil || *lease.Spec.HolderIdentity != "" {
			t.Errorf("the lease is %+v, %v, want it given back", lease.Spec, err)
		}
	})
	for _, r := range replicas {
		r.checkLog(t)
	}
	for _, file := range []string{"rbac.yaml", "serving/rbac.yaml"} {
		manifests := manifests(t, file)
		c.checkRights(t, manifests)
	}
}

// bootRecorded waits until the status of the node's record has the boot of its machine.
func (c *cluster) bootRecorded(t *testing.T, name string) {
	t.Helper()
	eventually(t, func() error {
		var record v1alpha1.AttestedNode
		if err := c.admin.Get(t.Context(), client.ObjectKey{Name: name}, &record); err != nil {
			return err
		}
		if record.Status.Boot == nil {
			return fmt.Errorf("the record of %s has no boot", name)
		}
		return nil
	})
}

// reservedLongAgo leaves the reservation of a replica that died in the middle of a join, an hour
// ago: a reservation of the node's machine under another name, with its pointers.
func (c *cluster) reservedLongAgo(t *testing.T, node *attesttest.Node) {
	t.Helper()
	ek, err := tpmcert.ParseEK(node.TPM.EKCertificate(tpmsim.RSA2048).Raw)
	if err != nil {
		t.Fatal(err)
	}
	old := &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: "old-node"}, Spec: v1alpha1.AttestedNodeSpec{
		Scope: "ek RSA-2048", Machine: string(ek.Identity()), MachineUID: "inventory:" + node.Name, State: v1alpha1.NodeReserved, Deadline: in(-time.Hour)}}
	if err := c.admin.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	to := v1alpha1.NodeReference{NodeName: old.Name, Reservation: string(old.UID) + "/" + old.ResourceVersion}
	for _, o := range []client.Object{
		&v1alpha1.AttestedMachine{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PointerName(old.Spec.Machine)}, Spec: v1alpha1.AttestedMachineSpec{Machine: old.Spec.Machine, NodeReference: to}},
		&v1alpha1.AttestedMachineUID{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PointerName(old.Spec.MachineUID)}, Spec: v1alpha1.AttestedMachineUIDSpec{MachineUID: old.Spec.MachineUID, NodeReference: to}},
	} {
		if err := c.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// watchesOwn has a bootstrap token file a request and watch it.
func (c *cluster) watchesOwn(t *testing.T, node *attesttest.Node) {
	t.Helper()
	as, err := client.NewWithWatch(c.bearer(t, attesttest.TokenID), client.Options{Scheme: c.scheme})
	if err != nil {
		t.Fatal(err)
	}
	object := file(t, as, c.plain(t, node, csr.SignerClientTPM))
	w, err := as.Watch(t.Context(), new(certificatesv1.CertificateSigningRequestList), client.MatchingFields{"metadata.name": object.Name})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := <-w.ResultChan(); e.Type != watch.Added {
		t.Errorf("got %+v, want the request", e)
	}
}

// testRotation puts an old key into the ring: the controller makes a new one, and keeps the
// old one for answers that are under way.
func testRotation(t *testing.T, c *cluster) {
	var secret corev1.Secret
	name := client.ObjectKey{Namespace: namespace, Name: "challenge-keys"}
	if err := c.admin.Get(t.Context(), name, &secret); err != nil {
		t.Fatal(err)
	}
	if len(secret.Data) != 1 {
		t.Fatalf("%d keys, want 1", len(secret.Data))
	}
	old := attest.NewRingKey(time.Now().Add(-31 * 24 * time.Hour).Truncate(time.Second))
	var err error
	if secret.Data, err = attest.MarshalRingKeys([]attest.RingKey{old}); err != nil {
		t.Fatal(err)
	}
	if err := c.admin.Update(t.Context(), &secret); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if err := c.admin.Get(t.Context(), name, &secret); err != nil {
			return err
		}
		if len(secret.Data) != 2 {
			return fmt.Errorf("%d keys, want 2", len(secret.Data))
		}
		return nil
	})
}

// testMetrics checks the counters of a join and a refusal.
func testMetrics(t *testing.T, r *replica) {
	if got := counted(t, r, "nodeattest_challenges_total"); got[`kind="tpm",state="issued"`] != 3 || got[`kind="tpm",state="answered"`] != 3 {
		t.Errorf("challenges: %v", got)
	}
	got := counted(t, r, "nodeattest_decisions_total")
	for _, want := range []string{
		`kind="tpm",message="answer",reason="RequestAccepted",signer="` + csr.SignerKubeAPIServerClientKubelet + `",verdict="approve"`,
		`kind="tpm",message="hello",reason="NotAMember",signer="` + csr.SignerChallengeTPM + `",verdict="deny"`,
		`kind="none",message="serving",reason="RequestAccepted",signer="` + csr.SignerKubeletServing + `",verdict="approve"`,
	} {
		if got[want] < 1 {
			t.Errorf("decisions: %v, want %s", got, want)
		}
	}
	if got := counted(t, r, "nodeattest_decision_seconds_count"); len(got) == 0 {
		t.Error("no latencies")
	}
}

// applyAdmission makes the shipped admission policy on requests, and waits until it is enforced.
func (c *cluster) applyAdmission(t *testing.T) {
	t.Helper()
	c.apply(t, "admission.yaml")
	c.apply(t, "enforce/admission.yaml")
	bootstrapper := c.client(t, c.bearer(t, attesttest.TokenID))
	request, err := csr.Create(csr.PurposeClient, controlplane.NewKey(t), "probe", csr.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request = pem.EncodeToMemory(&pem.Block{Type: csr.BlockRequest, Bytes: request})
	eventually(t, func() error {
		err := bootstrapper.Create(t.Context(), &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"},
			Spec:       certificatesv1.CertificateSigningRequestSpec{Request: request, SignerName: "example.com/signer", Usages: []certificatesv1.KeyUsage{"client auth"}},
		})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "signer example.com/signer is not in the ConfigMap") {
			return fmt.Errorf("the policy is not in force, or has not seen its parameter: %v", err)
		}
		return nil
	})
}

// testAdmission files requests that the policy refuses.
func testAdmission(t *testing.T, c *cluster, node *attesttest.Node, bootstrapper client.Client) {
	plain, err := (&csr.Bundle{Request: node.Subject.Request}).Spec(csr.SignerKubeAPIServerClientKubelet, 3600)
	if err != nil {
		t.Fatal(err)
	}
	kubelet := c.client(t, c.user(t, csr.NodeUserPrefix+node.Name, csr.NodesGroup))
	recovery := c.client(t, c.user(t, csr.RecoveryUserPrefix+node.Name, csr.RecoveryGroup))
	large := *plain
	large.Request = append([]byte(strings.Repeat("\n", 300<<10)), plain.Request...)
	for name, row := range map[string]struct {
		as     client.Client
		spec   csr.Spec
		signer string
		want   string // in the refusal; empty: it is allowed
	}{
		"a plain request of a bootstrap token":    {bootstrapper, *plain, "", "asks for its client certificate with evidence"},
		"a plain request of a node":               {kubelet, *plain, "", "asks for its client certificate with evidence"},
		"a plain request of a recovery user":      {recovery, *plain, "", "asks for its client certificate with evidence"},
		"a node's own client certificate":         {kubelet, *plain, "kubernetes.io/kube-apiserver-client", "ask only the signers of node attestation"},
		"a bootstrap token's serving certificate": {bootstrapper, *plain, csr.SignerKubeletServing, "ask only the signers of node attestation"},
		"a bootstrap token at another signer":     {bootstrapper, *plain, "example.com/signer", "ask only the signers of node attestation"},
		"a large one":                             {bootstrapper, large, csr.SignerClientTPM, "over 256 KiB"},
		"a bootstrap token at our signer":         {bootstrapper, *plain, csr.SignerClientTPM, ""},
		"a recovery user at our signer":           {recovery, *plain, csr.SignerClientTPM, ""},
		"a node at the signer of serving ones":    {kubelet, *plain, csr.SignerServingTPM, ""},
		"an administrator, who is no node":        {c.admin, *plain, "example.com/signer", ""},
	} {
		t.Run(name, func(t *testing.T) {
			object := &certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"},
				Spec:       certificatesv1.CertificateSigningRequestSpec{Request: row.spec.Request, SignerName: row.spec.SignerName, Usages: []certificatesv1.KeyUsage{"digital signature", "client auth"}},
			}
			if row.signer != "" {
				object.Spec.SignerName = row.signer
			}
			err := row.as.Create(t.Context(), object)
			switch {
			case row.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
				t.Errorf("got %v, want a refusal with %q", err, row.want)
			}
		})
	}
}

// alarms waits until a replica reports a binding as a way around attestation, and no longer does
// without it. It stays ready.
func (c *cluster) alarms(t *testing.T, r *replica, binding *rbacv1.ClusterRoleBinding) {
	t.Helper()
	wait := func(what string, step func() bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); !step(); time.Sleep(time.Second) {
			if status, text := body(t, r.health+"/readyz?verbose"); status != http.StatusOK {
				t.Fatalf("it is not ready: %d %s", status, text)
			}
			if time.Now().After(deadline) {
				t.Fatalf("the way around is not %s", what)
			}
		}
	}
	counts := func(want float64) func() bool {
		return func() bool { return counted(t, r, "nodeattest_ways_around")[`way="Impersonation"`] == want }
	}
	wait("counted", counts(1))
	wait("told of", func() bool {
		var list eventsv1.EventList
		if err := c.admin.List(t.Context(), &list, client.InNamespace("default")); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			e := &list.Items[i]
			if e.Reason == "WayAroundAttestation" && e.Regarding.Name == binding.Name && strings.Contains(e.Note, binding.Name) {
				t.Logf("Event: %s", e.Note)
				return true
			}
		}
		return false
	})
	if err := c.admin.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	wait("gone", counts(0))
	again := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: binding.Name}, RoleRef: binding.RoleRef, Subjects: binding.Subjects}
	if err := c.admin.Create(t.Context(), again); err != nil { // which makes the Event a series
		t.Fatal(err)
	}
	wait("counted again", counts(1))
	if err := c.admin.Delete(t.Context(), again); err != nil {
		t.Fatal(err)
	}
}
