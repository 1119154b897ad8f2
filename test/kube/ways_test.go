package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/program/controlplane/bypass"
)

// finds looks for ways around attestation.
func (c *cluster) finds(t *testing.T) []bypass.Finding {
	t.Helper()
	var policies [][]byte
	for _, file := range []string{"admission.yaml", "approval.yaml", "enforce/*.yaml"} {
		manifests := manifests(t, file)
		policies = append(policies, manifests...)
	}
	as := c.client(t, c.user(t, controllerUser)) // by the shipped rights
	finder, err := bypass.NewFinder(bypass.Config{Reader: as, Writer: as, Policies: policies})
	if err != nil {
		t.Fatal(err)
	}
	findings, err := finder.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return findings
}

// TestWaysAround opens ways around attestation, by which a certificate of a node was got
// without evidence, and has the finder name each. On a cluster as it is shipped it finds none.
func TestWaysAround(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.prepare(t)
	c.applyAdmission(t)
	c.applyWall(t)
	if findings := c.finds(t); len(findings) != 0 {
		t.Errorf("as shipped there are %+v", findings)
	}
	evil := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "evil", Name: "evil"}
	rules := func(group, resource string, verbs ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{Verbs: verbs, APIGroups: []string{group}, Resources: strings.Split(resource, " ")}}
	}
	named := func(name string, rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		rules[0].ResourceNames = []string{name}
		return rules
	}
	found := 0
	for _, row := range []struct {
		name    string
		role    string // of Kubernetes; empty: of rules
		rules   []rbacv1.PolicyRule
		way     bypass.Way
		guarded bool
	}{
		{name: "apiclient", rules: signers("approve", "kubernetes.io/kube-apiserver-client"), way: "Approval"},
		{name: "impersonate-groups", rules: append(named("alice", rules("", "users", "impersonate")), rules("", "groups", "impersonate")...), way: "Impersonation"},
		{name: "impersonate-accounts", rules: rules("", "serviceaccounts", "impersonate"), way: "Impersonation"},
		{name: "constrained", rules: append(rules("authentication.k8s.io", "users groups", "impersonate:user-info"), rules("*", "*", "impersonate-on:user-info:create", "impersonate-on:user-info:update")...), way: "Impersonation"},
		{name: "escalate", rules: rules(rbacv1.GroupName, "clusterroles", "escalate", "update", "get", "patch"), way: "Escalation"},
		{name: "bind", rules: append(rules(rbacv1.GroupName, "clusterroles", "bind"), rules(rbacv1.GroupName, "clusterrolebindings", "create")...), way: "Escalation"},
		{name: "tokens", rules: rules("", "serviceaccounts/token", "create"), way: "Token"},
		{name: "extra-subject", way: "Approval", guarded: true},
		{name: "administrator", role: "cluster-admin", way: "Administration"},
		{name: "approver", role: "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver", way: "Approval", guarded: true},

		{name: "kubeadm:node-autoapprove-bootstrap", role: "system:certificates.k8s.io:certificatesigningrequests:nodeclient", way: "AutoApproval", guarded: true},
		{name: "users", rules: rules("", "users", "impersonate"), way: "Impersonation"},
		{name: "nodes", rules: rules("authentication.k8s.io", "nodes", "impersonate:arbitrary-node"), way: "Impersonation"},
		{name: "edit", role: "system:aggregate-to-edit", way: "Impersonation"},
		{name: "kcm", rules: named("system:kube-controller-manager", rules("", "users", "impersonate")), way: "Impersonation"},
		{name: "user-info", rules: named("system:kube-controller-manager", rules("authentication.k8s.io", "users", "impersonate:user-info")), way: "Impersonation"},
		{name: "creator-of-pods", rules: named("daemon-set-controller", rules("", "serviceaccounts", "impersonate")), way: "Impersonation"},
		{name: "proxy", rules: rules("", "nodes/proxy", "get"), way: "Pods"},
		{name: "inventory", rules: named("node-attestation", rules("", "configmaps", "update")), way: "Configuration"},
		{name: "records", rules: rules("nodeattest.github.io", "attestednodes", "create"), way: "Records"},
		{name: "alice", rules: named("alice", rules("", "users", "impersonate"))},
		{name: "view", role: "view"},
	} {
		t.Run(row.name, func(t *testing.T) {
			binding := row.name
			var undo func() error
			switch {
			case row.name == "extra-subject":
				binding = "system:controller:certificate-controller"
				undo = c.addSubject(t, binding, evil)
			case row.role != "":
				b := c.binds(t, row.name, row.role, evil)
				undo = func() error { return c.admin.Delete(t.Context(), b) }
			default:
				b := c.grants(t, row.name, row.rules, evil)
				undo = func() error { return c.admin.Delete(t.Context(), b) }
			}
			findings := c.finds(t)
			is := func(f bypass.Finding) bool {
				return f.Way == row.way && f.Binding == binding && f.Guarded == row.guarded && f.Subject == "ServiceAccount evil/evil"
			}
			for i := range findings {
				t.Log(&findings[i])
				if findings[i].Binding != binding && !strings.Contains(findings[i].Reason, binding) {
					t.Errorf("%s: names no binding %s", &findings[i], binding)
				}
			}
			if row.way == "" && len(findings) != 0 || row.way != "" && !slices.ContainsFunc(findings, is) {
				t.Errorf("found %+v, want %s by %s, guarded: %t", findings, row.way, binding, row.guarded)
			} else if row.way != "" {
				found++
			}
			if err := undo(); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Logf("%d ways found", found)
	t.Run("in a namespace", func(t *testing.T) {
		b := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "edit", Namespace: namespace}, Subjects: []rbacv1.Subject{evil},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:aggregate-to-edit"}}
		if err := c.admin.Create(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if findings := c.finds(t); !slices.ContainsFunc(findings, func(f bypass.Finding) bool { return f.Namespace == namespace && f.Way == "Token" }) {
			t.Errorf("found %+v", findings)
		}
		if err := c.admin.Delete(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("without the policy on approvals", func(t *testing.T) {
		b := c.binds(t, "kubeadm:node-autoapprove-bootstrap", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", group(csr.BootstrappersGroup))
		wall := new(metav1.PartialObjectMetadata)
		wall.APIVersion, wall.Kind, wall.Name = "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "node-attestation-approval"
		if err := c.admin.Delete(t.Context(), wall); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(c.finds(t))
		if !strings.Contains(text, "node-attestation-approval") || strings.Contains(text, "true") || !strings.Contains(text, b.Name) {
			t.Errorf("found %s", text)
		}
	})
}

// addSubject adds a subject to a binding, and returns what takes it out again.
func (c *cluster) addSubject(t *testing.T, name string, s rbacv1.Subject) (undo func() error) {
	t.Helper()
	var b rbacv1.ClusterRoleBinding
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: name}, &b); err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(b.Subjects)
	b.Subjects = append(b.Subjects, s)
	if err := c.admin.Update(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return func() error {
		b.Subjects = before
		return c.admin.Update(t.Context(), &b)
	}
}
