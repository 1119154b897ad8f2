package bypass

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/nilpointer"
	"github.com/nodeattest/nodeattest/refusal"
)

// Config is the configuration of a [Finder]. The fields of the first group have no default.
type Config struct {
	// Reader lists ClusterRoles and ClusterRoleBindings, preferably without a cache. Its scheme
	// need not know them.
	Reader client.Reader
	// Writer creates SubjectAccessReviews. Its scheme need not know them.
	Writer client.Writer

	// BootstrapGroups are the groups of bootstrap tokens whose access is reviewed, in addition
	// to those in bindings; nil means kubeadm's.
	BootstrapGroups []string
	// Approvers are the ClusterRoleBindings that make approvers of nodes' certificates: the
	// program's own. That of kube-controller-manager is always among them.
	Approvers []string
	// Accepted are the ClusterRoleBindings that the operator knows and takes responsibility
	// for.
	Accepted []string
}

// Finder finds the ways around attestation.
type Finder struct{ c Config }

// What every cluster, and every kubeadm cluster, has.
const (
	kubeadmGroup      = csr.BootstrappersGroup + ":kubeadm:default-node-token"
	controllerBinding = "system:controller:certificate-controller"
)

// NewFinder checks the configuration. The error is refusal.CheckConfig.
func NewFinder(config Config) (*Finder, error) {
	switch {
	case nilpointer.Is(config.Reader):
		return nil, refusal.Config("Reader", "", "one of cluster roles and bindings")
	case nilpointer.Is(config.Writer):
		return nil, refusal.Config("Writer", "", "one of access reviews")
	}
	if config.BootstrapGroups == nil {
		config.BootstrapGroups = []string{kubeadmGroup}
	}
	return &Finder{config}, nil
}

// Finding is a right that somebody has and that is a way around attestation.
type Finding struct {
	Way Way
	// Subject is who has it: "Group system:nodes", for example.
	Subject string
	// Right is the verb and the resource.
	Right string
	// Binding is the ClusterRoleBinding that gives it, and Role its ClusterRole. Both are
	// empty if only an access review shows it.
	Binding, Role string
	// Reason is what the access review said; empty if a binding is named.
	Reason string
}

// String describes the finding in one line.
func (f *Finding) String() string {
	s := f.Subject + " may " + f.Right
	if f.Binding != "" {
		return s + ", by ClusterRoleBinding " + f.Binding + " to ClusterRole " + f.Role
	}
	return s + ", as an access review says: " + f.Reason
}

// Find looks once. Findings are sorted; none means that there is no way around that can be
// found like this.
func (f *Finder) Find(ctx context.Context) ([]Finding, error) {
	roles, err := list[rbacv1.ClusterRole](ctx, f.c.Reader, "ClusterRole")
	if err != nil {
		return nil, fmt.Errorf("bypass: %w", err)
	}
	rules := make(map[string][]rbacv1.PolicyRule, len(roles))
	for i := range roles {
		rules[roles[i].Name] = roles[i].Rules
	}
	bindings, err := list[rbacv1.ClusterRoleBinding](ctx, f.c.Reader, "ClusterRoleBinding")
	if err != nil {
		return nil, fmt.Errorf("bypass: %w", err)
	}
	var findings []Finding
	groups := slices.Clone(f.c.BootstrapGroups)
	for i := range bindings {
		b := &bindings[i]
		for _, s := range b.Subjects {
			if s.Kind == rbacv1.GroupKind && strings.HasPrefix(s.Name, csr.BootstrappersGroup+":") {
				groups = append(groups, s.Name)
			}
		}
		if !slices.Contains(f.c.Accepted, b.Name) {
			findings = append(findings, f.bound(b, rules[b.RoleRef.Name])...)
		}
	}
	reviewed, err := f.review(ctx, groups, findings)
	if err != nil {
		return nil, fmt.Errorf("bypass: %w", err)
	}
	findings = append(findings, reviewed...)
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Way, b.Way), strings.Compare(a.Binding, b.Binding), strings.Compare(a.String(), b.String()))
	})
	return findings, nil
}

// bound finds what a binding gives.
func (f *Finder) bound(b *rbacv1.ClusterRoleBinding, rules []rbacv1.PolicyRule) []Finding {
	if administers(rules) {
		return nil
	}
	var findings []Finding
	for _, r := range rights() {
		if r.way == wayApproval && (b.Name == controllerBinding || slices.Contains(f.c.Approvers, b.Name)) {
			continue
		}
		if !slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool { return r.givenBy(&rule) }) {
			continue
		}
		for _, s := range b.Subjects {
			name := s.Kind + " " + s.Name
			if s.Namespace != "" {
				name = s.Kind + " " + s.Namespace + "/" + s.Name
			}
			findings = append(findings, Finding{Way: r.way, Subject: refusal.Text(name), Right: r.text(), Binding: b.Name, Role: b.RoleRef.Name})
		}
	}
	return findings
}

// A requester is somebody whose access is reviewed.
type requester struct {
	name   string
	user   string
	groups []string
}

// requesters are those who ask for nodes' certificates, and everybody.
func requesters(bootstrapGroups []string) []requester {
	all := []requester{
		{"a node", csr.NodeUserPrefix + "nodeattest-access-review", []string{csr.NodesGroup, csr.AuthenticatedGroup}},
		{"a bootstrap token", csr.BootstrapUserPrefix + "review", []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}},
		{"a node's recovery user", csr.RecoveryUserPrefix + "nodeattest-access-review", []string{csr.RecoveryGroup, csr.AuthenticatedGroup}},
		{"everybody", "system:anonymous", []string{"system:unauthenticated"}},
	}
	slices.Sort(bootstrapGroups)
	for _, group := range slices.Compact(bootstrapGroups) {
		all = append(all, requester{"a bootstrap token of the group " + group, csr.BootstrapUserPrefix + "review",
			[]string{csr.BootstrappersGroup, group, csr.AuthenticatedGroup}})
	}
	return all
}

// review has the API server say what requesters may do, and leaves out what a binding already
// explains.
func (f *Finder) review(ctx context.Context, groups []string, known []Finding) ([]Finding, error) {
	var findings []Finding
	for _, who := range requesters(groups) {
		for _, r := range rights() {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: who.user, Groups: who.groups,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: r.verb, Group: r.group, Version: "*", Resource: r.resource, Subresource: r.subject, Name: r.review},
			}}
			if err := create(ctx, f.c.Writer, review); err != nil {
				return nil, err
			}
			reason := review.Status.Reason
			if !review.Status.Allowed || f.explained(reason, known) {
				continue
			}
			findings = append(findings, Finding{Way: r.way, Subject: refusal.Text(who.name), Right: r.text(), Reason: refusal.Text(reason)})
		}
	}
	return findings, nil
}

// explained reports whether the reason is a binding that was found or accepted. RBAC names it
// in the reasons of its reviews.
func (f *Finder) explained(reason string, known []Finding) bool {
	names := slices.Clone(f.c.Accepted)
	for i := range known {
		names = append(names, known[i].Binding)
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return strings.HasPrefix(reason, fmt.Sprintf("RBAC: allowed by ClusterRoleBinding %q of ", name))
	})
}
