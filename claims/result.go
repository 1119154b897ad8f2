package claims

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/claims/internal/alive"
	"github.com/nodeattest/nodeattest/jws"
)

// The keys of a user's extra, as kube-apiserver sets them for a service account
// (k8s.io/apiserver, authentication/serviceaccount/util.go).
const (
	// extraPrefix begins the keys of the token's ID and of its bound objects. Of a pod or a
	// webhook configuration, either both name and UID are present or neither; of a node, its
	// UID only if the token has one.
	extraPrefix = "authentication.kubernetes.io/"
	// extraAPIGroups holds the attested API groups of a webhook configuration.
	extraAPIGroups = "attestation.authentication.kubernetes.io/admissionReviewAPIGroups"
)

// Result is a token that a validator accepted. Its methods return the user that
// kube-apiserver derives from it.
type Result struct {
	// Claims are the token's claims, verified. They must not be changed.
	//
	// [NodeCheck] does not notice a changed Claims; it refuses a changed copy of the Result.
	Claims *Claims
	// Audiences are the requested audiences that the token has, in the order requested.
	Audiences []string
	// Key is the key that verified the signature; nil if the API server did that
	// ([ValidatorConfig].Review).
	Key *jws.Key

	self *Result // itself, if a validator made it: a copy was not validated
}

// validated reports whether a validator made this very Result.
func (r *Result) validated() bool { return r != nil && r.self == r && r.Claims != nil }

// InsecureResult returns a copy of r that counts as validated, on the caller's word. It is
// meant for claims that were accepted outside this package, such as by the validator of
// apiserver. A [NodeCheck] accepts it if it has Claims. A service that lets the API server review
// its tokens has a Validator with [ValidatorConfig].Review instead.
func InsecureResult(r Result) *Result {
	r.self = &r
	return &r
}

// Username returns "system:serviceaccount:<namespace>:<name>".
func (r *Result) Username() string {
	return MakeSubject(r.Claims.Kubernetes.Namespace, r.Claims.Kubernetes.ServiceAccount.Name)
}

// UID returns the UID of the service account, which is also the user's.
func (r *Result) UID() string { return r.Claims.Kubernetes.ServiceAccount.UID }

// Groups returns the user's groups: the one of all service accounts and the one of those in
// the namespace. kube-apiserver adds "system:authenticated" afterwards.
func (r *Result) Groups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + r.Claims.Kubernetes.Namespace}
}

// Extra returns the user's extra, or nil if it is empty. Every value has one element; but
// that of "attestation.authentication.kubernetes.io/admissionReviewAPIGroups", in a token that
// is bound to a webhook configuration, has as many as were attested.
func (r *Result) Extra() map[string][]string {
	k := &r.Claims.Kubernetes
	extra := map[string][]string{}
	set := func(key, value string, there bool) {
		if there && value != "" {
			extra[extraPrefix+key] = []string{value}
		}
	}
	set("credential-id", r.Claims.CredentialID(), true)
	for _, bound := range k.bindings() {
		if bound.ref == nil || bound.resource == alive.ServiceAccount || bound.resource == alive.Secret {
			continue
		}
		key := strings.TrimSuffix(bound.resource.Plural, "s")
		set(key+"-name", bound.ref.Name, bound.ref.UID != "" || bound.resource == alive.Node)
		set(key+"-uid", bound.ref.UID, bound.ref.Name != "")
	}
	hook := cmp.Or(k.ValidatingWebhookConfiguration, k.MutatingWebhookConfiguration)
	if hook != nil && k.Attestations != nil && len(k.Attestations.AdmissionReviewAPIGroups) > 0 {
		extra[extraAPIGroups] = slices.Clone(k.Attestations.AdmissionReviewAPIGroups)
	}
	if len(extra) == 0 {
		return nil
	}
	return extra
}
