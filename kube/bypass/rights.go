package bypass

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/nodeattest/nodeattest/csr"
)

// Way is a way around attestation: "AutoApproval", "Approval" or "Impersonation".
type Way string

// The ways around attestation.
const (
	// wayAutoApproval: Kubernetes' own approver grants plain requests for client certificates
	// of nodes, because of the right to create certificatesigningrequests/nodeclient or
	// /selfnodeclient.
	wayAutoApproval Way = "AutoApproval"
	// wayApproval: somebody else may approve requests to the signer of nodes' client
	// certificates.
	wayApproval Way = "Approval"
	// wayImpersonation: somebody may impersonate a node, by the verb impersonate on users or
	// the verb impersonate:arbitrary-node on nodes (KEP-5284).
	wayImpersonation Way = "Impersonation"
)

// A right is one that nobody but an administrator may have.
type right struct {
	way                            Way
	verb, group, resource, subject string
	// names reports whether a rule that is only for one resource name still gives the right;
	// nil: no such rule does.
	names func(name string) bool
	// review is the resource name to use in an access review.
	review string
}

// text names the right for people.
func (r *right) text() string {
	resource := r.resource
	if r.subject != "" {
		resource += "/" + r.subject
	}
	return r.verb + " " + resource
}

func rights() []right {
	isNode := func(name string) bool { return strings.HasPrefix(name, csr.NodeUserPrefix) }
	return []right{
		{way: wayAutoApproval, verb: "create", group: "certificates.k8s.io", resource: "certificatesigningrequests", subject: "nodeclient"},
		{way: wayAutoApproval, verb: "create", group: "certificates.k8s.io", resource: "certificatesigningrequests", subject: "selfnodeclient"},
		{way: wayApproval, verb: "approve", group: "certificates.k8s.io", resource: "signers", review: csr.SignerKubeAPIServerClientKubelet,
			names: func(name string) bool {
				return name == csr.SignerKubeAPIServerClientKubelet || name == "kubernetes.io/*"
			}},
		{way: wayImpersonation, verb: "impersonate", resource: "users", review: csr.NodeUserPrefix + "any", names: isNode},
		{way: wayImpersonation, verb: "impersonate:arbitrary-node", group: "authentication.k8s.io", resource: "nodes", review: "any",
			names: func(string) bool { return true }},
	}
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

// administers reports whether rules give every right there is: whoever has those is not a way
// around anything.
func administers(rules []rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
		return has(rule.Verbs, "*") && has(rule.APIGroups, "*") && has(rule.Resources, "*") && len(rule.ResourceNames) == 0
	})
}
