package bypass

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestProgramRights gives a program rights that lead to a pod, a record or a configuration, and the
// smallest change of each.
func TestProgramRights(t *testing.T) {
	const ours, system, records = "nodeattest-system", "kube-system", "nodeattest.github.io"
	admission := func(verb, resource string, names ...string) rbacv1.PolicyRule {
		return rule(verb, "admissionregistration.k8s.io", resource, names...)
	}
	for name, row := range map[string]struct {
		rule      rbacv1.PolicyRule
		namespace string // of the binding; empty: the cluster's
		way       Way    // empty: none
	}{
		"pods":                              {rule("create", "", "pods"), "", wayPods},
		"pods, of a name":                   {rule("update", "", "pods", "a"), "", ""},
		"pods are read":                     {rule("get", "", "pods"), "", ""},
		"pods, ours":                        {rule("create", "", "pods"), ours, wayPods},
		"pods, Kubernetes'":                 {rule("create", "", "pods"), system, wayPods},
		"pods elsewhere":                    {rule("create", "", "pods"), "default", ""},
		"our Deployment":                    {rule("patch", "apps", "deployments", "node-attestation-signer"), "", wayPods},
		"another Deployment":                {rule("patch", "apps", "deployments", "web"), "", ""},
		"jobs":                              {rule("create", "batch", "jobs"), ours, wayPods},
		"jobs are changed":                  {rule("update", "batch", "jobs"), ours, ""},
		"exec":                              {rule("create", "", "pods/exec"), ours, wayPods},
		"port forwarding":                   {rule("create", "", "pods/portforward"), ours, ""},
		"nodes/proxy":                       {rule("get", "", "nodes/proxy"), "", wayPods},
		"nodes/proxy of a node":             {rule("get", "", "nodes/proxy", "a"), "", wayPods},
		"nodes/proxy is not in a namespace": {rule("get", "", "nodes/proxy"), ours, ""},
		"nodes/metrics":                     {rule("get", "", "nodes/metrics"), "", ""},
		"records":                           {rule("create", records, "attestednodes"), "", wayRecords},
		"one record":                        {rule("update", records, "attestednodes", "a"), "", wayRecords},
		"records are read":                  {rule("list", records, "attestednodes"), "", ""},
		"pointers":                          {rule("patch", records, "attestedmachineuids"), "", wayRecords},
		"the inventory":                     {rule("update", "", "configmaps", "node-attestation"), ours, wayConfiguration},
		"the signers":                       {rule("patch", "", "configmaps", "node-attestation-signers"), "", wayConfiguration},
		"a part of the inventory":           {rule("update", "", "configmaps", "node-attestation-inventory-7"), "", wayConfiguration},
		"another ConfigMap":                 {rule("update", "", "configmaps", "node-attestation-observed"), ours, ""},
		"ConfigMaps of Kubernetes":          {rule("update", "", "configmaps"), system, ""},
		"Secrets":                           {rule("list", "", "secrets"), "", wayConfiguration},
		"the challenge keys":                {rule("get", "", "secrets", "challenge-keys"), ours, wayConfiguration},
		"the CA of nodes":                   {rule("watch", "", "secrets", "node-attestation-signer-ca"), ours, wayConfiguration},
		"another Secret":                    {rule("get", "", "secrets", "a"), ours, ""},
		"new Secrets":                       {rule("create", "", "secrets"), ours, ""},
		"Secrets of Kubernetes":             {rule("get", "", "secrets"), system, ""},
		"a webhook":                         {admission("create", "mutatingwebhookconfigurations"), "", wayConfiguration},
		"webhooks are deleted":              {admission("delete", "mutatingwebhookconfigurations"), "", ""},
		"a policy is deleted":               {admission("delete", "validatingadmissionpolicies"), "", wayConfiguration},
		"ours is deleted":                   {admission("delete", "validatingadmissionpolicybindings", "node-attestation-approval"), "", wayConfiguration},
		"another one is":                    {admission("delete", "validatingadmissionpolicybindings", "a"), "", ""},
		"a policy is made":                  {admission("create", "validatingadmissionpolicies"), "", ""},
		"definitions":                       {rule("update", "apiextensions.k8s.io", "customresourcedefinitions"), "", wayConfiguration},
		"our definition":                    {rule("patch", "apiextensions.k8s.io", "customresourcedefinitions", "attestednodes."+records), "", wayConfiguration},
		"another definition":                {rule("patch", "apiextensions.k8s.io", "customresourcedefinitions", "a.example.com"), "", ""},
		"API services":                      {rule("patch", "apiregistration.k8s.io", "apiservices"), "", wayConfiguration},
	} {
		t.Run(name, func(t *testing.T) {
			for s, programs := range map[rbacv1.Subject]bool{account("monitoring", "agent"): true, subject("Group", "system:authenticated"): true, subject("User", "system:anonymous"): true,
				subject("User", "alice"): false, subject("Group", "developers"): false, subject("User", "system:kube-controller-manager"): false} {
				var b client.Object = binding("b", "r", s)
				if row.namespace != "" {
					b = &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: row.namespace, Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}, Subjects: []rbacv1.Subject{s}}
				}
				got := newCluster(t, role("r", row.rule), b).find(t, Config{})
				if want := row.way != "" && programs; want != (len(got) == 1) || len(got) > 1 || want && !strings.HasPrefix(got[0], string(row.way)+": "+s.Kind+" ") {
					t.Errorf("%s: found %q, want %q", s.Name, got, row.way)
				}
			}
		})
	}
}

// TestOffices gives rights of programs to subjects that have them by their office, and to others of the
// same names.
func TestOffices(t *testing.T) {
	pods, secrets := rule("create", "", "pods"), rule("get", "", "secrets", "challenge-keys")
	for name, row := range map[string]struct {
		rule    rbacv1.PolicyRule
		binding string
		subject rbacv1.Subject
		found   bool
	}{
		"a controller of Kubernetes":      {pods, "system:controller:job-controller", account("kube-system", "job-controller"), false},
		"by another's binding":            {pods, "system:controller:job-controller", account("kube-system", "other"), true},
		"of another namespace":            {pods, "system:controller:job-controller", account("other", "job-controller"), true},
		"by another binding":              {pods, "b", account("kube-system", "job-controller"), true},
		"a user of a controller's name":   {pods, "system:controller:system:a", subject("User", "system:a"), true},
		"our signer, for the keys":        {secrets, "b", account("nodeattest-system", "node-attestation-signer"), false},
		"our signer, for pods":            {pods, "b", account("nodeattest-system", "node-attestation-signer"), true},
		"one of its name":                 {secrets, "b", account("other", "node-attestation-signer"), true},
		"another of our namespace":        {secrets, "b", account("nodeattest-system", "default"), true},
		"a controller, for impersonation": {rule("impersonate", "", "users"), "system:controller:job-controller", account("kube-system", "job-controller"), true},
	} {
		t.Run(name, func(t *testing.T) {
			got := newCluster(t, role("r", row.rule), binding(row.binding, "r", row.subject)).find(t, Config{})
			if row.found != (len(got) == 1) {
				t.Errorf("found %q", got)
			}
		})
	}
}

// TestHolders: to pass by name for a subject that has a right is a way around, however long the
// chain, and whichever kind the subject is of.
func TestHolders(t *testing.T) {
	objects := []client.Object{
		role("pods", rule("create", "", "pods")), binding("pods", "pods", account("a", "runner"), subject("Group", "operators"), subject("User", "bob")),
		role("guarded", rule("create", "certificates.k8s.io", "certificatesigningrequests/nodeclient")), binding("guarded", "guarded", subject("Group", "joiners")),
		role("second", rule("impersonate", "", "serviceaccounts", "runner")), binding("second", "second", account("a", "second")),
	}
	for name, row := range map[string]struct {
		rule rbacv1.PolicyRule
		way  Way
	}{
		"an account that may":         {rule("impersonate", "", "serviceaccounts", "runner"), wayImpersonation},
		"one that may pass for it":    {rule("impersonate", "", "serviceaccounts", "second"), wayImpersonation},
		"its token":                   {rule("create", "", "serviceaccounts/token", "second"), wayToken},
		"a group":                     {rule("impersonate", "", "groups", "operators"), wayImpersonation},
		"a group of user-info":        {rule("impersonate:user-info", "authentication.k8s.io", "groups", "operators"), wayImpersonation},
		"a user":                      {rule("impersonate", "", "users", "bob"), wayImpersonation},
		"kube-controller-manager":     {rule("impersonate:user-info", "authentication.k8s.io", "users", "system:kube-controller-manager"), wayImpersonation},
		"an account that may not":     {rule("impersonate", "", "serviceaccounts", "web"), ""},
		"a user of an account's name": {rule("impersonate", "", "users", "runner"), ""},
		"whom a policy stops":         {rule("impersonate", "", "groups", "joiners"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := newCluster(t, append(slices.Clone(objects), role("r", row.rule), binding("b", "r", account("a", "third")))...).find(t, Config{Accepted: []string{"pods"}}) // which changes nothing for others
			got = slices.DeleteFunc(got, func(text string) bool { return !strings.Contains(text, "ClusterRoleBinding b ") })
			if row.way == "" && len(got) != 0 || row.way != "" && (len(got) != 1 || !strings.HasPrefix(got[0], string(row.way))) {
				t.Errorf("found %q, want %q", got, row.way)
			}
		})
	}
	got := newCluster(t, role("r", rule("*", "apps", "*")), binding("b", "r", account("a", "x"))).find(t, Config{})
	if len(got) != 1 || !strings.Contains(got[0], "may create daemonsets and has 11 more rights like it, by ClusterRoleBinding b") {
		t.Errorf("found %q, want one finding for a dozen rights", got)
	}
}
