package bypass

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/deploy"
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

// List lists metadata too, as an API server does.
func (c *cluster) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	metadata, ok := list.(*metav1.PartialObjectMetadataList)
	if !ok {
		return c.Client.List(ctx, list, options...)
	}
	var raw unstructured.UnstructuredList
	raw.SetGroupVersionKind(list.GetObjectKind().GroupVersionKind())
	if err := c.Client.List(ctx, &raw, options...); err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(raw.UnstructuredContent(), metadata)
}

// untyped returns an object of RBAC without its type.
func untyped(t *testing.T, o client.Object) client.Object {
	t.Helper()
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u
	}
	fields := testkit.Must(runtime.DefaultUnstructuredConverter.ToUnstructured(o))
	u := &unstructured.Unstructured{Object: fields}
	if u.GetKind() == "" {
		u.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind(reflect.TypeOf(o).Elem().Name()))
	}
	return u
}

// unreadable has reads of one kind of object fail.
type unreadable struct {
	*cluster
	kind, namespace string
	err             error
}

func (u unreadable) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	if list.GetObjectKind().GroupVersionKind().Kind == u.kind+"List" && o.Namespace == u.namespace {
		return u.err
	}
	return u.cluster.List(ctx, list, options...)
}

func (u unreadable) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if o.GetObjectKind().GroupVersionKind().Kind == u.kind {
		return u.err
	}
	return u.cluster.Get(ctx, key, o, options...)
}

// TestUnreadable finds nothing where one thing cannot be read, and says so.
func TestUnreadable(t *testing.T) {
	objects, manifests := shipped(t)
	broken := errors.New("no answer")
	for _, row := range [][2]string{{"", ""}, {"ClusterRole", ""}, {"ClusterRoleBinding", ""}, {"Role", "kube-system"}, {"RoleBinding", "kube-system"},
		{"Role", "ours"}, {"RoleBinding", "ours"}, {policyKind.Kind, ""}, {bindingKind().Kind, ""}} {
		c := newCluster(t, objects...)
		f := testkit.Must(NewFinder(Config{Reader: unreadable{c, row[0], row[1], broken}, Writer: c, Namespace: "ours", Policies: manifests}))
		findings, err := f.Find(t.Context())
		if want := row[0] != ""; errors.Is(err, broken) != want || !want && err != nil || len(findings) != 0 {
			t.Errorf("%q: %v, %v", row, findings, err)
		}
	}
}

func (c *cluster) find(t *testing.T, config Config) []string {
	t.Helper()
	config.Reader, config.Writer = c, c
	f := testkit.Must(NewFinder(config))
	findings := testkit.Must(f.Find(t.Context()))
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

// The approvers of serving certificates that clusters have for the metrics server approve what the
// controller would refuse: any name and address, without an attested client certificate. A
// controller that does not decide about serving certificates does not report them.
func TestServing(t *testing.T) {
	const serving = "kubernetes.io/kubelet-serving"
	controller := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "nodeattest-system", Name: controllerAccount}
	c := newCluster(t, role("approver", rule("approve", "certificates.k8s.io", "signers", serving)),
		binding("theirs", "approver", rbacv1.Subject{Kind: "ServiceAccount", Namespace: "kube-system", Name: "approver"}), binding("ours", "approver", controller))
	if found := c.find(t, Config{}); len(found) != 0 {
		t.Errorf("not served: found %q", found)
	}
	found := c.find(t, Config{Serving: true})
	if len(found) != 1 || !strings.HasPrefix(found[0], "Approval: ServiceAccount kube-system/approver may approve signers "+serving) || !strings.Contains(found[0], "ClusterRoleBinding theirs") {
		t.Errorf("served: found %q", found)
	}
	if found := c.find(t, Config{Serving: true, Accepted: []string{"theirs"}}); len(found) != 0 {
		t.Errorf("accepted: found %q", found)
	}
	c.review = func(s *authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
		return authorizationv1.SubjectAccessReviewStatus{Allowed: s.ResourceAttributes.Name == serving, Reason: "by a webhook"}
	}
	if found := c.find(t, Config{Serving: true, Accepted: []string{"theirs"}}); len(found) == 0 {
		t.Error("what another authorizer allows was not found")
	}
}

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
		"an approver of API clients":    {rule("approve", group, "signers", "kubernetes.io/kube-apiserver-client"), wayApproval},
		"an approver of another signer": {rule("approve", group, "signers", "example.com/*"), ""},
		"a signer":                      {rule("sign", group, "signers", "kubernetes.io/kube-apiserver-client-kubelet"), ""},
		"an impersonator":               {rule("impersonate", "", "users"), wayImpersonation},
		"an impersonator of a node":     {rule("impersonate", "", "users", "system:node:a"), wayImpersonation},
		"an impersonator of a user":     {rule("impersonate", "", "users", "alice"), ""},
		"an impersonator of groups":     {rule("impersonate", "", "groups"), wayImpersonation},
		"an impersonator of masters":    {rule("impersonate", "", "groups", "system:masters"), wayImpersonation},
		"an impersonator of a group":    {rule("impersonate", "", "groups", "developers"), ""},
		"an impersonator of accounts":   {rule("impersonate", "", "serviceaccounts"), wayImpersonation},
		"an impersonator of ours":       {rule("impersonate", "", "serviceaccounts", "node-attestation-controller"), wayImpersonation},
		"an impersonator of an account": {rule("impersonate", "", "serviceaccounts", "app"), ""},
		"impersonate:arbitrary-node":    {rule("impersonate:arbitrary-node", "authentication.k8s.io", "nodes"), wayImpersonation},
		"it, of one node":               {rule("impersonate:arbitrary-node", "authentication.k8s.io", "nodes", "a"), wayImpersonation},
		"it, of another group":          {rule("impersonate:arbitrary-node", "", "nodes"), ""},
		"impersonate:associated-node":   {rule("impersonate:associated-node", "authentication.k8s.io", "nodes"), wayImpersonation},
		"impersonate:serviceaccount":    {rule("impersonate:serviceaccount", "authentication.k8s.io", "serviceaccounts"), wayImpersonation},
		"impersonate:user-info":         {rule("impersonate:user-info", "authentication.k8s.io", "groups"), wayImpersonation},
		"it, of users":                  {rule("impersonate:user-info", "authentication.k8s.io", "users"), wayImpersonation},
		"tokens of accounts":            {rule("create", "", "serviceaccounts/token"), wayToken},
		"tokens of the signer":          {rule("create", "", "serviceaccounts/token", "node-attestation-signer"), wayToken},
		"tokens of another":             {rule("create", "", "serviceaccounts/token", "app"), ""},
		"accounts, without tokens":      {rule("create", "", "serviceaccounts"), ""},
		"bind":                          {rule("bind", "rbac.authorization.k8s.io", "clusterroles"), wayEscalation},
		"bind of one of Kubernetes'":    {rule("bind", "rbac.authorization.k8s.io", "clusterroles", "system:node"), wayEscalation},
		"bind of cluster-admin":         {rule("bind", "rbac.authorization.k8s.io", "clusterroles", "cluster-admin"), wayEscalation},
		"bind of another":               {rule("bind", "rbac.authorization.k8s.io", "clusterroles", "view"), ""},
		"escalate":                      {rule("escalate", "rbac.authorization.k8s.io", "clusterroles"), wayEscalation},
		"update of roles":               {rule("update", "rbac.authorization.k8s.io", "clusterroles"), ""},
		"everything, who administers":   {rule("*", "*", "*"), ""},
		"everything of one name, alone": {rule("*", "*", "*", "system:node:a"), wayImpersonation},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, role("r", row.rule), role("other", rule("get", "", "pods")),
				binding("b", "r", subject("Group", "g")), binding("unused", "other", subject("Group", "system:nodes")))
			got := c.find(t, Config{})
			of := func(text string) bool { return strings.HasPrefix(text, string(row.way)+": Group g may ") }
			if row.way == "" && len(got) != 0 || row.way != "" && !slices.ContainsFunc(got, of) {
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

func account(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: name}
}

// TestExpected gives rights to subjects that have them by their office, and to one more in the same
// binding: that one alone is found.
func TestExpected(t *testing.T) {
	const ours, system = "nodeattest-system", "kube-system"
	for name, row := range map[string]struct {
		rule     rbacv1.PolicyRule
		expected []rbacv1.Subject
		found    int // of one subject
	}{
		"approval": {rule("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client-kubelet"),
			[]rbacv1.Subject{account(system, "certificate-controller"), account(ours, "node-attestation-controller")}, 1},
		"tokens":         {rule("create", "", "serviceaccounts/token"), []rbacv1.Subject{subject("User", "system:kube-controller-manager")}, 1},
		"escalation":     {rule("escalate", "rbac.authorization.k8s.io", "clusterroles"), []rbacv1.Subject{account(system, "clusterrole-aggregation-controller")}, 1},
		"administration": {rule("*", "*", "*"), []rbacv1.Subject{subject("Group", "system:masters"), subject("Group", "administrators"), subject("User", "alice")}, 1},
	} {
		for _, stranger := range []rbacv1.Subject{account(system, "other"), account("other", "certificate-controller"), account("other", "node-attestation-controller"),
			account("other", "clusterrole-aggregation-controller"), {Kind: "User", Namespace: system, Name: "certificate-controller"}, subject("Group", "system:authenticated"), subject("User", "system:anonymous"),
			subject("User", "system:masters"), subject("Group", "system:kube-controller-manager")} {
			if name == "administration" && stranger.Kind == "User" && !strings.HasPrefix(stranger.Name, "system:") {
				continue // one of the people
			}
			t.Run(name+", and "+stranger.Name, func(t *testing.T) {
				c := newCluster(t, role("r", row.rule), binding("system:controller:certificate-controller", "r", append(slices.Clone(row.expected), stranger)...))
				if got := c.find(t, Config{}); len(got) != row.found || !strings.Contains(got[0], stranger.Name+" may ") {
					t.Errorf("found %q", got)
				}
			})
		}
	}
}

// Only subjects with every verb on every resource administer.
func TestAdministers(t *testing.T) {
	for name, row := range map[string]struct {
		rule rbacv1.PolicyRule
		want bool
	}{
		"everything":            {rule("*", "*", "*"), true},
		"everything may be got": {rule("get", "*", "*"), false},
		"a group":               {rule("*", "", "*"), false},
		"a resource of all":     {rule("*", "*", "pods"), false},
		"of one name":           {rule("*", "*", "*", "a"), false},
	} {
		if got := administers([]rbacv1.PolicyRule{rule("get", "", "pods"), row.rule}); got != row.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestRoleBindings finds what Roles give in the namespaces of the programs, and nothing of
// others.
func TestRoleBindings(t *testing.T) {
	in := func(o client.Object, namespace string) client.Object {
		o.SetNamespace(namespace)
		return o
	}
	for name, row := range map[string]struct {
		namespace, kind string
		rule            rbacv1.PolicyRule
		want            string // "": nothing
	}{
		"tokens, ours":            {"nodeattest-system", "Role", rule("create", "", "serviceaccounts/token"), "Token: Group g may create serviceaccounts/token in nodeattest-system, by RoleBinding b to role r"},
		"tokens, Kubernetes'":     {"kube-system", "Role", rule("create", "", "serviceaccounts/token"), "Token: Group g may create serviceaccounts/token in kube-system, by RoleBinding b to role r"},
		"by a ClusterRole":        {"kube-system", "ClusterRole", rule("impersonate", "", "serviceaccounts"), "Impersonation: Group g may impersonate serviceaccounts in kube-system, by RoleBinding b to role r"},
		"elsewhere":               {"default", "Role", rule("create", "", "serviceaccounts/token"), ""},
		"what Roles do not give":  {"kube-system", "Role", rule("approve", "certificates.k8s.io", "signers"), ""},
		"a ClusterRole, not Role": {"kube-system", "ClusterRole", rule("get", "", "pods"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{
				in(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: row.kind, Name: "r"}, Subjects: []rbacv1.Subject{subject("Group", "g")}}, row.namespace)}
			if row.kind == "Role" {
				objects = append(objects, in(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{row.rule}}, row.namespace), role("r"))
			} else {
				objects = append(objects, role("r", row.rule), in(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{rule("*", "*", "*")}}, row.namespace))
			}
			if got := strings.Join(newCluster(t, objects...).find(t, Config{}), "\n"); got != row.want {
				t.Errorf("found %q, want %q", got, row.want)
			}
		})
	}
}

// shipped returns the shipped admission policies as they are where they are enforced, with
// an API server's defaults, and their manifests.
func shipped(t *testing.T) (objects []client.Object, manifests [][]byte) {
	t.Helper()
	for _, file := range []string{"admission.yaml", "approval.yaml", "enforce/*.yaml"} {
		some := testkit.Must(deploy.Manifests(file))
		for _, manifest := range some {
			o := new(unstructured.Unstructured)
			testkit.MustDo(yaml.UnmarshalStrict(manifest, &o.Object))
			if o.GetKind() == policyKind.Kind {
				set(t, o, "Equivalent", "spec", "matchConstraints", "matchPolicy")
				set(t, o, map[string]any{}, "spec", "matchConstraints", "objectSelector")
				rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "matchConstraints", "resourceRules")
				rules[0].(map[string]any)["scope"] = "*"
				set(t, o, rules, "spec", "matchConstraints", "resourceRules")
			}
			objects = append(objects, o)
		}
		manifests = append(manifests, some...)
	}
	return objects, manifests
}

func set(t *testing.T, o client.Object, value any, fields ...string) {
	t.Helper()
	testkit.MustDo(unstructured.SetNestedField(o.(*unstructured.Unstructured).Object, value, fields...))
}

// TestAdmission takes the admission policies out of force, each in one way: that is found, and
// the rights that they guard are ways around again. A policy that was changed may be accepted; one
// that is gone guards nothing, nor does one without its binding.
func TestAdmission(t *testing.T) {
	const policy, bound = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
	for name, row := range map[string]struct {
		kind, name string
		change     func(o client.Object)
		want       string
	}{
		"as shipped":             {},
		"no policy":              {policy, "node-attestation-approval", nil, "its ValidatingAdmissionPolicy is missing"},
		"no binding":             {bound, "node-attestation-signing", nil, "its ValidatingAdmissionPolicyBinding is missing"},
		"it warns":               {bound, "node-attestation", func(o client.Object) { set(t, o, []any{"Warn", "Audit"}, "spec", "validationActions") }, "want Deny"},
		"for some resources":     {bound, "node-attestation", func(o client.Object) { set(t, o, map[string]any{"matchPolicy": "Exact"}, "spec", "matchResources") }, "only some resources"},
		"of another policy":      {bound, "node-attestation", func(o client.Object) { set(t, o, "other", "spec", "policyName") }, "policyName"},
		"with another parameter": {bound, "node-attestation", func(o client.Object) { set(t, o, "other", "spec", "paramRef", "name") }, "its name"},
		"without a parameter":    {bound, "node-attestation", func(o client.Object) { set(t, o, "Allow", "spec", "paramRef", "parameterNotFoundAction") }, "parameterNotFoundAction"},
		"failures are ignored":   {policy, "node-attestation-approval", func(o client.Object) { set(t, o, "Ignore", "spec", "failurePolicy") }, "failurePolicy"},
		"other validations":      {policy, "node-attestation-approval", func(o client.Object) { set(t, o, []any{}, "spec", "validations") }, "validations"},
		"another condition":      {policy, "node-attestation-signing", func(o client.Object) { set(t, o, []any{}, "spec", "matchConditions") }, "matchConditions"},
		"another variable":       {policy, "node-attestation-signing", func(o client.Object) { set(t, o, []any{}, "spec", "variables") }, "variables"},
		"other resources":        {policy, "node-attestation", func(o client.Object) { set(t, o, []any{}, "spec", "matchConstraints", "resourceRules") }, "resourceRules"},
		"not for some resources": {policy, "node-attestation", func(o client.Object) { set(t, o, []any{"x"}, "spec", "matchConstraints", "excludeResourceRules") }, "excludeResourceRules"},
		"of some objects": {policy, "node-attestation", func(o client.Object) {
			set(t, o, map[string]any{"matchLabels": map[string]any{"a": "b"}}, "spec", "matchConstraints", "objectSelector")
		}, "objectSelector"},
		"of one version alone": {policy, "node-attestation", func(o client.Object) { set(t, o, "Exact", "spec", "matchConstraints", "matchPolicy") }, "matchPolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			objects, manifests := shipped(t)
			objects = slices.DeleteFunc(objects, func(o client.Object) bool {
				if o.GetObjectKind().GroupVersionKind().Kind != row.kind || o.GetName() != row.name {
					return false
				}
				if row.change != nil {
					row.change(o)
				}
				return row.change == nil
			})
			objects = append(objects, role("r", rule("create", "certificates.k8s.io", "certificatesigningrequests/nodeclient")), binding("kubeadm", "r", subject("Group", "g")))
			c := newCluster(t, objects...)
			got := strings.Join(c.find(t, Config{Policies: manifests}), "\n")
			if !strings.Contains(got, row.want) || strings.Contains(got, "an admission policy refuses") != (row.want == "") || !strings.Contains(got, "ClusterRoleBinding kubeadm") {
				t.Errorf("found %q, want %q", got, row.want)
			}
			got = strings.Join(c.find(t, Config{Policies: manifests, Accepted: []string{row.name}}), "\n")
			if changed := row.kind == policy && row.change != nil; strings.Contains(got, row.want) == changed || strings.Contains(got, "an admission policy refuses") != (changed || row.want == "") {
				t.Errorf("accepted, and found %q", got)
			}
		})
	}
}

// recorder keeps the objects that Events are about, and the notes.
type recorder struct {
	about []string
}

func (r *recorder) Eventf(about, _ runtime.Object, _, _, _, note string, args ...any) {
	o := about.(client.Object)
	r.about = append(r.about, fmt.Sprintf("%s %q/%s: ", o.GetObjectKind().GroupVersionKind().Kind, o.GetNamespace(), o.GetName())+fmt.Sprintf(note, args...))
}

// TestEvents has all Events in one namespace, the default one, where the right to create them is.
func TestEvents(t *testing.T) {
	rb := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}, Subjects: []rbacv1.Subject{subject("Group", "g")}}
	c := newCluster(t, rb, role("r", rule("create", "", "serviceaccounts/token")))
	f := testkit.Must(NewFinder(Config{Reader: c, Writer: c}))
	c.review = func(s *authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
		return authorizationv1.SubjectAccessReviewStatus{Allowed: s.User == "system:anonymous"} // by no binding that an Event could be about
	}
	events := new(recorder)
	w := testkit.Must(NewWatch(WatchConfig{Finder: f, Events: events}))
	testkit.MustDo(w.Look(t.Context()))
	if len(events.about) != 1 || !strings.HasPrefix(events.about[0], `RoleBinding ""/b: `) || !strings.Contains(events.about[0], "in kube-system, by RoleBinding b") {
		t.Errorf("Events about %q", events.about)
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
		"system:node:":                     "a node",
		"nodeattest:recovery:":             "a node's recovery user",
		"system:anonymous":                 "everybody",
		"system:bootstrappers:kubeadm:":    "a bootstrap token of the group system:bootstrappers:kubeadm:default-node-token",
		"a user that is never asked about": "",
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
	t.Run("another binding does not explain it", func(t *testing.T) {
		c.review = allow("system:node:", reason)
		if got := c.find(t, Config{Accepted: []string{"a"}}); len(got) != 1 {
			t.Errorf("found %q", got)
		}
	})
	t.Run("only what is to be reviewed is", func(t *testing.T) {
		c.review = func(s *authorizationv1.SubjectAccessReviewSpec) (none authorizationv1.SubjectAccessReviewStatus) {
			if a := s.ResourceAttributes; a.Resource == "serviceaccounts" || a.Verb == "bind" || a.Resource == "users" && a.Name == "" {
				t.Errorf("asked about %+v", a)
			}
			return none
		}
		if got := c.find(t, Config{}); len(got) != 0 {
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

// A role that is no role is an error, and not left out.
func TestMalformedRole(t *testing.T) {
	malformed := untyped(t, role("r")).(*unstructured.Unstructured)
	malformed.Object["rules"] = "all"
	c := newCluster(t, malformed, binding("b", "r", subject("Group", "g")))
	f := testkit.Must(NewFinder(Config{Reader: c, Writer: c}))
	if findings, err := f.Find(t.Context()); err == nil {
		t.Errorf("found %v", findings)
	}
}

// After a failure the next look comes soon.
func TestStartRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.broken = errors.New("no answer")
		f := testkit.Must(NewFinder(Config{Reader: c, Writer: c}))
		w := testkit.Must(NewWatch(WatchConfig{Finder: f}))
		ctx, cancel := context.WithTimeout(t.Context(), interval+time.Second)
		defer cancel()
		looks := 0
		c.review = func(*authorizationv1.SubjectAccessReviewSpec) (none authorizationv1.SubjectAccessReviewStatus) {
			looks++
			return none
		}
		if err := w.Start(ctx); err != nil || looks != 11 { // each ends with its first review
			t.Errorf("%d looks, %v", looks, err)
		}
	})
}

// TestWatch checks the readiness check and the metric.
func TestWatch(t *testing.T) {
	c := newCluster(t, role("r", rule("impersonate", "", "users")), binding("b", "r", subject("Group", "g")))
	metrics := prometheus.NewRegistry()
	newWatch := func(insecure bool) *Watch {
		f := testkit.Must(NewFinder(Config{Reader: c, Writer: c}))
		config := WatchConfig{Finder: f, InsecureAllow: insecure}
		if !insecure {
			config.Metrics = metrics
		}
		w := testkit.Must(NewWatch(config))
		return w
	}
	w, loud := newWatch(false), newWatch(true)
	for name, w := range map[string]*Watch{"nil": nil, "zero": {}} {
		if err := w.Check(nil); err == nil {
			t.Errorf("a %s watch is ready", name)
		}
	}
	for _, w := range []*Watch{w, loud} {
		if err := w.Check(nil); err == nil {
			t.Error("ready before the first look")
		}
		testkit.MustDo(w.Look(t.Context()))
	}
	if err := w.Check(nil); err == nil || !strings.Contains(err.Error(), "ClusterRoleBinding b") {
		t.Errorf("got %v, want an error that names the binding", err)
	}
	if err := loud.Check(nil); err != nil {
		t.Errorf("InsecureAllow: %v", err)
	}
	want := "# HELP nodeattest_ways_around Rights by which an account becomes a node without attestation and that no admission policy guards, by way.\n# TYPE nodeattest_ways_around gauge\n"
	for _, way := range slices.Sorted(slices.Values(ways())) {
		n := "0"
		if way == wayImpersonation {
			n = "1"
		}
		want += `nodeattest_ways_around{way="` + string(way) + `"} ` + n + "\n"
	}
	if err := testutil.GatherAndCompare(metrics, strings.NewReader(want), "nodeattest_ways_around"); err != nil {
		t.Error(err)
	}
	c.broken = errors.New("no answer")
	if err := w.Look(t.Context()); !errors.Is(err, c.broken) || !errors.Is(w.Check(nil), c.broken) {
		t.Errorf("got %v and %v, want %v", err, w.Check(nil), c.broken)
	}
	c.broken = nil
	testkit.MustDo(c.Delete(t.Context(), untyped(t, binding("b", "r"))))
	if err := w.Look(t.Context()); err != nil || w.Check(nil) != nil {
		t.Errorf("got %v and %v, want none", err, w.Check(nil))
	}
}

func TestConfig(t *testing.T) {
	if _, err := NewFinder(Config{Writer: newCluster(t)}); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no reader: %v", err)
	}
	if _, err := NewFinder(Config{Reader: newCluster(t)}); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no writer: %v", err)
	}
	_, manifests := shipped(t)
	for name, policies := range map[string][][]byte{"no policy": {}, "other objects": {[]byte("kind: ConfigMap")}, "no YAML": append([][]byte{[]byte("\t")}, manifests...)} {
		c := newCluster(t)
		if _, err := NewFinder(Config{Reader: c, Writer: c, Policies: policies}); !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewWatch(WatchConfig{}); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no finder: %v", err)
	}
}
