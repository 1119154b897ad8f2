package apiserver

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/refusal"
)

// The bounds of a token's lifetime in seconds
// (pkg/apis/authentication/validation in k8s.io/kubernetes).
const (
	// defaultExpirationSeconds is the lifetime of a token if the request states none.
	defaultExpirationSeconds = 3600
	// minExpirationSeconds is the shortest lifetime that a request may state.
	minExpirationSeconds = 600
	// maxExpirationSeconds is the longest lifetime that a request may state.
	maxExpirationSeconds = 1 << 32
	// extendedRequestSeconds is the lifetime that the kubelet requests for the token that
	// it projects into every pod, and by which such a request is recognised: the token may
	// live longer, and is recorded as stale when it does
	// (WarnOnlyBoundTokenExpirationSeconds in k8s.io/kubernetes).
	extendedRequestSeconds = 3607
	// maxExtendedExpirationSeconds is the lifetime that such a token gets: 365 days.
	maxExtendedExpirationSeconds = 365 * 24 * 3600
)

// TokenRequest has the fields of an authentication.k8s.io/v1 TokenRequest for one service
// account.
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
	// Audiences are spec.audiences; none means the API server's own.
	Audiences []string
	// ExpirationSeconds is spec.expirationSeconds; nil means 3600 seconds.
	ExpirationSeconds *int64
	// BoundObject is spec.boundObjectRef; nil for a token that is bound only to the
	// service account.
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
	// UID is the object's UID; "" means whichever object has the name.
	UID string
}

// Bound holds the objects that a token is issued for, in their current state; nil for one
// that does not exist or was not requested.
type Bound struct {
	// ServiceAccount is the service account.
	ServiceAccount *claims.Object
	// Pod is the pod that the token is to be bound to.
	Pod *claims.Object
	// Secret is the Secret that the token is to be bound to.
	Secret *claims.Object
	// Node is the node that the token is to be bound to or, if there is a Pod, the node
	// that the pod runs on.
	Node *claims.Object
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

// lifetime returns the requested lifetime in seconds.
func (r *TokenRequest) lifetime() (int64, error) {
	if r.ExpirationSeconds == nil {
		return defaultExpirationSeconds, nil
	}
	seconds := *r.ExpirationSeconds
	const field = "spec.expirationSeconds"
	switch {
	case seconds < minExpirationSeconds:
		return 0, invalid("", field, strconv.FormatInt(seconds, 10), "may not specify a duration less than 10 minutes")
	case seconds > maxExpirationSeconds:
		return 0, invalid("", field, strconv.FormatInt(seconds, 10), "may not specify a duration larger than 2^32 seconds")
	}
	return seconds, nil
}

// splitAPIVersion is as lenient as the API server: an invalid version has no group.
func splitAPIVersion(apiVersion string) (group, version string) {
	group, version, found := strings.Cut(apiVersion, "/")
	switch {
	case !found:
		return "", apiVersion
	case strings.Contains(version, "/"):
		return "", ""
	}
	return group, version
}

// StatusReason is why the API server refuses a request, as in metav1.Status.reason. Each is
// an error, so that a caller can branch with errors.Is(err, apiserver.ReasonConflict).
type StatusReason string

// Error returns the reason with the package's prefix.
func (r StatusReason) Error() string { return "apiserver: status " + string(r) }

// The reasons of the answers to a TokenRequest.
const (
	// reasonBadRequest: the request cannot be served in any state of the cluster.
	reasonBadRequest StatusReason = "BadRequest"
	// reasonNotFound: the service account or the object to bind to does not exist.
	reasonNotFound StatusReason = "NotFound"
	// ReasonConflict: an object's UID is not the one that the request states.
	ReasonConflict StatusReason = "Conflict"
	// reasonInvalid: a field of the request has a value that is not allowed.
	reasonInvalid StatusReason = "Invalid"
	// reasonInternalError: an object could not be read, or the signer failed.
	reasonInternalError StatusReason = "InternalError"
)

// StatusError is the refusal of a TokenRequest as kube-apiserver 1.36 words it
// (pkg/registry/core/serviceaccount/storage/token.go and k8s.io/apimachinery,
// pkg/api/errors). Its fields are the fields of metav1.Status and its details.
type StatusError struct {
	// Reason is metav1.Status.reason.
	Reason StatusReason
	// Code is the HTTP status code.
	Code int
	// Message is metav1.Status.message, and the text of the error.
	Message string
	// Group is the API group of the object in question; "" for the core group.
	Group string
	// Kind is the kind or, as in the API server, the resource of the object in question;
	// or "".
	Kind string
	// Name is the name of the object in question, or "".
	Name string
	// Field is the path of the field in question, for "Invalid".
	Field string
	// Err is the cause; it may be nil. If the request may be retried, it wraps
	// [refusal.ErrRetry].
	Err error
}

// Error returns the API server's message, without a prefix.
func (e *StatusError) Error() string { return e.Message }

// Unwrap lets errors.Is find the reason and errors.As find the cause.
func (e *StatusError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Err}
}

// The group and the kind of a TokenRequest.
const (
	tokenRequestGroup = "authentication.k8s.io"
	tokenRequestKind  = "TokenRequest"
)

func badRequest(message string) *StatusError {
	return &StatusError{Reason: reasonBadRequest, Code: http.StatusBadRequest, Message: message}
}

func notFound(resource, name string) *StatusError {
	cause := claims.NewNotFound(resource, name)
	return &StatusError{Reason: reasonNotFound, Code: http.StatusNotFound, Message: cause.Error(), Kind: resource, Name: name, Err: cause}
}

func conflict(group, kind, name, detail string) *StatusError {
	return &StatusError{
		Reason: ReasonConflict, Code: http.StatusConflict, Group: group, Kind: kind, Name: name,
		Message: "Operation cannot be fulfilled on " + qualified(group, kind) + " " + strconv.Quote(name) + ": " + detail,
	}
}

// invalid returns the error for one field. The value is printed as the API server prints it:
// a number as is, a string in quotes.
func invalid(name, field, value, detail string) *StatusError {
	return &StatusError{
		Reason: reasonInvalid, Code: http.StatusUnprocessableEntity,
		Group: tokenRequestGroup, Kind: tokenRequestKind, Name: name, Field: field,
		Message: qualified(tokenRequestGroup, tokenRequestKind) + " " + strconv.Quote(name) + " is invalid: " +
			field + ": Invalid value: " + value + ": " + detail,
	}
}

// internal returns the error for a failure that the requester did not cause: a retry may
// succeed.
func internal(message string, cause error) *StatusError {
	return &StatusError{
		Reason: reasonInternalError, Code: http.StatusInternalServerError,
		Message: "Internal error occurred: " + message,
		Err:     &refusal.Error{Check: refusal.ErrRetry, Err: cause},
	}
}

// qualified returns kind.group, or the kind alone in the core group.
func qualified(group, kind string) string { return strings.TrimSuffix(kind+"."+group, ".") }
