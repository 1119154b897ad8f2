package apiserver

import (
	"net/http"
	"strconv"

	"github.com/nodeattest/nodeattest/claims"
)

// StatusReason is why the API server refuses a request, as it stands in
// metav1.Status.reason. Each is an error, so that a caller branches with
// errors.Is(err, apiserver.ReasonConflict).
type StatusReason string

// Error returns the reason with the package's prefix.
func (r StatusReason) Error() string { return "apiserver: status " + string(r) }

// The reasons of the answers to a TokenRequest.
const (
	// ReasonBadRequest: the request cannot be served in any state of the cluster.
	ReasonBadRequest StatusReason = "BadRequest"
	// ReasonNotFound: the service account or the object to bind to does not exist.
	ReasonNotFound StatusReason = "NotFound"
	// ReasonConflict: an object has another UID than the request states.
	ReasonConflict StatusReason = "Conflict"
	// ReasonInvalid: a field of the request has a value that is not allowed.
	ReasonInvalid StatusReason = "Invalid"
	// ReasonInternalError: an object could not be read, or the signer failed.
	ReasonInternalError StatusReason = "InternalError"
)

// StatusError is the refusal of a TokenRequest as kube-apiserver 1.36 words it
// (pkg/registry/core/serviceaccount/storage/token.go and k8s.io/apimachinery,
// pkg/api/errors). Its fields are those of metav1.Status and its details.
type StatusError struct {
	// Reason is metav1.Status.reason.
	Reason StatusReason
	// Code is the HTTP status code.
	Code int
	// Message is metav1.Status.message, and the text of the error.
	Message string
	// Group is the API group of the object in question; "" for the core group.
	Group string
	// Kind is the kind or, as the API server has it, the resource of the object in
	// question; "" where it is about none.
	Kind string
	// Name is the name of the object in question; "" where it is about none.
	Name string
	// Field is the path of the field in question, for ReasonInvalid.
	Field string
	// Err is the cause; it may be nil. Where the question could be asked again,
	// errors.Is finds [ErrRetry] in it.
	Err error
}

// Error is the API server's message, without a prefix.
func (e *StatusError) Error() string {
	if e == nil {
		return "apiserver: an error that is nil"
	}
	return e.Message
}

// Unwrap lets errors.Is find the reason and errors.As the cause.
func (e *StatusError) Unwrap() []error {
	if e == nil {
		return nil
	}
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
	return &StatusError{Reason: ReasonBadRequest, Code: http.StatusBadRequest, Message: message}
}

func notFound(resource, name string) *StatusError {
	cause := claims.NewNotFound(resource, name)
	return &StatusError{Reason: ReasonNotFound, Code: http.StatusNotFound, Message: cause.Error(), Kind: resource, Name: name, Err: cause}
}

func conflict(group, kind, name, detail string) *StatusError {
	return &StatusError{
		Reason: ReasonConflict, Code: http.StatusConflict, Group: group, Kind: kind, Name: name,
		Message: "Operation cannot be fulfilled on " + qualified(group, kind) + " " + strconv.Quote(name) + ": " + detail,
	}
}

// invalid is about one field. The value is printed as the API server prints it: a number
// as it is, a string in quotes.
func invalid(name, field, value, detail string) *StatusError {
	return &StatusError{
		Reason: ReasonInvalid, Code: http.StatusUnprocessableEntity,
		Group: tokenRequestGroup, Kind: tokenRequestKind, Name: name, Field: field,
		Message: qualified(tokenRequestGroup, tokenRequestKind) + " " + strconv.Quote(name) + " is invalid: " +
			field + ": Invalid value: " + value + ": " + detail,
	}
}

// internal is a failure that is nobody's fault who asked: asked again, it may be gone.
func internal(message string, cause error) *StatusError {
	return &StatusError{
		Reason: ReasonInternalError, Code: http.StatusInternalServerError,
		Message: "Internal error occurred: " + message,
		Err:     &Error{Check: ErrRetry, Err: cause},
	}
}

func qualified(group, kind string) string {
	if group == "" {
		return kind
	}
	return kind + "." + group
}
