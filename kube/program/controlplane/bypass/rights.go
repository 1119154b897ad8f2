package bypass

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/nodeattest/nodeattest/csr"
)

// Way is a way around attestation: "AutoApproval", "Approval", "Impersonation", "Token",
// "Escalation", "Pods", "Records", "Configuration", "Administration", "Admission" or
// "Distribution".
type Way string

// The ways around attestation.
const (
	// wayAutoApproval: Kubernetes' own approver grants plain requests for client certificates
	// of nodes, because of the right to create certificatesigningrequests/nodeclient or
	// /selfnodeclient.
	wayAutoApproval Way = "AutoApproval"
	// wayApproval: another account may approve requests to a signer whose certificates may name a
	// node, or kubelets' requests for serving certificates.
	wayApproval Way = "Approval"
	// wayImpersonation: an account may impersonate a node, a group that may do everything or is
	// that of nodes, or a program that decides about nodes; also by the verbs of constrained
	// impersonation (KEP-5284).
	wayImpersonation Way = "Impersonation"
	// wayToken: an account may have the token of a program that decides about nodes.
	wayToken Way = "Token"
	// wayEscalation: an account may give itself rights that it does not have.
	wayEscalation Way = "Escalation"
	// wayPods: a program may run, change or enter pods that have the token of a program that
	// decides about nodes.
	wayPods Way = "Pods"
	// wayRecords: a program may write which machine is which node.
	wayRecords Way = "Records"
	// wayConfiguration: a program may write the configuration of the programs or the API server, or
	// read the keys that decisions rest on.
	wayConfiguration Way = "Configuration"
	// wayAdministration: a program may do everything, with whatever runs in its pods.
	wayAdministration Way = "Administration"
	// wayAdmission: an admission policy that guards nodes' requests is not in force.
	wayAdmission Way = "Admission"
	// wayDistribution: the cluster's distribution certifies nodes itself.
	wayDistribution Way = "Distribution"
)

func ways() []Way {
	return []Way{wayAutoApproval, wayApproval, wayImpersonation, wayToken, wayEscalation, wayPods, wayRecords, wayConfiguration, wayAdministration, wayAdmission, wayDistribution}
}

// ofPrograms reports whether people are expected to have the rights of the way.
func (w Way) ofPrograms() bool {
	return w == wayPods || w == wayRecords || w == wayConfiguration
}

// A right is one that only an administrator may have.
type right struct {
	way                            Way
	verb, group, resource, subject string
	// names reports whether a rule that is only for one resource name still gives the right;
	// nil: no such rule does.
	names func(name string) bool
	// namespaced: a Role in a namespace of programs that decide about nodes gives it too; ours:
	// only in that of this project's programs.
	namespaced, ours bool
	// guarded: the admission policy on approvals refuses its use.
	guarded bool
	// reviewed: the access of requesters is reviewed, with review as the resource's name.
	reviewed bool
	review   string
}

// text describes the right.
func (r *right) text() string {
	resource := r.resource
	if r.subject != "" {
		resource += "/" + r.subject
	}
	if r.way == wayApproval {
		resource += " " + r.review
	}
	return r.verb + " " + resource
}

func is(names ...string) func(string) bool {
	return func(name string) bool { return slices.Contains(names, name) }
}

func anything(string) bool { return true }

func isNode(name string) bool { return strings.HasPrefix(name, csr.NodeUserPrefix) }

// grants reports whether a ClusterRole of that name may give a way around: all of Kubernetes'
// own count.
func grants(name string) bool { return name == "cluster-admin" || strings.HasPrefix(name, "system:") }

// holders are subjects that have a right, as "Group system:masters": to pass for one of them is
// a way around too.
type holders map[string]bool

// knownHolders are subjects with rights in every cluster, and the accounts of the programs.
func knownHolders() holders {
	h := holders{}
	for kind, names := range map[string][]string{
		rbacv1.ServiceAccountKind: append(programs(), certificateController, aggregationController),
		rbacv1.GroupKind:          {csr.NodesGroup, "system:masters", "kubeadm:cluster-admins", "nodeattest:break-glass"},
		rbacv1.UserKind:           {controllerManager},
	} {
		for _, name := range names {
			h[kind+" "+name] = true
		}
	}
	return h
}

// named returns whether a name is that of a holder.
func (h holders) named(kind string) func(name string) bool {
	return func(name string) bool { return h[kind+" "+name] || kind == rbacv1.UserKind && isNode(name) }
}

// programs are the names of the service accounts and Deployments of the programs.
func programs() []string {
	return []string{controllerAccount, "node-attestation-signer", "node-attestation-insecure-signer"}
}

// rights returns the rights that the finder looks for, with or without the right to approve kubelets'
// serving requests.
func rights(serving bool, h holders) []right {
	const certificates, authentication, rbac = "certificates.k8s.io", "authentication.k8s.io", rbacv1.GroupName
	users, groups, accounts := h.named(rbacv1.UserKind), h.named(rbacv1.GroupKind), h.named(rbacv1.ServiceAccountKind)
	all := []right{
		{way: wayAutoApproval, verb: "create", group: certificates, resource: "certificatesigningrequests", subject: "nodeclient", guarded: true, reviewed: true},
		{way: wayAutoApproval, verb: "create", group: certificates, resource: "certificatesigningrequests", subject: "selfnodeclient", guarded: true, reviewed: true},
		{way: wayApproval, verb: "approve", group: certificates, resource: "signers", names: is(csr.SignerKubeAPIServerClientKubelet, "kubernetes.io/*"), guarded: true, reviewed: true, review: csr.SignerKubeAPIServerClientKubelet},
		{way: wayApproval, verb: "approve", group: certificates, resource: "signers", names: is(signerAPIClient, "kubernetes.io/*"), reviewed: true, review: signerAPIClient},
		{way: wayImpersonation, verb: "impersonate", resource: "users", names: users, reviewed: true, review: csr.NodeUserPrefix + "any"},
		{way: wayImpersonation, verb: "impersonate", resource: "groups", names: groups},
		{way: wayImpersonation, verb: "impersonate", resource: "serviceaccounts", names: accounts, namespaced: true},
		{way: wayImpersonation, verb: "impersonate:arbitrary-node", group: authentication, resource: "nodes", names: anything, reviewed: true, review: "any"},
		{way: wayImpersonation, verb: "impersonate:associated-node", group: authentication, resource: "nodes", names: anything},
		{way: wayImpersonation, verb: "impersonate:user-info", group: authentication, resource: "users", names: users},
		{way: wayImpersonation, verb: "impersonate:user-info", group: authentication, resource: "groups", names: groups},
		{way: wayImpersonation, verb: "impersonate:serviceaccount", group: authentication, resource: "serviceaccounts", names: accounts, namespaced: true},
		{way: wayToken, verb: "create", resource: "serviceaccounts", subject: "token", names: accounts, namespaced: true},
		{way: wayEscalation, verb: "bind", group: rbac, resource: "clusterroles", names: grants, namespaced: true},
		{way: wayEscalation, verb: "escalate", group: rbac, resource: "clusterroles", names: anything},
		{way: wayEscalation, verb: "bind", group: rbac, resource: "roles", names: anything, namespaced: true},
		{way: wayEscalation, verb: "escalate", group: rbac, resource: "roles", names: anything, namespaced: true},
	}
	if serving {
		all = append(all, right{way: wayApproval, verb: "approve", group: certificates, resource: "signers", names: is(csr.SignerKubeletServing, "kubernetes.io/*"), guarded: true, reviewed: true, review: csr.SignerKubeletServing})
	}
	return append(all, programRights()...)
}

// programRights are rights that people who administer a cluster have, and the programs of
// Kubernetes: only other programs are reported.
func programRights() (all []right) {
	const admission = "admissionregistration.k8s.io"
	secrets := append([]string{"challenge-keys"}, "node-attestation-signer-ca", "node-attestation-insecure-signer-ca")
	prefixed := func(name string) bool { return strings.HasPrefix(name, "node-attestation") }
	configures := func(name string) bool {
		return is("node-attestation", "node-attestation-signers")(name) || strings.HasPrefix(name, "node-attestation-inventory-")
	}
	suffixed := func(name string) bool { return strings.HasSuffix(name, ".nodeattest.github.io") }
	for _, row := range []struct {
		way                     Way
		group, resources, verbs string
		names                   func(string) bool
		namespaced, ours        bool
	}{
		{way: wayPods, resources: "pods replicationcontrollers", verbs: "create update patch", namespaced: true},
		{way: wayPods, group: "apps", resources: "daemonsets deployments replicasets statefulsets", verbs: "create update patch", names: is(programs()...), namespaced: true},
		{way: wayPods, group: "batch", resources: "cronjobs", verbs: "create update patch", namespaced: true},
		{way: wayPods, group: "batch", resources: "jobs", verbs: "create", namespaced: true},
		{way: wayPods, resources: "pods/ephemeralcontainers", verbs: "update patch", namespaced: true},
		{way: wayPods, resources: "pods/exec", verbs: "create get", namespaced: true},
		{way: wayPods, resources: "nodes/proxy", verbs: "create get", names: anything},
		{way: wayRecords, group: "nodeattest.github.io", resources: "attestedmachines attestedmachineuids attestednodes", verbs: "create delete deletecollection patch update", names: anything},
		{way: wayConfiguration, resources: "configmaps", verbs: "patch update", names: configures, namespaced: true, ours: true},
		{way: wayConfiguration, resources: "secrets", verbs: "delete deletecollection get list patch update watch", names: is(secrets...), namespaced: true, ours: true},
		{way: wayConfiguration, group: admission, resources: "mutatingadmissionpolicies mutatingadmissionpolicybindings mutatingwebhookconfigurations validatingwebhookconfigurations", verbs: "create patch update", names: anything},
		{way: wayConfiguration, group: admission, resources: "validatingadmissionpolicies validatingadmissionpolicybindings", verbs: "delete deletecollection patch update", names: prefixed},
		{way: wayConfiguration, group: "apiextensions.k8s.io", resources: "customresourcedefinitions", verbs: "delete deletecollection patch update", names: suffixed},
		{way: wayConfiguration, group: "apiregistration.k8s.io", resources: "apiservices", verbs: "patch update", names: anything},
	} {
		for resource := range strings.FieldsSeq(row.resources) {
			resource, subject, _ := strings.Cut(resource, "/")
			for verb := range strings.FieldsSeq(row.verbs) {
				all = append(all, right{way: row.way, verb: verb, group: row.group, resource: resource, subject: subject, names: row.names, namespaced: row.namespaced, ours: row.ours})
			}
		}
	}
	return all
}

// givenBy reports whether a rule gives the right.
func (r *right) givenBy(rule *rbacv1.PolicyRule) bool {
	resources := []string{"*", r.resource}
	if r.subject != "" {
		resources = []string{"*", r.resource + "/" + r.subject, "*/" + r.subject}
	}
	return has(rule.Verbs, "*", r.verb) && has(rule.APIGroups, "*", r.group) && has(rule.Resources, resources...) &&
		(len(rule.ResourceNames) == 0 || r.names != nil && slices.ContainsFunc(rule.ResourceNames, r.names))
}

func has(list []string, some ...string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return slices.Contains(some, s) })
}

// administers reports whether rules give every right there is.
func administers(rules []rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
		return has(rule.Verbs, "*") && has(rule.APIGroups, "*") && has(rule.Resources, "*") && len(rule.ResourceNames) == 0
	})
}
