package claims

import (
	"cmp"

	"github.com/nodeattest/nodeattest/jws"
)

// The keys of a user's extra, as kube-apiserver sets them for a service account
// (k8s.io/apiserver, authentication/serviceaccount/util.go).
const (
	// ExtraCredentialID holds "JTI=" and the token's ID.
	ExtraCredentialID = "authentication.kubernetes.io/credential-id"
	// ExtraPodName and ExtraPodUID hold the pod that the token is bound to; there are
	// both or none.
	ExtraPodName = "authentication.kubernetes.io/pod-name"
	ExtraPodUID  = "authentication.kubernetes.io/pod-uid"
	// ExtraNodeName holds the node in the token; ExtraNodeUID its UID, where the token
	// has one.
	ExtraNodeName = "authentication.kubernetes.io/node-name"
	ExtraNodeUID  = "authentication.kubernetes.io/node-uid"
)

// The groups of a service account.
const (
	// GroupServiceAccounts is the group of all service accounts.
	GroupServiceAccounts = "system:serviceaccounts"
	// GroupPrefixNamespace stands before a namespace in the name of the group of its
	// service accounts.
	GroupPrefixNamespace = "system:serviceaccounts:"
)

// Result is a token that a validator accepted. Its methods give the user that
// kube-apiserver makes of it.
type Result struct {
	// Claims are the token's claims, verified. They must not be changed.
	Claims *Claims
	// Audiences are those of the token that were asked for, in the order in which they
	// were asked for.
	Audiences []string
	// Key is the key that verified the signature.
	Key *jws.Key
	// Legacy says that it is a token that a Secret holds and that never expires.
	Legacy bool

	validated bool // a validator made it
}

// InsecureResult returns a copy of r that counts as validated, on the caller's word: for
// claims that a validator outside this package accepted, such as that of apiserver, or a
// TokenReview of the API server. A [NodeCheck] takes it.
func InsecureResult(r Result) *Result {
	r.validated = true
	return &r
}

// ServiceAccount returns the namespace, the name and the UID of the service account.
func (r *Result) ServiceAccount() (namespace string, account Ref) {
	if r.Legacy {
		l := r.Claims.Legacy
		return l.Namespace, Ref{Name: l.ServiceAccountName, UID: l.ServiceAccountUID}
	}
	return r.Claims.Kubernetes.Namespace, r.Claims.Kubernetes.ServiceAccount
}

// Username returns "system:serviceaccount:<namespace>:<name>".
func (r *Result) Username() string {
	namespace, account := r.ServiceAccount()
	return MakeSubject(namespace, account.Name)
}

// UID returns the UID of the service account, which is the user's.
func (r *Result) UID() string {
	_, account := r.ServiceAccount()
	return account.UID
}

// Groups returns the user's groups: those of all service accounts and of the namespace's.
// kube-apiserver adds "system:authenticated" afterwards.
func (r *Result) Groups() []string {
	namespace, _ := r.ServiceAccount()
	return []string{GroupServiceAccounts, GroupPrefixNamespace + namespace}
}

// Extra returns the user's extra, of which every value has one element; nil where there
// is none.
func (r *Result) Extra() map[string][]string {
	if r.Legacy {
		return nil
	}
	k := &r.Claims.Kubernetes
	pod, node := cmp.Or(k.Pod, &Ref{}), cmp.Or(k.Node, &Ref{})
	extra := map[string][]string{}
	set := func(key, value string, there bool) {
		if there && value != "" {
			extra[key] = []string{value}
		}
	}
	set(ExtraPodName, pod.Name, pod.UID != "")
	set(ExtraPodUID, pod.UID, pod.Name != "")
	set(ExtraCredentialID, r.Claims.CredentialID(), true)
	set(ExtraNodeName, node.Name, true)
	set(ExtraNodeUID, node.UID, node.Name != "")
	if len(extra) == 0 {
		return nil
	}
	return extra
}
