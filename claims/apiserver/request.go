package apiserver

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/claims"
)

// The bounds of a token's lifetime in seconds
// (pkg/apis/authentication/validation in k8s.io/kubernetes).
const (
	// DefaultExpirationSeconds is the lifetime of a token whose request states none.
	DefaultExpirationSeconds = 3600
	// MinExpirationSeconds is the shortest lifetime that a request may state.
	MinExpirationSeconds = 600
	// MaxExpirationSeconds is the longest lifetime that a request may state.
	MaxExpirationSeconds = 1 << 32
	// ExtendedRequestSeconds is the lifetime that the kubelet states for the token that
	// it projects into every pod, and by which such a request is recognised: such a
	// token may live longer, and is recorded as stale when it does
	// (WarnOnlyBoundTokenExpirationSeconds in k8s.io/kubernetes).
	ExtendedRequestSeconds = 3607
	// MaxExtendedExpirationSeconds is the lifetime that such a token gets: 365 days.
	MaxExtendedExpirationSeconds = 365 * 24 * 3600
)

// TokenRequest is what authentication.k8s.io/v1 TokenRequest asks for, on the token
// subresource of one service account.
type TokenRequest struct {
	// Namespace is the service account's namespace, from the URL. It is required.
	Namespace string
	// Name is the service account's name, from the URL. It is required.
	Name string
	// MetadataName is metadata.name; "" or the same as Name.
	MetadataName string
	// MetadataNamespace is metadata.namespace; "" or the same as Namespace.
	MetadataNamespace string
	// UID is metadata.uid; "" or the service account's UID.
	UID string
	// Audiences are spec.audiences; none for the API server's own.
	Audiences []string
	// ExpirationSeconds is spec.expirationSeconds; nil for DefaultExpirationSeconds.
	ExpirationSeconds *int64
	// BoundObject is spec.boundObjectRef; nil for a token that is bound to the service
	// account alone.
	BoundObject *BoundObjectReference
}

// BoundObjectReference names the object that a token is to be bound to.
type BoundObjectReference struct {
	// Kind is "Pod", "Secret" or "Node".
	Kind string
	// APIVersion is "v1". Only its group counts, which must be the core group.
	APIVersion string
	// Name is the object's name. Pods and Secrets are in the service account's namespace.
	Name string
	// UID is the object's UID; "" for whichever object has the name.
	UID string
}

// Bound are the objects that a token is issued for, as they are now; nil for one that
// does not exist or is not asked for.
type Bound struct {
	// ServiceAccount is the service account.
	ServiceAccount *claims.Object
	// Pod is the pod that the token is to be bound to.
	Pod *claims.Pod
	// Secret is the Secret that the token is to be bound to.
	Secret *claims.Object
	// Node is the node that the token is to be bound to, or where there is a Pod the
	// node that the pod runs on.
	Node *claims.Node
}

// checkMetadata compares the body with the URL.
func (r *TokenRequest) checkMetadata() error {
	switch {
	case r.Namespace == "":
		return badRequest("namespace is required")
	case r.Name == "":
		return badRequest("name is required")
	case r.MetadataName != "" && r.MetadataName != r.Name:
		return invalid(r.Name, "metadata.name", strconv.Quote(r.MetadataName), "must match the service account name if specified")
	case r.MetadataNamespace != "" && r.MetadataNamespace != r.Namespace:
		return invalid(r.Name, "metadata.namespace", strconv.Quote(r.MetadataNamespace), "must match the service account namespace if specified")
	}
	return nil
}

func (r *TokenRequest) checkServiceAccount(account *claims.Object) error {
	if account == nil {
		return notFound("serviceaccounts", r.Name)
	}
	if r.UID != "" && r.UID != account.UID {
		return conflict(tokenRequestGroup, tokenRequestKind, r.Name, fmt.Sprintf(
			"the UID in the token request (%s) does not match the UID of the service account (%s)", r.UID, account.UID))
	}
	return nil
}

// lifetime returns the seconds that are asked for.
func (r *TokenRequest) lifetime() (int64, error) {
	if r.ExpirationSeconds == nil {
		return DefaultExpirationSeconds, nil
	}
	seconds := *r.ExpirationSeconds
	const field = "spec.expirationSeconds"
	switch {
	case seconds < MinExpirationSeconds:
		return 0, invalid("", field, strconv.FormatInt(seconds, 10), "may not specify a duration less than 10 minutes")
	case seconds > MaxExpirationSeconds:
		return 0, invalid("", field, strconv.FormatInt(seconds, 10), "may not specify a duration larger than 2^32 seconds")
	}
	return seconds, nil
}

// splitAPIVersion is as lenient as the API server: what is no version has no group.
func splitAPIVersion(apiVersion string) (group, version string) {
	switch strings.Count(apiVersion, "/") {
	case 0:
		return "", apiVersion
	case 1:
		group, version, _ = strings.Cut(apiVersion, "/")
		return group, version
	}
	return "", ""
}
