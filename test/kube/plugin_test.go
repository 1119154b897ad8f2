package kube

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// operator runs kubectl nodeattest, as kubectl does: found in PATH.
type operator struct {
	kubectl, dir, kubeconfig string
}

// newOperator makes a user with the shipped role, which may be there.
func (c *cluster) newOperator(t *testing.T) *operator {
	t.Helper()
	manifests := manifests(t, "operator.yaml")
	for _, manifest := range manifests {
		role := decode(t, manifest)
		if err := client.IgnoreAlreadyExists(c.admin.Create(t.Context(), role, client.FieldValidation("Strict"))); err != nil {
			t.Fatal(err)
		}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role.GetKind(), Name: role.GetName()}
		subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "operator"}}
		meta := metav1.ObjectMeta{Name: role.GetName(), Namespace: role.GetNamespace()}
		var binding client.Object = &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
		if role.GetNamespace() == "" {
			binding = &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
		}
		if err := c.admin.Create(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
	}
	return &operator{kubectl: filepath.Join(controlplane.Binaries(t), "kubectl"), dir: filepath.Dir(buildProgram(t, "kubectl-nodeattest")),
		kubeconfig: c.kubeconfig(t, "operator.kubeconfig", "operator")}
}

// try runs one command of the plugin.
func (o *operator) try(ctx context.Context, args ...string) (string, error) {
	return o.plain(ctx, append([]string{"nodeattest"}, args...)...)
}

// plain runs one command of kubectl.
func (o *operator) plain(ctx context.Context, args ...string) (string, error) {
	cmd := o.command(ctx, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return string(out), err
}

// command is one of kubectl.
func (o *operator) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, o.kubectl, append(args, "--kubeconfig="+o.kubeconfig)...)
	cmd.Env = []string{"PATH=" + o.dir, "HOME=" + o.dir}
	return cmd
}

// run runs one command, which must succeed and print all of want.
func (o *operator) run(t *testing.T, command string, want ...string) string {
	t.Helper()
	out, err := o.try(t.Context(), strings.Fields(command)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("kubectl nodeattest %s: want %q in\n%s", command, w, out)
		}
	}
	return out
}

// refuse runs one command, which must fail with this status and text.
func (o *operator) refuse(t *testing.T, command string, status int, want string) {
	t.Helper()
	_, err := o.try(t.Context(), strings.Fields(command)...)
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != status || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want status %d and %q", err, status, want)
	}
}

// newestHello is the name of the newest hello for a node that is denied for a reason.
func (c *cluster) newestHello(t *testing.T, reason string) string {
	t.Helper()
	list := c.requests(t)
	list = slices.DeleteFunc(list, func(o certificatesv1.CertificateSigningRequest) bool {
		return o.Spec.SignerName != csr.SignerChallengeTPM || len(o.Status.Conditions) == 0 || o.Status.Conditions[0].Reason != reason
	})
	if len(list) == 0 {
		t.Fatalf("no hello was denied for %s", reason)
	}
	return slices.MaxFunc(list, func(a, b certificatesv1.CertificateSigningRequest) int {
		return strings.Compare(fmt.Sprintf("%20s", a.ResourceVersion), fmt.Sprintf("%20s", b.ResourceVersion))
	}).Name
}

// TestPlugin is an operator's day: unknown machines are approved, a board is
// replaced, an inventory moved, a machine is gone; and requests are explained.
func TestPlugin(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.prepare(t)
	c.apply(t, "observe.yaml")
	c.startSigner(t)
	ca := newCA(t, "")
	board, spare := tpmsim.Swtpm(t, tpmsim.Options{CA: ca}), tpmsim.Swtpm(t, tpmsim.Options{CA: ca})
	node, replaced := c.nodeOn(t, board, "node-1"), c.nodeOn(t, spare, "node-1")
	var roots []byte
	for _, root := range node.Roots() {
		roots = append(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})...)
	}
	inventory := "machines:\n- nodeName: node-1\n  uid: uid-1\n- nodeName: node-2\n"
	controlplane.Write(t, c.dir, "ek-roots.pem", roots)
	controlplane.Write(t, c.dir, "inventory.yaml", []byte(inventory))
	approval := func(config map[string]any) { config["membership"].(map[string]any)["mode"] = "Approval" }
	r := c.startController(t, buildProgram(t, "node-attestation-controller"), "controller", approval)
	r.ready(t, func() error { return controlplane.Healthy(r.health + "/readyz") })
	c.makeConfigMap(t, inventory, approval)
	o := c.newOperator(t)
	bootstrapper := c.client(t, c.bearer(t, attesttest.TokenID))
	refused := func(n *attesttest.Node) string {
		t.Helper()
		eventually(t, func() error { // the cache that a hello is looked up in may be behind
			if _, err := challenged(t, bootstrapper, n); err == nil || !strings.Contains(err.Error(), "NotAMember") {
				return fmt.Errorf("got %v, want a refusal", err)
			}
			return nil
		})
		return c.newestHello(t, "NotAMember")
	}
	machine, spareMachine := string(identityOf(t, board)), string(identityOf(t, spare))

	t.Run("usage", func(t *testing.T) { testPluginUsage(t, o) })
	hello := refused(node)
	o.run(t, "pending", hello, "node-1", "ek:sha256:", "system:bootstrap:"+attesttest.TokenID, "none")
	o.run(t, "explain "+hello, "hello", "node-1", "Denied, NotAMember", "has approved as node node-1", "ok       subject-common-name",
		"ok       machine-unknown", "ok       request-signature", "BROKEN   not-a-member", "an operator: if the machine may be node node-1: kubectl nodeattest approve node-1 --machine "+machine)
	t.Run("a thief under the request's name", func(t *testing.T) { c.testSwapped(t, o, hello, machine, replaced, spareMachine) })
	o.refuse(t, "approve node-1 --machine "+machine, 1, "machine "+machine+" has no refused request for node node-1")
	hello = refused(node)
	o.run(t, "approve node-1 --machine "+machine, "node node-1 is machine "+machine)
	o.run(t, "approve node-1 --machine "+machine, "node node-1 is machine "+machine) // again, nothing changes
	o.run(t, "pending", hello, "approved")

	o.run(t, "explain "+hello, "the node: it is admitted by now")
	leaf := c.joins(t, bootstrapper, node)
	o.run(t, "explain "+c.newestHello(t, "AttestationChallenge"), "the denial carries the challenge, as intended; the node has answered with ")
	answers := c.requests(t)
	for i := range answers {
		if len(answers[i].Status.Certificate) != 0 {
			out := o.run(t, "explain "+answers[i].Name, "answer", "ok       binding-requester", "ok       answer-late", "ok       not-a-member", "ok       qualifying-data", "no action is needed: the certificate is in status.certificate")
			if strings.Contains(out, "BROKEN") {
				t.Errorf("an approved answer breaks rules:\n%s", out)
			}
		}
	}
	hello = refused(replaced)
	o.run(t, "explain "+hello, "BROKEN   registry-name", "kubectl nodeattest rebind node-1 --machine "+spareMachine)
	o.refuse(t, "approve node-1 --machine "+spareMachine, 1, "registry-name")
	o.refuse(t, "rebind node-2 --machine "+spareMachine, 1, "node node-2 has no record")
	o.refuse(t, "rebind node-1 --machine "+spareMachine, 1, "nothing was done")
	o.refuse(t, "rebind node-1 --machine "+spareMachine+" --replaces "+spareMachine, 1, "node node-1 is machine "+machine+", not "+spareMachine)
	o.run(t, "rebind node-1 --machine "+spareMachine+" --replaces "+machine, "node node-1 is machine "+spareMachine+", no longer "+machine)
	c.joins(t, bootstrapper, replaced)
	refused(node) // the old board is out

	c.testAdopt(t, o, spareMachine, func() string { return refused(replaced) })
	c.joins(t, bootstrapper, replaced)

	t.Run("each right is needed", func(t *testing.T) { testOperatorRights(t, c, o, refused(c.nodeOn(t, board, "node-2")), machine) })
	t.Run("an existing Node", func(t *testing.T) {
		if err := c.admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}); err != nil {
			t.Fatal(err)
		}
		refused(c.nodeOn(t, board, "node-2"))
		o.refuse(t, "approve node-2 --machine "+machine, 1, "--existing-node")
		o.run(t, "approve node-2 --machine "+machine+" --existing-node", "node node-2 is machine")
	})

	o.refuse(t, "token node-1 --machine "+machine, 1, "node node-1 is machine "+spareMachine+", not "+machine)
	o.refuse(t, "release node-1", 1, "nothing was done")
	o.refuse(t, "release node-1 --machine "+machine, 1, "node node-1 is machine "+spareMachine+", not "+machine)
	o.refuse(t, "release node-1 --dry-run=client", 2, "want none or server")
	o.run(t, "release node-1 --dry-run=server", "node node-1 rests until", "(server dry run)")
	c.joins(t, bootstrapper, replaced)
	o.run(t, "release node-1 --machine "+spareMachine, "node node-1 rests until")
	hello = refused(replaced)
	o.run(t, "explain "+hello, "BROKEN   registry-resting", "no action is needed: the name rests until", "kubectl nodeattest approve node-1 --machine "+spareMachine)
	o.run(t, "approve node-1 --machine "+spareMachine, "node node-1 is machine "+spareMachine)
	c.joins(t, bootstrapper, replaced)
	o.run(t, "release node-1 --machine "+spareMachine, "node node-1 rests until")
	o.refuse(t, "release node-9", 1, "has no record")
	var released v1alpha1.AttestedNode
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: "node-1"}, &released); err != nil || released.Spec.State != v1alpha1.NodeResting || released.Spec.LastEnd.Time.Before(leaf.NotAfter) {
		t.Errorf("got %+v, %v, want a name that rests until %s", released.Spec, err, leaf.NotAfter)
	}
	t.Run("the right to make tokens", func(t *testing.T) { testTokenRight(t, c) })
	t.Run("requests of others", func(t *testing.T) { testExplainOthers(t, c, o) })
}

// testSwapped has the request that an operator has looked at cleaned up, and a thief file one with its
// name and its node, from another machine of a listed vendor. The operator approves the machine that he
// has seen.
func (c *cluster) testSwapped(t *testing.T, o *operator, name, seen string, thief *attesttest.Node, itsMachine string) {
	if err := c.admin.Delete(t.Context(), &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	hello, err := thief.Attester.Hello(t.Context(), thief.Subject)
	if err != nil {
		t.Fatal(err)
	}
	object, as := requestOf(hello), c.client(t, c.bearer(t, otherTokenID))
	object.GenerateName, object.Name = "", name
	eventually(t, func() error { return as.Create(t.Context(), object) })
	decided(t, as, object)
	o.refuse(t, "approve node-1 --machine "+seen, 1, "machine "+seen+" has no refused request for node node-1")
	o.refuse(t, "approve node-1 --machine "+seen, 1, "machine "+itsMachine+" (request "+name+" of system:bootstrap:"+otherTokenID+")")
	o.refuse(t, "approve "+name, 2, "approve takes NODE and --machine")
	o.refuse(t, "approve "+name+" --machine "+seen, 1, "has no refused request for node "+name)
	if _, err := challenged(t, as, thief); err == nil || !strings.Contains(err.Error(), "NotAMember") {
		t.Errorf("the thief: %v, want a refusal", err)
	}
}

// testAdopt moves the inventory: the record follows it, and nothing that the inventory has not.
func (c *cluster) testAdopt(t *testing.T, o *operator, machine string, refused func() string) {
	t.Helper()
	o.refuse(t, "adopt node-1 --machine-uid uid-9 --machine "+machine, 1, "the inventory has UID uid-1")
	o.refuse(t, "adopt node-1 --provider-id x --machine "+machine, 1, "--provider-id")
	moved := func(from, to string) {
		t.Helper()
		m := new(corev1.ConfigMap)
		if err := c.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "node-attestation"}, m); err != nil {
			t.Fatal(err)
		}
		m.Data["inventory.yaml"] = strings.Replace(m.Data["inventory.yaml"], from, to, 1)
		if err := c.admin.Update(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	moved("uid-1", "uid-9")
	o.refuse(t, "adopt node-1 --machine-uid uid-9", 1, "gets certificates only while")
	o.run(t, "adopt node-1 --machine-uid uid-9 --machine "+machine, "node node-1 is Machine uid-9")
	moved("uid-9", "uid-1")
	o.run(t, "explain "+refused(), "BROKEN   registry-machine-uid", "kubectl nodeattest adopt node-1")
	o.run(t, "adopt node-1 --machine-uid uid-1 --machine "+machine, "node node-1 is Machine uid-1")
}

// makeConfigMap makes what kube/deploy makes of the controller's configuration.
func (c *cluster) makeConfigMap(t *testing.T, inventory string, change func(config map[string]any)) {
	t.Helper()
	manifests := manifests(t, "config.yaml")
	var config map[string]any
	if err := yaml.UnmarshalStrict(manifests[0], &config); err != nil {
		t.Fatal(err)
	}
	change(config)
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	err = c.admin.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "node-attestation"},
		Data: map[string]string{"config.yaml": string(text), "inventory.yaml": inventory}})
	if err != nil {
		t.Fatal(err)
	}
}

func testPluginUsage(t *testing.T, o *operator) {
	for command, want := range map[string]string{
		"":                          "no command given",
		"admit x":                   "unknown command",
		"explain":                   "explain takes REQUEST",
		"explain a b":               "explain takes REQUEST",
		"pending a":                 "pending takes nothing",
		"token":                     "token takes NODE",
		"release a --machine-uid b": "release takes no --machine-uid",
		"adopt a":                   "adopt takes --machine-uid",
		"rebind a":                  "rebind takes --machine",
		"approve a":                 "approve takes NODE and --machine",
		"release a --yes":           "release takes no --yes",
		"approve --yes":             "approve takes NODE",
		"approve a --nonsense":      "unknown flag",
		"explain a --existing-node": "explain takes no --existing-node",
		"explain a --join":          "explain takes no --join",
		"cluster-info":              "unknown command",
		"cluster-info shew":         "unknown command",
		"cluster-info show a":       "cluster-info show takes nothing",
		"cluster-info show --ca a":  "cluster-info show takes no --ca",
		"cluster-info verify":       "cluster-info verify takes --token-file",
		"cluster-info publish":      "cluster-info publish takes --server and --ca",
	} {
		o.refuse(t, command, 2, want)
	}
	o.refuse(t, "explain nowhere", 1, "not found")
	o.refuse(t, "approve nowhere --machine sha256:00", 1, "has no refused request for node nowhere")
	o.refuse(t, "rebind node-1 --machine sha256:00", 1, "has no record")
	o.run(t, "--help", "approve NODE", "--context")
}

// testOperatorRights takes each rule of the operator's roles away, and wants something to
// fail that works with it.
func testOperatorRights(t *testing.T, c *cluster, o *operator, hello, machine string) {
	probe := func() error {
		out, err := o.try(t.Context(), "explain", hello)
		if err != nil {
			return err
		}
		if !strings.Contains(out, "event ") || strings.Contains(out, "the controller's inventory decides") {
			return fmt.Errorf("explained without what it needs:\n%s", out)
		}
		if out, err := o.plain(t.Context(), "get", "attestednodes"); err != nil || !strings.Contains(out, "MACHINE") || !strings.Contains(out, "Bound") {
			return fmt.Errorf("attestednodes: %w: %s", err, out)
		}
		for _, command := range []string{"cluster-info show", "nodes", "observed", "pending", "approve node-2 --machine " + machine, "token node-2", "release node-2 --machine " + machine} {
			if _, err := o.try(t.Context(), strings.Fields(command)...); err != nil {
				return err
			}
		}
		if out, err := o.plain(t.Context(), "get", "attestednodes"); err != nil || strings.Contains(out, "node-2") {
			return fmt.Errorf("what was released is there: %w: %s", err, out)
		}
		return nil
	}
	document, err := (&bootstraptoken.ClusterInfo{Server: c.url, CAs: []*x509.Certificate{c.ca.Cert}}).Data()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.admin.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: bootstraptoken.ClusterInfoNamespace, Name: bootstraptoken.ClusterInfoName}, Data: document}); err != nil {
		t.Fatal(err)
	}
	eventually(t, probe) // the Event may be late
	manifests := manifests(t, "operator.yaml")
	for _, manifest := range manifests {
		var head metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(manifest, &head); err != nil {
			t.Fatal(err)
		}
		for n, without := range c.withoutEach(t, head.Kind, client.ObjectKey{Namespace: head.Namespace, Name: head.Name}) {
			without.apply(t)
			eventually(t, func() error {
				if probe() == nil {
					return fmt.Errorf("%s %s/%s: everything works without rule %d, %s", head.Kind, head.Namespace, head.Name, n, without.what)
				}
				return nil
			})
			without.restore(t)
			eventually(t, probe)
		}
	}
}

// testTokenRight has the operator use the right to make tokens for more than that: it makes Secrets
// of any type and group, and reads, changes and deletes none.
func testTokenRight(t *testing.T, c *cluster) {
	as := c.client(t, c.user(t, "operator"))
	kubeadms := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-kubead"},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": "kubead", "token-secret": tokenSecret, "usage-bootstrap-signing": "true", "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token"},
	}
	accounts := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "account", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	for _, secret := range []*corev1.Secret{kubeadms, accounts} {
		if err := as.Create(t.Context(), secret); err != nil {
			t.Error(err)
		}
		for verb, err := range map[string]error{
			"get":    as.Get(t.Context(), client.ObjectKeyFromObject(secret), new(corev1.Secret)),
			"list":   as.List(t.Context(), new(corev1.SecretList), client.InNamespace(secret.Namespace)),
			"update": as.Update(t.Context(), secret.DeepCopy()),
			"patch":  as.Patch(t.Context(), secret.DeepCopy(), client.RawPatch(types.MergePatchType, []byte("{}"))),
			"delete": as.Delete(t.Context(), secret, client.DryRunAll, client.PropagationPolicy(metav1.DeletePropagationForeground)),
		} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s of %s: %v", verb, secret.Type, err)
			}
		}
	}
}

// A lessRole is a role without one verb of one of its rules.
type lessRole struct {
	what           string
	apply, restore func(t *testing.T)
}

// withoutEach returns a role without each verb on each resource.
func (c *cluster) withoutEach(t *testing.T, kind string, key client.ObjectKey) []lessRole {
	t.Helper()
	role := new(rbacv1.Role) // a ClusterRole has the same fields
	read := func() client.Object {
		t.Helper()
		var object client.Object = role
		rules := &role.Rules
		cluster := new(rbacv1.ClusterRole)
		if kind == "ClusterRole" {
			object = cluster
		}
		if err := c.admin.Get(t.Context(), key, object); err != nil {
			t.Fatal(err)
		}
		if kind == "ClusterRole" {
			*rules = cluster.Rules
		}
		return object
	}
	put := func(rules []rbacv1.PolicyRule) func(t *testing.T) {
		return func(t *testing.T) {
			t.Helper()
			object := read()
			switch o := object.(type) {
			case *rbacv1.ClusterRole:
				o.Rules = rules
			case *rbacv1.Role:
				o.Rules = rules
			}
			if err := c.admin.Update(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
	}
	read()
	whole := slices.Clone(role.Rules)
	var less []lessRole
	for i, rule := range whole {
		for _, verb := range rule.Verbs {
			rules := slices.Clone(whole)
			rules[i] = *rule.DeepCopy()
			rules[i].Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(v string) bool { return v == verb })
			if len(rules[i].Verbs) == 0 {
				rules = slices.Delete(rules, i, i+1)
			}
			less = append(less, lessRole{what: verb + " on " + strings.Join(rule.Resources, ", "), apply: put(rules), restore: put(whole)})
		}
	}
	return less
}

// testExplainOthers explains requests that attestation does not decide about, and one that
// is no request at all.
func testExplainOthers(t *testing.T, c *cluster, o *operator) {
	for name, row := range map[string]struct {
		signer string
		want   string
	}{
		"a stranger's": {"example.com/signer", "nodeattest ignores requests for example.com/signer"},
		"without any":  {csr.SignerKubeAPIServerClientKubelet, "BROKEN   attestation-provider"},
		"no evidence":  {csr.SignerChallengeTPM, "BROKEN"},
		"our signer's": {csr.SignerClientTPM, "BROKEN   signer-name"},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := csr.Create(csr.PurposeClient, controlplane.NewKey(t), "node-7", csr.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			object := &certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "plugin-"},
				Spec: certificatesv1.CertificateSigningRequestSpec{Request: pem.EncodeToMemory(&pem.Block{Type: csr.BlockRequest, Bytes: request}),
					SignerName: row.signer, Usages: []certificatesv1.KeyUsage{"digital signature", "client auth"}},
			}
			if err := c.admin.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			o.run(t, "explain "+object.Name, object.Name, row.want)
		})
	}
}
