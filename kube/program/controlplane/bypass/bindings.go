package bypass

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// A bound is a binding, of a namespace or of the cluster, with the rules of its role.
type bound struct {
	namespace, name, role string
	subjects              []rbacv1.Subject
	rules                 []rbacv1.PolicyRule
}

// bindings finds the rights that bindings give, and the groups of bootstrap tokens that they name.
func (f *Finder) bindings(ctx context.Context) (findings []Finding, groups []string, err error) {
	all, err := f.read(ctx)
	if err != nil {
		return nil, nil, err
	}
	wanted := f.holders(all)
	groups = slices.Clone(f.c.BootstrapGroups)
	for i := range all {
		b := &all[i]
		for _, s := range b.subjects {
			if b.namespace == "" && s.Kind == rbacv1.GroupKind && strings.HasPrefix(s.Name, csr.BootstrappersGroup+":") {
				groups = append(groups, s.Name)
			}
		}
		if !slices.Contains(f.c.Accepted, b.name) {
			findings = append(findings, f.found(b, wanted)...)
		}
	}
	return findings, groups, nil
}

// read reads the bindings of the cluster and of the namespaces of programs.
func (f *Finder) read(ctx context.Context) (all []bound, err error) {
	var cluster map[string][]rbacv1.PolicyRule
	for _, in := range []struct{ namespace, scope string }{{"", "Cluster"}, {metav1.NamespaceSystem, ""}, {f.c.Namespace, ""}} {
		// A Role and its binding have all the fields that are used of a ClusterRole and its binding.
		roles, err := list[rbacv1.Role](ctx, f.c.Reader, in.namespace, in.scope+"Role")
		if err != nil {
			return nil, err
		}
		bindings, err := list[rbacv1.RoleBinding](ctx, f.c.Reader, in.namespace, in.scope+"RoleBinding")
		if err != nil {
			return nil, err
		}
		rules := make(map[string][]rbacv1.PolicyRule, len(roles))
		for i := range roles {
			rules[roles[i].Name] = roles[i].Rules
		}
		if in.namespace == "" {
			cluster = rules
		}
		for i := range bindings {
			b := &bindings[i]
			of := rules
			if b.RoleRef.Kind == "ClusterRole" {
				of = cluster
			}
			all = append(all, bound{in.namespace, b.Name, b.RoleRef.Name, b.Subjects, of[b.RoleRef.Name]})
		}
	}
	return all, nil
}

// holders returns the subjects to whom bindings give a right that no admission policy guards, and the
// subjects that may impersonate one of them.
func (f *Finder) holders(all []bound) []right {
	known := knownHolders()
	for {
		before, wanted := len(known), rights(f.c.Serving, known)
		for i := range all {
			if b := &all[i]; slices.ContainsFunc(f.given(b, wanted), func(r right) bool { return !r.guarded }) {
				for _, s := range b.subjects {
					known[s.Kind+" "+s.Name] = true
				}
			}
		}
		if len(known) == before {
			return wanted
		}
	}
}

// given returns which of the rights a binding gives.
func (f *Finder) given(b *bound, wanted []right) (given []right) {
	if b.namespace == "" && administers(b.rules) {
		return []right{{way: wayAdministration, verb: "do", resource: "everything"}}
	}
	for i := range wanted {
		r := &wanted[i]
		if b.namespace != "" && (!r.namespaced || r.ours && b.namespace != f.c.Namespace) {
			continue
		}
		if slices.ContainsFunc(b.rules, func(rule rbacv1.PolicyRule) bool { return r.givenBy(&rule) }) {
			given = append(given, *r)
		}
	}
	return given
}

// found returns the rights that a binding gives to subjects beyond their office. Of the rights
// of programs, which come in dozens, there is one finding for each way.
func (f *Finder) found(b *bound, wanted []right) (findings []Finding) {
	given := f.given(b, wanted)
	for _, s := range b.subjects {
		name := s.Kind + " " + s.Name
		if s.Namespace != "" {
			name = s.Kind + " " + s.Namespace + "/" + s.Name
		}
		counts := map[Way]int{}
		for i := range given {
			r := &given[i]
			if f.expected(r.way, &s, b.name) {
				continue
			}
			if counts[r.way]++; counts[r.way] > 1 && r.way.ofPrograms() {
				continue
			}
			findings = append(findings, Finding{Way: r.way, Subject: refusal.Text(name), Right: r.text(), Binding: b.name, Namespace: b.namespace, Role: b.role, Guarded: r.guarded})
		}
		for i := range findings {
			if way := findings[i].Way; findings[i].Subject == refusal.Text(name) && way.ofPrograms() && counts[way] > 1 {
				findings[i].Right += fmt.Sprintf(" and has %d more rights like it", counts[way]-1)
			}
		}
	}
	return findings
}

// expected reports whether a subject has a right of a way by its office: exactly this one, and
// by whichever binding. Kubernetes' controllers are expected to have the rights of programs.
func (f *Finder) expected(way Way, s *rbacv1.Subject, binding string) bool {
	account := func(namespace, name string) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == namespace && s.Name == name
	}
	manager := s.Kind == rbacv1.UserKind && s.Name == controllerManager
	person := s.Kind != rbacv1.ServiceAccountKind && (!strings.HasPrefix(s.Name, "system:") || s.Kind == rbacv1.GroupKind && s.Name == "system:masters")
	switch way {
	case wayApproval:
		return account(metav1.NamespaceSystem, certificateController) || account(f.c.Namespace, controllerAccount)
	case wayEscalation:
		return account(metav1.NamespaceSystem, aggregationController)
	case wayToken:
		return manager
	case wayAdministration: // people are no way around anything; everybody is
		return person
	}
	return way.ofPrograms() && (person || manager || binding == "system:controller:"+s.Name && account(metav1.NamespaceSystem, s.Name) ||
		slices.ContainsFunc(programs(), func(name string) bool { return way != wayPods && account(f.c.Namespace, name) }))
}
