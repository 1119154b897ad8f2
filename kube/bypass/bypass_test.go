package bypass

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodeattest/nodeattest/refusal"
)

// A cluster has roles and bindings, and reviews access as a test says.
type cluster struct {
	client.Client
	review func(s *authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus
	broken error
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme := runtime.NewScheme() // that knows nothing
	raw := make([]client.Object, len(objects))
	for i, o := range objects {
		raw[i] = untyped(t, o)
	}
	c := &cluster{review: func(*authorizationv1.SubjectAccessReviewSpec) (none authorizationv1.SubjectAccessReviewStatus) {
		return none
	}}
	c.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(raw...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			var review authorizationv1.SubjectAccessReview
			raw := o.(*unstructured.Unstructured)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, &review); err != nil {
				return err
			}
			review.Status = c.review(&review.Spec)
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&review)
			raw.Object = fields
			return errors.Join(err, c.broken)
		},
	}).Build()
	return c
}

// untyped returns an object of RBAC without its type.
func untyped(t *testing.T, o client.Object) client.Object {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind(reflect.TypeOf(o).Elem().Name()))
	return u
}

func (c *cluster) find(t *testing.T, config Config) []string {
	t.Helper()
	config.Reader, config.Writer = c, c
	f, err := NewFinder(config)
	if err != nil {
		t.Fatal(err)
	}
	findings, err := f.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for i := range findings {
		texts = append(texts, string(findings[i].Way)+": "+findings[i].String())
	}
	return texts
}

func role(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

func binding(name, role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: role}, Subjects: subjects}
}

func rule(verb, group, resource string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
}

func subject(kind, name string) rbacv1.Subject { return rbacv1.Subject{Kind: kind, Name: name} }

// TestBindings tries each rule of a role, and the smallest change of it.
func TestBindings(t *testing.T) {
	const csrs, group = "certificatesigningrequests", "certificates.k8s.io"
	for name, row := range map[string]struct {
		rule rbacv1.PolicyRule
		way  Way // empty: none
	}{
		"nodeclient":                    {rule("create", group, csrs+"/nodeclient"), wayAutoApproval},
		"selfnodeclient":                {rule("create", group, csrs+"/selfnodeclient"), wayAutoApproval},
		"any subresource of it":         {rule("create", group, "*/nodeclient"), wayAutoApproval},
		"any resource":                  {rule("create", group, "*"), wayAutoApproval},
		"any verb":                      {rule("*", group, csrs+"/nodeclient"), wayAutoApproval},
		"any group":                     {rule("create", "*", csrs+"/nodeclient"), wayAutoApproval},
		"requests themselves":           {rule("create", group, csrs), ""},
		"another verb":                  {rule("get", group, csrs+"/nodeclient"), ""},
		"another group":                 {rule("create", "", csrs+"/nodeclient"), ""},
		"one of a name":                 {rule("create", group, csrs+"/nodeclient", "a"), ""},
		"selfnodeserver":                {rule("create", group, csrs+"/selfnodeserver"), ""},
		"an approver":                   {rule("approve", group, "signers", "kubernetes.io/kube-apiserver-client-kubelet"), wayApproval},
		"an approver of the domain":     {rule("approve", group, "signers", "kubernetes.io/*"), wayApproval},
		"an approver of all":            {rule("approve", group, "signers"), wayApproval},
		"an approver of others":         {rule("approve", group, "signers", "kubernetes.io/kubelet-serving"), ""},
		"a signer":                      {rule("sign", group, "signers", "kubernetes.io/kube-apiserver-client-kubelet"), ""},
		"an impersonator":               {rule("impersonate", "", "users"), wayImpersonation},
		"an impersonator of a node":     {rule("impersonate", "", "users", "system:node:a"), wayImpersonation},
		"an impersonator of a user":     {rule("impersonate", "", "users", "alice"), ""},
		"an impersonator of groups":     {rule("impersonate", "", "groups"), ""},
		"impersonate:arbitrary-node":    {rule("impersonate:arbitrary-node", "authentication.k8s.io", "nodes"), wayImpersonation},
		"it, of one node":               {rule("impersonate:arbitrary-node", "authentication.k8s.io", "nodes", "a"), wayImpersonation},
		"it, of another group":          {rule("impersonate:arbitrary-node", "", "nodes"), ""},
		"impersonate:serviceaccount":    {rule("impersonate:serviceaccount", "authentication.k8s.io", "serviceaccounts"), ""},
		"everything, who administers":   {rule("*", "*", "*"), ""},
		"everything of one name, alone": {rule("*", "*", "*", "system:node:a"), wayImpersonation},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, role("r", row.rule), role("other", rule("get", "", "pods")),
				binding("b", "r", subject("Group", "g")), binding("unused", "other", subject("Group", "system:nodes")))
			got := c.find(t, Config{})
			if row.way == "" && len(got) != 0 || row.way != "" && (len(got) == 0 || !strings.HasPrefix(got[0], string(row.way)+": Group g may ")) {
				t.Errorf("found %q, want %q", got, row.way)
			}
			for _, text := range got {
				if !strings.Contains(text, "ClusterRoleBinding b to ClusterRole r") {
					t.Errorf("%s: names no binding", text)
				}
			}
			if got := c.find(t, Config{Accepted: []string{"b"}}); len(got) != 0 {
				t.Errorf("accepted, and found %q", got)
			}
		})
	}
}

// TestApprovers checks who may approve without being in the way.
func TestApprovers(t *testing.T) {
	approve := role("r", rule("approve", "certificates.k8s.io", "signers"))
	account := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "n", Name: "a"}
	c := newCluster(t, approve, binding("system:controller:certificate-controller", "r", account), binding("ours", "r", account), binding("theirs", "r", account))
	want := []string{"Approval: ServiceAccount n/a may approve signers, by ClusterRoleBinding theirs to ClusterRole r"}
	if diff := cmp.Diff(want, c.find(t, Config{Approvers: []string{"ours"}})); diff != "" {
		t.Error(diff)
	}
}

// TestReview has another authorizer than RBAC allow what no binding says.
func TestReview(t *testing.T) {
	const reason = `RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to Group "g"`
	allow := func(user, reason string) func(s *authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
		return func(s *authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
			return authorizationv1.SubjectAccessReviewStatus{Reason: reason, Allowed: s.ResourceAttributes.Subresource == "selfnodeclient" &&
				(strings.HasPrefix(s.User, user) || strings.Contains(strings.Join(s.Groups, " "), user))}
		}
	}
	c := newCluster(t)
	for user, want := range map[string]string{
		"system:node:":                      "a node",
		"nodeattest:recovery:":              "a node's recovery user",
		"system:anonymous":                  "everybody",
		"system:bootstrappers:kubeadm:":     "a bootstrap token of the group system:bootstrappers:kubeadm:default-node-token",
		"somebody who is asked about never": "",
	} {
		t.Run(user, func(t *testing.T) {
			c.review = allow(user, "webhook")
			texts := c.find(t, Config{})
			if want != "" && (len(texts) != 1 || texts[0] != "AutoApproval: "+want+" may create certificatesigningrequests/selfnodeclient, as an access review says: webhook") || want == "" && len(texts) != 0 {
				t.Errorf("%s: found %q", user, texts)
			}
		})
	}
	t.Run("a group in a binding", func(t *testing.T) {
		c := newCluster(t, binding("x", "none", subject("Group", "system:bootstrappers:ours")))
		c.review = allow("system:bootstrappers:ours", "webhook")
		if got := c.find(t, Config{}); len(got) != 1 {
			t.Errorf("found %q", got)
		}
	})
	t.Run("an accepted binding explains it", func(t *testing.T) {
		c.review = allow("system:node:", reason)
		if got := c.find(t, Config{}); len(got) != 1 {
			t.Errorf("found %q", got)
		}
		if got := c.find(t, Config{Accepted: []string{"b"}}); len(got) != 0 {
			t.Errorf("accepted, and found %q", got)
		}
	})
}

// TestWatch checks what a readiness check says, and what is counted.
func TestWatch(t *testing.T) {
	c := newCluster(t, role("r", rule("impersonate", "", "users")), binding("b", "r", subject("Group", "g")))
	metrics := prometheus.NewRegistry()
	newWatch := func(insecure bool) *Watch {
		f, err := NewFinder(Config{Reader: c, Writer: c})
		if err != nil {
			t.Fatal(err)
		}
		config := WatchConfig{Finder: f, InsecureAllow: insecure}
		if !insecure {
			config.Metrics = metrics
		}
		w, err := NewWatch(config)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	w, loud := newWatch(false), newWatch(true)
	for _, w := range []*Watch{w, loud} {
		if err := w.Check(nil); err == nil {
			t.Error("ready before anybody has looked")
		}
		if err := w.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Check(nil); err == nil || !strings.Contains(err.Error(), "ClusterRoleBinding b") {
		t.Errorf("got %v, want an error that names the binding", err)
	}
	if err := loud.Check(nil); err != nil {
		t.Errorf("InsecureAllow: %v", err)
	}
	const want = "# HELP nodeattest_ways_around Rights by which somebody becomes a node without attestation, by way.\n# TYPE nodeattest_ways_around gauge\n" +
		"nodeattest_ways_around{way=\"Approval\"} 0\nnodeattest_ways_around{way=\"AutoApproval\"} 0\nnodeattest_ways_around{way=\"Impersonation\"} 1\n"
	if err := testutil.GatherAndCompare(metrics, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	c.broken = errors.New("no answer")
	if err := w.Look(t.Context()); !errors.Is(err, c.broken) || !errors.Is(w.Check(nil), c.broken) {
		t.Errorf("got %v and %v, want %v", err, w.Check(nil), c.broken)
	}
	c.broken = nil
	if err := c.Delete(t.Context(), untyped(t, binding("b", "r"))); err != nil {
		t.Fatal(err)
	}
	if err := w.Look(t.Context()); err != nil || w.Check(nil) != nil {
		t.Errorf("got %v and %v, want none", err, w.Check(nil))
	}
}

func TestConfig(t *testing.T) {
	if _, err := NewFinder(Config{}); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no reader: %v", err)
	}
	if _, err := NewFinder(Config{Reader: newCluster(t)}); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no writer: %v", err)
	}
	if _, err := NewWatch(WatchConfig{}); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no finder: %v", err)
	}
}
