package claims

import (
	"cmp"

	"github.com/nodeattest/nodeattest/jws"
)

// The keys of a user's extra, as kube-apiserver sets them for a service account
// (k8s.io/apiserver, authentication/serviceaccount/util.go).
const (
	// extraCredentialID holds "JTI=" and the token's ID.
	extraCredentialID = "authentication.kubernetes.io/credential-id"
	// extraPodName and extraPodUID hold the pod that the token is bound to; either both
	// or neither are present.
	extraPodName = "authentication.kubernetes.io/pod-name"
	extraPodUID  = "authentication.kubernetes.io/pod-uid"
	// extraNodeName holds the node in the token, and extraNodeUID its UID, if the token
	// has one.
	extraNodeName = "authentication.kubernetes.io/node-name"
	extraNodeUID  = "authentication.kubernetes.io/node-uid"
)

// The groups of a service account.
const (
	// groupServiceAccounts is the group of all service accounts.
	groupServiceAccounts = "system:serviceaccounts"
	// groupPrefixNamespace followed by a namespace is the group of the service accounts
	// in that namespace.
	groupPrefixNamespace = "system:serviceaccounts:"
)

// Result is a token that a validator accepted. Its methods return the user that
// kube-apiserver derives from it.
type Result struct {
	// Claims are the token's claims, verified. They must not be changed.
	//
	// Not: a place for claims of one's own. A changed Claims is not noticed; a changed copy of
	// the Result is refused by [NodeCheck].
	Claims *Claims
	// Audiences are the requested audiences that the token has, in the order requested.
	Audiences []string
	// Key is the key that verified the signature.
	Key *jws.Key
	// Legacy says that the token is one that is kept in a Secret and never expires.
	Legacy bool

	self *Result // itself, if a validator made it: a copy is not what was validated
}

// validated reports whether a validator made this very Result.
func (r *Result) validated() bool { return r != nil && r.self == r && r.Claims != nil }

// InsecureResult returns a copy of r that counts as validated, on the caller's word. It is
// meant for claims that were accepted outside this package, such as by the validator of
// apiserver or a TokenReview of the API server. A [NodeCheck] accepts it if it has Claims.
func InsecureResult(r Result) *Result {
	r.self = &r
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

// UID returns the UID of the service account, which is also the user's.
func (r *Result) UID() string {
	_, account := r.ServiceAccount()
	return account.UID
}

// Groups returns the user's groups: the one of all service accounts and the one of those in
// the namespace. kube-apiserver adds "system:authenticated" afterwards.
func (r *Result) Groups() []string {
	namespace, _ := r.ServiceAccount()
	return []string{groupServiceAccounts, groupPrefixNamespace + namespace}
}

// Extra returns the user's extra, in which every value has one element, or nil if there is
// none.
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
	set(extraPodName, pod.Name, pod.UID != "")
	set(extraPodUID, pod.UID, pod.Name != "")
	set(extraCredentialID, r.Claims.CredentialID(), true)
	set(extraNodeName, node.Name, true)
	set(extraNodeUID, node.UID, node.Name != "")
	if len(extra) == 0 {
		return nil
	}
	return extra
}
