package bypass

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// Config is the configuration of a [Finder]. The fields of the first group have no default.
type Config struct {
	// Reader lists ClusterRoles and ClusterRoleBindings, the Roles and RoleBindings of two
	// namespaces, and Nodes' metadata, and gets admission policies, preferably without a cache. Its scheme need not
	// know them.
	Reader client.Reader
	// Writer creates SubjectAccessReviews. Its scheme need not know them.
	Writer client.Writer

	// BootstrapGroups are the groups of bootstrap tokens whose access is reviewed, in addition
	// to those in bindings; nil means kubeadm's.
	BootstrapGroups []string
	// Namespace is where the programs that decide about nodes run; empty means
	// nodeattest-system. Their service accounts are node-attestation-controller, which may approve,
	// node-attestation-signer and node-attestation-insecure-signer. The Roles there and in kube-system are looked at too.
	Namespace string
	// Serving says that kubelets' own requests for serving certificates are decided too, so that
	// every other account that may approve them is a way around.
	Serving bool
	// Accepted are the bindings that the operator knows and takes responsibility for, the
	// distribution ("k3s", "rke2" or "microk8s") that certifies nodes itself, and the admission
	// policies that the operator has changed, by name. Such a policy has to be there, and
	// its binding has to be as in Policies.
	Accepted []string
	// Policies are the manifests of the admission policies that guard nodes' requests, which have
	// to be in force as they are there; others are ignored. Nil looks for none.
	Policies [][]byte
}

// Finder finds the ways around attestation.
type Finder struct {
	c        Config
	policies []*unstructured.Unstructured
}

// What every cluster, and every kubeadm cluster, has.
const (
	kubeadmGroup          = csr.BootstrappersGroup + ":kubeadm:default-node-token"
	controllerAccount     = "node-attestation-controller"
	certificateController = "certificate-controller"
	aggregationController = "clusterrole-aggregation-controller"
	controllerManager     = "system:kube-controller-manager"
	signerAPIClient       = "kubernetes.io/kube-apiserver-client"
)

// NewFinder checks the configuration. The error is refusal.CheckConfig.
func NewFinder(config Config) (*Finder, error) {
	switch {
	case config.Reader == nil:
		return nil, refusal.Config("Reader", "", "one of cluster roles and bindings")
	case config.Writer == nil:
		return nil, refusal.Config("Writer", "", "one of access reviews")
	}
	if config.BootstrapGroups == nil {
		config.BootstrapGroups = []string{kubeadmGroup}
	}
	config.Namespace = cmp.Or(config.Namespace, "nodeattest-system")
	f := &Finder{c: config}
	return f, f.setPolicies()
}

var errNotMade = errors.New("bypass: a finder that NewFinder, or a watch that NewWatch did not make")

func (f *Finder) made() bool { return f != nil && f.c.Reader != nil }

// Finding is a right of an account that is a way around attestation.
type Finding struct {
	Way Way
	// Subject has the right: "Group system:nodes", for example.
	Subject string
	// Right is the verb and the resource.
	Right string
	// Binding is the ClusterRoleBinding or, with a namespace, the RoleBinding that gives it, and
	// Role the name of its role. Both are empty if only an access review shows it. For an
	// admission policy, Binding is its name.
	Binding, Namespace, Role string
	// Reason is the access review's, or the fault of an admission policy; empty if a binding is
	// named.
	Reason string
	// Guarded says that the admission policies are in force and refuse the use of the right: it is no
	// way around attestation as long as they are.
	Guarded bool
}

// String describes the finding in one line.
func (f *Finding) String() string {
	guarded := ""
	if f.Guarded {
		guarded = "; an admission policy refuses its use"
	}
	s := f.Subject + " may " + f.Right
	switch {
	case f.Way == wayDistribution:
		return "distribution " + f.Subject + ": " + f.Reason
	case f.Way == wayAdmission:
		return "ValidatingAdmissionPolicy " + f.Binding + ": " + f.Reason
	case f.Namespace != "":
		return s + " in " + f.Namespace + ", by RoleBinding " + f.Binding + " to role " + f.Role
	case f.Binding != "":
		return s + ", by ClusterRoleBinding " + f.Binding + " to ClusterRole " + f.Role + guarded
	}
	return s + ", as an access review says: " + f.Reason + guarded
}

// Find looks once. Findings are sorted; none means that there is no way around that can be
// found like this.
func (f *Finder) Find(ctx context.Context) ([]Finding, error) {
	if !f.made() {
		return nil, errNotMade
	}
	findings, groups, err := f.bindings(ctx)
	if err == nil {
		var reviewed []Finding
		reviewed, err = f.review(ctx, groups, findings)
		findings = append(findings, reviewed...)
	}
	var unguarded, distribution []Finding
	if err == nil {
		unguarded, err = f.admission(ctx)
	}
	if err == nil {
		distribution, err = f.distribution(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("bypass: %w", err)
	}
	if len(f.policies) == 0 || len(unguarded) != 0 {
		for i := range findings {
			findings[i].Guarded = false
		}
	}
	findings = append(append(findings, unguarded...), distribution...)
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Way, b.Way), strings.Compare(a.Binding, b.Binding), strings.Compare(a.String(), b.String()))
	})
	return findings, nil
}

// A requester is a user whose access is reviewed.
type requester struct {
	name   string
	user   string
	groups []string
}

// requesters are users that request nodes' certificates, and the groups that every user is in.
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

// review asks the API server for the rights of requesters, and leaves out rights that a binding
// already explains.
func (f *Finder) review(ctx context.Context, groups []string, known []Finding) ([]Finding, error) {
	var findings []Finding
	for _, who := range requesters(groups) {
		for _, r := range rights(f.c.Serving, knownHolders()) {
			if !r.reviewed {
				continue
			}
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
			findings = append(findings, Finding{Way: r.way, Subject: refusal.Text(who.name), Right: r.text(), Reason: refusal.Text(reason), Guarded: r.guarded})
		}
	}
	return findings, nil
}

// explained reports whether the reason is a binding that was found or accepted. RBAC names it
// in the reasons of its reviews.
func (f *Finder) explained(reason string, known []Finding) bool {
	names := slices.Clone(f.c.Accepted)
	for i := range known {
		if known[i].Namespace == "" {
			names = append(names, known[i].Binding)
		}
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return strings.HasPrefix(reason, fmt.Sprintf("RBAC: allowed by ClusterRoleBinding %q of ", name))
	})
}
