package kube

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestTrace has a stranger use a pod's token, and an operator find in kube-apiserver's own log the machine
// whose node requested it. A token of the same pod that an administrator requested looks the same to
// every validator, and not to the log. Holes in the log are named.
func TestTrace(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.prepare(t)
	c.startSigner(t)
	device := tpmsim.Swtpm(t, tpmsim.Options{CA: newCA(t, "")})
	node := c.nodeOn(t, device, "node-1")
	p := &plane{config: attesttest.NewControlPlane(t, node).Config, clusterIDs: []string{c.clusterID(t)}, inv: new(inventory)}
	p.run(t, c, "controller")
	leaf := c.joins(t, c.client(t, c.bearer(t, attesttest.TokenID)), node)
	kubelet := c.withCertificate(t, tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: node.Key, Leaf: leaf})
	own := c.podOn(t, "cart", node.Name)
	o := c.newOperator(t)

	stolen := tokenOf(t, kubelet, own)
	stranger := c.client(t, c.withToken(t, stolen))
	if err := stranger.List(t.Context(), new(corev1.SecretList)); !apierrors.IsForbidden(err) {
		t.Fatalf("the stranger: %v, want that the token is accepted and may not", err)
	}
	issued := c.issued(t, node.Name, csr.CredentialID(leaf))
	machine := "machine       " + string(identityOf(t, device)) + "\n"
	request := "(UID " + issued.RequestUID + "), filed "
	out := o.traced(t, c.auditLog, credentialOf(t, stolen), 0, "used by       system:serviceaccount:default:cart\n", "from          127.0.0.1\n",
		"requested by  system:node:node-1 with "+csr.CredentialID(leaf), "machine UID   uid-of-node-1\n", machine, request, " by system:bootstrap:"+attesttest.TokenID+"\n")
	t.Logf("a stolen token:\n%s", out)
	page := readPage(t, "workloads.md", "text").take(t, "Whose token was it", "text")
	if _, shown, _ := strings.Cut(page, "\n"); !slices.Equal(labels(shown), labels(out)) {
		t.Errorf("docs/workloads.md shows\n%s", shown)
	}
	o.traced(t, c.auditLog, csr.CredentialID(leaf), 0, "used by       system:node:node-1\n", machine, request)

	t.Run("a token that a token requested", func(t *testing.T) {
		c.mayRequestTokens(t, "cart")
		till := c.podOn(t, "till", node.Name)
		var minted string
		eventually(t, func() (err error) { minted, err = tryToken(t, stranger, till); return err })
		o.traced(t, c.auditLog, credentialOf(t, minted), 0, "requested by  system:serviceaccount:default:cart with "+credentialOf(t, stolen), "requested by  system:node:node-1", machine)
	})
	t.Run("an administrator's", func(t *testing.T) {
		out := o.traced(t, c.auditLog, credentialOf(t, tokenOf(t, c.admin, own)), 1, "requested by  admin with X509SHA256=", "audit-not-a-node: got admin with X509SHA256=")
		if strings.Contains(out, "machine") {
			t.Errorf("a machine is shown:\n%s", out)
		}
		t.Logf("an administrator's:\n%s", out)
	})
	t.Run("another node's certificate", func(t *testing.T) { // by the same CA, and not attested
		plain := c.client(t, c.user(t, csr.NodeUserPrefix+node.Name, csr.NodesGroup))
		o.traced(t, c.auditLog, credentialOf(t, tokenOf(t, plain, own)), 1, "the chain ends at a certificate of node node-1 that is not in its AttestedNode")
	})
	t.Run("holes", func(t *testing.T) { c.testHoles(t, o, credentialOf(t, stolen), csr.CredentialID(leaf)) })
	t.Run("a request that is gone", func(t *testing.T) {
		for _, r := range c.requests(t) {
			if err := c.admin.Delete(t.Context(), &r); err != nil {
				t.Fatal(err)
			}
		}
		o.traced(t, c.auditLog, credentialOf(t, stolen), 0, machine, "(UID "+issued.RequestUID+"), update of certificatesigningrequests/approval ", " by "+controllerUser+"\n")
	})
	t.Run("memory", func(t *testing.T) { c.testLargeLog(t, o, credentialOf(t, stolen)) })
	for _, a := range c.audit(t) {
		if a.User.Username == "operator" && a.ResponseStatus.Code == 403 {
			t.Errorf("the operator was refused: %+v", a)
		}
	}
}

// labels returns the label of each indented line, which ends at two spaces.
func labels(output string) (all []string) {
	for line := range strings.Lines(output) {
		if label, _, found := strings.Cut(strings.TrimPrefix(line, "  "), "  "); found && strings.HasPrefix(line, "  ") {
			all = append(all, label)
		}
	}
	return all
}

// traced runs the command, which must end with a status, and print all of want.
func (o *operator) traced(t *testing.T, log, credentialID string, status int, want ...string) (out string) {
	t.Helper()
	eventually(t, func() error { // the log is written a moment later
		cmd := o.command(t.Context(), "nodeattest", "trace", credentialID, "--audit-log", log)
		text, err := cmd.CombinedOutput()
		if out = string(text); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != status {
			return fmt.Errorf("trace %s: %w, want status %d:\n%s", credentialID, err, status, out)
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				return fmt.Errorf("trace %s: want %q in\n%s", credentialID, w, out)
			}
		}
		return nil
	})
	return out
}

// podOn makes a pod with a service account of its own on a node, and with a volume for a token.
func (c *cluster) podOn(t *testing.T, name, node string) *corev1.Pod {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}
	if err := c.admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	if err := c.admin.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}); err != nil {
		t.Fatal(err)
	}
	return c.makePod(t, name, node, name, "")
}

// tryToken requests a pod's token for the API server.
func tryToken(t *testing.T, as client.Client, pod *corev1.Pod) (string, error) {
	t.Helper()
	hour := int64(3600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour,
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}}
	err := as.SubResource("token").Create(t.Context(), account, request)
	return request.Status.Token, err
}

func tokenOf(t *testing.T, as client.Client, pod *corev1.Pod) (token string) {
	t.Helper()
	eventually(t, func() (err error) { token, err = tryToken(t, as, pod); return err }) // admission learns of the pod a moment later
	return token
}

// credentialOf is the ID of a token in the audit log.
func credentialOf(t *testing.T, token string) string {
	t.Helper()
	parsed, err := jws.Parse(token)
	if err != nil {
		t.Fatal(err)
	}
	content, err := claims.Parse(parsed.UnverifiedPayload())
	if err != nil {
		t.Fatal(err)
	}
	return content.CredentialID()
}

// issued is the record of a node's certificate.
func (c *cluster) issued(t *testing.T, node, credentialID string) *v1alpha1.IssuedCertificate {
	t.Helper()
	var object v1alpha1.AttestedNode
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: node}, &object); err != nil {
		t.Fatal(err)
	}
	n := slices.IndexFunc(object.Spec.Certificates, func(i v1alpha1.IssuedCertificate) bool { return i.CredentialID == credentialID })
	if n < 0 || object.Spec.Certificates[n].RequestUID == "" {
		t.Fatalf("%s is not recorded with its request: %+v", credentialID, object.Spec)
	}
	return &object.Spec.Certificates[n]
}

// mayRequestTokens lets a service account request tokens of others.
func (c *cluster) mayRequestTokens(t *testing.T, name string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}}}},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: name}}},
	} {
		if err := c.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// testHoles takes lines out of the log, and repeats one with a change.
func (c *cluster) testHoles(t *testing.T, o *operator, token, leaf string) {
	whole := controlplane.Read(t, c.auditLog)
	issue := []byte(`"authentication.kubernetes.io/issued-credential-id":"` + token + `"`)
	var line []byte
	for l := range bytes.Lines(whole) {
		if bytes.Contains(l, issue) {
			line = l
		}
	}
	if line == nil || !bytes.Contains(line, []byte(leaf)) {
		t.Fatalf("no event issued %s with %s: %s", token, leaf, line)
	}
	forged := bytes.Replace(bytes.Replace(line, []byte(leaf), []byte("X509SHA256="+strings.Repeat("0", 64)), 1), []byte("system:node:node-1"), []byte("admin"), 1)
	for name, row := range map[string]struct {
		log  []byte
		want string
	}{
		"no event of its issue":     {bytes.Replace(whole, line, nil, 1), "audit-no-event: got no TokenRequest that issued " + token + ", first used at "},
		"older than release 1.30":   {bytes.Replace(whole, issue, []byte(`"a":"b"`), 1), "; TokenRequests that name no token, as before Kubernetes 1.30: 1"},
		"a second event":            {slices.Concat(whole, forged), "audit-conflict: got " + token + " issued to system:node:node-1 (audit ID "},
		"a requester without an ID": {bytes.Replace(whole, line, bytes.Replace(line, []byte(`authentication.kubernetes.io/credential-id`), []byte("other"), 1), 1), "audit-no-credential: got " + token + " requested by system:node:node-1 at "},
		"without JSON":              {[]byte("no audit log\n"), "audit-log: got no events"},
	} {
		t.Run(name, func(t *testing.T) {
			out := o.traced(t, controlplane.Write(t, t.TempDir(), "audit.log", row.log), token, 1, "error: ")
			if !strings.Contains(out, row.want) || strings.Contains(out, "machine  ") {
				t.Errorf("want %q in\n%s", row.want, out)
			}
			t.Log(out[strings.Index(out, "error: "):])
		})
	}
}

// testLargeLog reads the log so often that it is of 100 MB, or of 1 GB with NODEATTEST_LONG: as files
// of 10 MB that are one.
func (c *cluster) testLargeLog(t *testing.T, o *operator, token string) {
	const most = 64 << 10 // KiB
	files := 10
	if os.Getenv(longVar) != "" {
		files *= 10
	}
	whole := controlplane.Read(t, c.auditLog)
	whole = whole[:bytes.LastIndexByte(whole, '\n')+1]
	large := controlplane.Write(t, t.TempDir(), "large.log", bytes.Repeat(whole, 10<<20/len(whole)))
	args := []string{"trace", token, "--kubeconfig", o.kubeconfig}
	for range files {
		args = append(args, "--audit-log", large)
	}
	cmd, began, resident := exec.Command(filepath.Join(o.dir, "kubectl-nodeattest"), args...), time.Now(), int64(0)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)); err == nil {
			if m := peak.FindSubmatch(text); m != nil {
				var kilobytes int64
				fmt.Sscan(string(m[1]), &kilobytes)
				resident = max(resident, kilobytes)
			}
		}
		select {
		case err := <-done:
			if err != nil || !strings.Contains(out.String(), "machine  ") {
				t.Fatalf("%v\n%s", err, &out)
			}
			t.Logf("%d MiB of log, read three times, in %s with at most %d MiB of memory", files*10, time.Since(began).Round(time.Millisecond), resident>>10)
			if resident == 0 || resident > most {
				t.Errorf("the program had %d KiB of memory, at most %d are promised", resident, most)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
