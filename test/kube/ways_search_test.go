package kube

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/program/controlplane/bypass"
)

// A soleRight is a verb on a resource, or on a subresource, that a user has alone.
type soleRight struct {
	verb, group, resource string
	version, kind         string // as the API server has them; empty: no resource that it serves
	namespaced            bool
}

func (r soleRight) String() string {
	if r.group == "" {
		return r.verb + " " + r.resource
	}
	return r.verb + " " + r.resource + "." + r.group
}

func (r *soleRight) rule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{r.verb}, APIGroups: []string{r.group}, Resources: []string{r.resource}}
}

// virtualRights are rights on resources that an API server does not serve, but asks its authorizers about.
func virtualRights() (all []soleRight) {
	const authentication, certificates = "authentication.k8s.io", "certificates.k8s.io"
	for _, row := range [][3]string{
		{"impersonate", "", "users groups serviceaccounts uids"}, {"impersonate", authentication, "userextras/scopes uids"},
		{"impersonate:user-info", authentication, "users groups uids userextras/scopes"}, {"impersonate:serviceaccount", authentication, "serviceaccounts"},
		{"impersonate:arbitrary-node", authentication, "nodes"}, {"impersonate:associated-node", authentication, "nodes"},
		{"approve", certificates, "signers"}, {"sign", certificates, "signers"}, {"attest", certificates, "signers"},
		{"create", certificates, "certificatesigningrequests/nodeclient certificatesigningrequests/selfnodeclient certificatesigningrequests/selfnodeserver"},
		{"bind", rbacv1.GroupName, "clusterroles roles"}, {"escalate", rbacv1.GroupName, "clusterroles roles"},
	} {
		for resource := range strings.FieldsSeq(row[2]) {
			all = append(all, soleRight{verb: row[0], group: row[1], resource: resource})
		}
	}
	return all
}

// A search tries rights, each alone, on a cluster where nodes attest.
type search struct {
	*cluster
	canary  string                    // the content of the programs' Secrets, in base64
	entered atomic.Int64              // requests to run something in a container
	objects map[string]map[string]any // the written objects, by resource and group
	https   http.RoundTripper         // an administrator's
	users   []http.RoundTripper       // by the index of their rights
	csr     *csr.Spec                 // of a node, without evidence
}

// usable is what every user of the search may do: it leads to nothing alone, and other rights are
// used by it.
func usable() []rbacv1.PolicyRule {
	all := []string{"*"}
	return []rbacv1.PolicyRule{
		{Verbs: []string{"create", "get", "list", "watch"}, APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}},
		{Verbs: []string{"update"}, APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests/approval", "certificatesigningrequests/status"}},
		{Verbs: []string{"create", "get", "patch", "update"}, APIGroups: []string{rbacv1.GroupName}, Resources: all},
		{Verbs: []string{"create"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"selfsubjectreviews"}},
		{Verbs: []string{"impersonate", "impersonate:user-info"}, APIGroups: []string{"", "authentication.k8s.io"}, Resources: []string{"users"}, ResourceNames: []string{"alice"}},
		{Verbs: []string{"impersonate-on:user-info:create", "impersonate-on:serviceaccount:create", "impersonate-on:arbitrary-node:create", "impersonate-on:associated-node:create"}, APIGroups: all, Resources: all},
	}
}

// harmless are rights by which nothing of this is had, and why. A resource that an API server serves and is
// neither here, nor found, nor on the page fails the search.
func harmless(r *soleRight) string {
	resource, subresource, _ := strings.Cut(r.resource, "/")
	switch {
	case slices.Contains([]string{"delete", "deletecollection"}, r.verb):
		return "what is gone admits no node"
	case slices.Contains([]string{"status", "scale", "eviction", "finalize", "resize"}, subresource):
		return "it says how things are, or how many there are to be"
	case slices.Contains([]string{"attach", "log", "portforward", "proxy"}, subresource):
		return "the programs serve metrics and probes, and read no input"
	case r.group == "authorization.k8s.io" || r.resource == "tokenreviews" || r.resource == "selfsubjectreviews":
		return "it is a question"
	case r.group == rbacv1.GroupName:
		return "no right is given that the user does not have"
	case r.group == "certificates.k8s.io" && resource == "certificatesigningrequests":
		return "a request, or what the verb approve is needed for"
	case r.String() == "create nodes":
		return "first use refuses a name that has a Node"
	case r.verb == "sign" || r.verb == "attest":
		return "it comes with no key, and no program reads trust bundles"
	case r.verb == "create" && slices.Contains([]string{"configmaps", "secrets", "customresourcedefinitions", "validatingadmissionpolicies", "validatingadmissionpolicybindings", "apiservices"}, r.resource):
		return "those that count are there, and another one only refuses, or is not read"
	case (r.verb == "update" || r.verb == "patch") && r.resource == "jobs":
		return "a job's pods do not change"
	}
	for why, resources := range map[string][]string{
		"it runs nothing, and no program reads it": {"bindings", "componentstatuses", "controllerrevisions", "endpoints", "endpointslices", "events", "horizontalpodautoscalers", "ingressclasses",
			"ingresses", "ipaddresses", "limitranges", "networkpolicies", "poddisruptionbudgets", "podtemplates", "priorityclasses", "replicationcontrollers/scale", "resourcequotas", "runtimeclasses",
			"servicecidrs", "services", "clustertrustbundles", "podcertificaterequests", "workloads", "podgroups"},
		"it decides which replica works":          {"leases", "leasecandidates"},
		"its pods need another right":             {"csidrivers", "csinodes", "csistoragecapacities", "persistentvolumeclaims", "persistentvolumes", "storageclasses", "volumeattachments", "volumeattributesclasses", "deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices", "devicetaintrules"},
		"a token of it needs another right":       {"serviceaccounts"},
		"it slows requests":                       {"flowschemas", "prioritylevelconfigurations"},
		"it moves or labels what others write":    {"namespaces", "storageversionmigrations", "storageversions"},
		"alice stays alice":                       {"uids", "userextras/scopes"},
		"the approver needs a kubelet's own name": {"certificatesigningrequests/selfnodeserver"},
	} {
		if slices.Contains(resources, r.resource) {
			return why
		}
	}
	return ""
}

// untried are rights that the finder reports and by which nothing is had here, and why.
func untried(r *soleRight) string {
	switch r.String() {
	case "impersonate:associated-node nodes.authentication.k8s.io":
		return "it takes the token of a pod on that node"
	case "get pods/exec":
		return "servers before 1.35 take it for create"
	}
	return ""
}

// TestSearchWays gives users each verb on each resource of the API server, alone, and has them try
// what can be had by it: a certificate or an identity, a token, a record, a configuration or the
// keys, an approval. The finder finds those rights and no others, but for the ones that the page
// names with a reason.
func TestSearchWays(t *testing.T) {
	t.Parallel()
	s := newSearch(t)
	all := append(s.served(t), virtualRights()...)
	said := s.said(t)
	tried, had := 0, 0
	var chosen []soleRight
	for i, r := range all {
		if found(t, r) || os.Getenv(longVar) != "" || i%10 == 0 {
			chosen = append(chosen, r)
		}
	}
	s.give(t, chosen)
	for i := range chosen {
		r := &chosen[i]
		t.Run(r.String(), func(t *testing.T) {
			tried++
			what, isFound, why := s.try(t, i, r), found(t, *r), harmless(r)
			switch {
			case what != "" && isFound:
				had++
			case isFound && untried(r) == "":
				t.Error("the finder reports it, and nothing was had by it")
			case !isFound && strings.HasPrefix(what, "!") && said[r.String()] == "", !isFound && what != "" && why == "" && said[r.String()] == "":
				t.Errorf("%s: the finder is silent, and so is the page", what)
			}
		})
	}
	t.Logf("%d of %d rights tried alone, %d lead to a node's certificate", tried, len(all), had)
	if had < 80 || tried < 120 {
		t.Errorf("%d had, %d tried", had, tried)
	}
}

// found reports whether the finder finds a right, on a cluster with nothing else.
func found(t *testing.T, r soleRight) bool {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{r.rule()}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "monitoring", Name: "agent"}}}
	findings, err := soleFinder(t, role, binding).Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(findings) != 0
}

func soleFinder(t *testing.T, objects ...client.Object) *bypass.Finder {
	t.Helper()
	c := fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			if kind := o.GetObjectKind().GroupVersionKind().Kind; kind != "SubjectAccessReview" {
				return fmt.Errorf("a %s is created", kind)
			}
			return nil
		}}).Build()
	f, err := bypass.NewFinder(bypass.Config{Reader: c, Writer: c})
	if err != nil {
		t.Fatal(err)
	}
	return f
}
