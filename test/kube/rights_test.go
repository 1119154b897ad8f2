package kube

import (
	"bufio"
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/test/controlplane"
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// auditPolicy has each request that was answered in the audit log, without its contents.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
`

// audited is a request in an audit log.
type audited struct {
	Verb string `json:"verb"`
	User struct {
		Username string   `json:"username"`
		Groups   []string `json:"groups"`
	} `json:"user"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Name        string `json:"name"`
		Namespace   string `json:"namespace"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
}

// audit reads the audit log.
func (c *cluster) audit(t *testing.T) []audited {
	t.Helper()
	text := controlplane.Read(t, c.auditLog)
	text = text[:bytes.LastIndexByte(text, '\n')+1] // the last line may not be whole yet
	var all []audited
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var entry audited
		if err := json.Unmarshal(lines.Bytes(), &entry); err != nil {
			t.Fatal(err)
		}
		all = append(all, entry)
	}
	return all
}

// subjects are the users and groups that a binding of a role names.
type subjects struct{ users, groups []string }

func (s *subjects) has(a *audited) bool {
	return slices.Contains(s.users, a.User.Username) || slices.ContainsFunc(a.User.Groups, func(g string) bool { return slices.Contains(s.groups, g) })
}

// shippedRole is a role of the manifests with its subjects.
type shippedRole struct {
	name, namespace string
	rules           []rbacv1.PolicyRule
	subjects        subjects
}

func shippedRoles(t *testing.T, manifests [][]byte) map[string]*shippedRole {
	t.Helper()
	roles := map[string]*shippedRole{}
	of := func(kind, namespace, name string) *shippedRole {
		key := kind + " " + namespace + "/" + name
		if roles[key] == nil {
			roles[key] = &shippedRole{name: name, namespace: namespace}
		}
		return roles[key]
	}
	for _, manifest := range manifests {
		var o struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Name      string `json:"name"`
				Namespace string `json:"namespace"`
			} `json:"metadata"`
			Rules    []rbacv1.PolicyRule `json:"rules"`
			RoleRef  rbacv1.RoleRef      `json:"roleRef"`
			Subjects []rbacv1.Subject    `json:"subjects"`
		}
		if err := yaml.Unmarshal(manifest, &o); err != nil {
			t.Fatal(err)
		}
		switch o.Kind {
		case "ClusterRole", "Role":
			of(o.Kind, o.Metadata.Namespace, o.Metadata.Name).rules = o.Rules
		case "ClusterRoleBinding", "RoleBinding":
			role := of(o.RoleRef.Kind, o.Metadata.Namespace, o.RoleRef.Name)
			for _, s := range o.Subjects {
				if s.Kind == rbacv1.GroupKind {
					role.subjects.groups = append(role.subjects.groups, s.Name)
				} else {
					role.subjects.users = append(role.subjects.users, "system:serviceaccount:"+s.Namespace+":"+s.Name)
				}
			}
		}
	}
	return roles
}

// checkRights compares the shipped roles with the API server's requests: each right
// was used, so that a cluster without it would have refused something, and nothing was
// refused for want of a right. The programs log refusals, which other tests look for.
func (c *cluster) checkRights(t *testing.T, manifests [][]byte) {
	t.Helper()
	log := c.audit(t)
	for _, role := range shippedRoles(t, manifests) {
		if len(role.rules) == 0 {
			t.Errorf("the role %s is not among the manifests", role.name)
		}
		for i := range log {
			if a := &log[i]; slices.Contains(role.subjects.users, a.User.Username) && a.ResponseStatus.Code == 403 {
				t.Errorf("%s was refused: %s %+v: %s", a.User.Username, a.Verb, a.ObjectRef, a.ResponseStatus.Message)
			}
		}
		for _, rule := range role.rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range orAny(rule.ResourceNames) {
						if resource == "signers" {
							c.checkSigner(t, verb, name)
						} else if !slices.ContainsFunc(log, func(a audited) bool { return role.used(&a, rule.APIGroups, resource, verb, name) }) {
							t.Errorf("role %s: no request needed to %s %s %s %s", role.name, verb, rule.APIGroups, resource, name)
						}
					}
				}
			}
		}
	}
}

func orAny(names []string) []string {
	if len(names) == 0 {
		return []string{""}
	}
	return names
}

// used says whether a request was allowed by a right of the role.
func (r *shippedRole) used(a *audited, groups []string, resource, verb, name string) bool {
	asked := a.ObjectRef.Resource
	if a.ObjectRef.Subresource != "" {
		asked += "/" + a.ObjectRef.Subresource
	}
	return r.subjects.has(a) && a.ResponseStatus.Code != 403 && a.Verb == verb && asked == resource && slices.Contains(groups, a.ObjectRef.APIGroup) &&
		(name == "" || a.ObjectRef.Name == name) && (r.namespace == "" || r.namespace == a.ObjectRef.Namespace)
}

// checkSigner looks for a request to a signer that the right was needed for: an API server
// asks for it when a condition or a certificate is written.
func (c *cluster) checkSigner(t *testing.T, verb, signer string) {
	t.Helper()
	list := c.requests(t)
	for i := range list {
		o := &list[i]
		if o.Spec.SignerName != signer {
			continue
		}
		if verb == "sign" && len(o.Status.Certificate) != 0 && !strings.HasPrefix(signer, "kubernetes.io/") {
			return
		}
		for _, condition := range o.Status.Conditions {
			decided := condition.Type != certificatesv1.CertificateFailed && condition.Reason != "ByHand" && condition.Reason != "AutoApproved"
			if verb == "approve" && decided || verb == "sign" && condition.Type == certificatesv1.CertificateFailed {
				return
			}
		}
	}
	t.Errorf("no request needed to %s for %s", verb, signer)
}

// checkCost counts the calls of a join with first use, a Machine UID and an issued record.
func (c *cluster) checkCost(t *testing.T, log []audited, mostWrites, mostReads int) {
	t.Helper()
	writes, reads := cost(log)
	t.Logf("%d writes: %v", len(writes), writes)
	t.Logf("%d reads: %v", len(reads), reads)
	if len(writes) > mostWrites || len(reads) > mostReads {
		t.Errorf("a join costs at most %d writes and %d reads", mostWrites, mostReads)
	}
}

// cost is what nodes have cost: writes of everybody, their own included, and reads of the
// controller and the signer.
func cost(log []audited) (writes, reads []string) {
	for i := range log {
		a := &log[i]
		what := a.Verb + " " + a.ObjectRef.Resource + "/" + a.ObjectRef.Subresource
		switch {
		case slices.Contains([]string{"leases", "events", "secrets", "subjectaccessreviews", "clusterroles", "clusterrolebindings"}, a.ObjectRef.Resource):
		case slices.Contains([]string{"create", "update", "patch", "delete"}, a.Verb) && a.ObjectRef.Resource != "":
			writes = append(writes, what)
		case a.Verb == "get" && (a.User.Username == controllerUser || a.User.Username == signerUser):
			reads = append(reads, what)
		}
	}
	return writes, reads
}
