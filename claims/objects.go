package claims

import (
	"context"
	"strconv"
	"time"
)

// Object is what a token may be bound to, as far as this package must know it.
type Object struct {
	// Name is metadata.name.
	Name string
	// Namespace is metadata.namespace; "" for a Node.
	Namespace string
	// UID is metadata.uid.
	UID string
	// Deleted is metadata.deletionTimestamp; nil where the object is not being deleted.
	Deleted *time.Time
	// AsOf is when the object was so at the API server, which for an answer out of a
	// cache is no later than the question that brought it there, or the last word of the
	// watch that feeds it. The zero time says that the object was read at the API server
	// for this very answer. Kubernetes has no such field.
	AsOf time.Time
}

// object lets a Pod and a Node be looked at as what they embed.
func (o *Object) object() *Object { return o }

// Pod is a pod, as far as this package must know it.
type Pod struct {
	Object
	// ServiceAccountName is spec.serviceAccountName.
	ServiceAccountName string
	// NodeName is spec.nodeName; "" where the pod is not scheduled.
	NodeName string
}

// Node is a node, as far as this package must know it.
type Node struct {
	Object
	// ProviderID is spec.providerID; "" where the node has none.
	ProviderID string
}

// Objects gets the objects that a token is issued for or compared with. Each method
// returns either an object or an error, never neither. An object that does not exist is
// an error that errors.Is finds [ErrNotFound] in; every other error says that the
// question could not be answered. Implementations are safe for concurrent use.
type Objects interface {
	// ServiceAccount gets a service account.
	ServiceAccount(ctx context.Context, namespace, name string) (*Object, error)
	// Pod gets a pod.
	Pod(ctx context.Context, namespace, name string) (*Pod, error)
	// Secret gets a Secret's metadata.
	Secret(ctx context.Context, namespace, name string) (*Object, error)
	// Node gets a node.
	Node(ctx context.Context, name string) (*Node, error)
}

// StaleObjects is an Objects whose answers may be old, such as one that reads a cache.
// Every object that it returns says in AsOf when it was so; of what it cannot tell the age
// of, it returns an error. Validators take it only where they are told how old an answer
// may be, and then no answer that is older: an object that was deleted may be seen as
// living for that long. A getter that does not implement this counts as one that reads the
// API server each time, as far as its answers do not state an age.
type StaleObjects interface {
	Objects
	// MayBeStale tells it apart. It does nothing.
	MayBeStale()
}

// The resources as the errors of the API server name them.
const (
	resourceServiceAccounts = "serviceaccounts"
	resourcePods            = "pods"
	resourceSecrets         = "secrets"
	resourceNodes           = "nodes"
)

// NotFoundError says that an object does not exist, in the words of the API server.
// errors.Is finds [ErrNotFound] in it.
type NotFoundError struct {
	// Resource is the plural name of the resource: serviceaccounts, pods, secrets or
	// nodes.
	Resource string
	// Name is the name of the object that was asked for.
	Name string
}

// NewNotFound returns the error for an object that does not exist.
func NewNotFound(resource, name string) *NotFoundError {
	return &NotFoundError{Resource: resource, Name: name}
}

// Error is the API server's own text: it stands in the answer to a TokenReview.
func (e *NotFoundError) Error() string {
	return e.Resource + " " + strconv.Quote(e.Name) + " not found"
}

// Unwrap lets errors.Is find [ErrNotFound].
func (e *NotFoundError) Unwrap() error { return ErrNotFound }
