package claims

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
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

// CheckStaleAnswer: the answer of an [Objects] is older than was agreed to, does not say
// how old it is, or is from a time that has not come yet. It comes with [ErrRetry].
const CheckStaleAnswer Check = "stale-answer"

// FreshObjects passes on the answers of another Objects, and gives an error
// ([CheckStaleAnswer], [ErrRetry]) in place of one that is too old. The validators of this
// package and of apiserver put it in front of what they are given; a [NodeCheck] takes a
// [StaleObjects] only inside one.
type FreshObjects struct {
	// From gives the answers. It is required.
	From Objects
	// MaxStaleness is how old they may be; 0 refuses a [StaleObjects].
	MaxStaleness time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// clock is the one to go by: nil means time.Now.
func clock(now func() time.Time) func() time.Time {
	if now == nil {
		return time.Now
	}
	return now
}

// Check reports a configuration that cannot be used, with [refusal.CheckConfig]: no From,
// a negative MaxStaleness, or none for a [StaleObjects].
func (f FreshObjects) Check() error {
	if f.From == nil {
		return refusal.Config("Objects", "", "a getter for objects")
	}
	if f.MaxStaleness < 0 {
		return refusal.Config("MaxStaleness", f.MaxStaleness.String(), "0 or more")
	}
	if _, stale := f.From.(StaleObjects); stale && f.MaxStaleness == 0 {
		return refusal.Config("Objects", "whose answers may be old", "a MaxStaleness, or Objects that ask each time")
	}
	return nil
}

// ServiceAccount implements [Objects].
func (f FreshObjects) ServiceAccount(ctx context.Context, namespace, name string) (*Object, error) {
	return fresh(f, func() (*Object, error) { return f.From.ServiceAccount(ctx, namespace, name) })
}

// Pod implements [Objects].
func (f FreshObjects) Pod(ctx context.Context, namespace, name string) (*Pod, error) {
	return fresh(f, func() (*Pod, error) { return f.From.Pod(ctx, namespace, name) })
}

// Secret implements [Objects].
func (f FreshObjects) Secret(ctx context.Context, namespace, name string) (*Object, error) {
	return fresh(f, func() (*Object, error) { return f.From.Secret(ctx, namespace, name) })
}

// Node implements [Objects].
func (f FreshObjects) Node(ctx context.Context, name string) (*Node, error) {
	return fresh(f, func() (*Node, error) { return f.From.Node(ctx, name) })
}

// holder is what has an Object in it.
type holder[T any] interface {
	*T
	object() *Object
}

// fresh passes an answer on, or an error where it is too old.
func fresh[T any, P holder[T]](f FreshObjects, get func() (P, error)) (P, error) {
	if f.From == nil {
		return nil, f.Check()
	}
	answer, err := get()
	if err != nil || answer == nil {
		return nil, err
	}
	object := answer.object()
	if _, stale := f.From.(StaleObjects); stale && object.AsOf.IsZero() {
		return nil, &Error{Check: CheckStaleAnswer, Got: "an answer without its age", Want: "AsOf from a StaleObjects", Err: ErrRetry}
	}
	if err := object.CheckAge(f.MaxStaleness, clock(f.Now)()); err != nil {
		return nil, err
	}
	return answer, nil
}

// CheckAge refuses an answer that is older than most, or from a time after now, with
// [CheckStaleAnswer] and [ErrRetry]. One without AsOf is of this moment.
func (o *Object) CheckAge(most time.Duration, now time.Time) error {
	if o.AsOf.IsZero() {
		return nil
	}
	if age := now.Sub(o.AsOf); age < 0 || age > most {
		return &Error{Check: CheckStaleAnswer, Got: "an answer that is " + age.String() + " old", Want: "0s to " + most.String(), Err: ErrRetry}
	}
	return nil
}

// MemoryObjects is an [Objects] that is filled by hand, for tests and examples. What it
// holds counts as what there is now, unless an object's AsOf says otherwise: it knows of
// no API server and is no cache of one. The zero value is empty and ready. It is safe for
// concurrent use.
type MemoryObjects struct {
	mu      sync.RWMutex
	objects map[objectKey]any // pointers to what was put in
}

type objectKey struct{ resource, namespace, name string }

// PutServiceAccount adds a service account or replaces the one of its name.
func (m *MemoryObjects) PutServiceAccount(o Object) {
	m.put(objectKey{resourceServiceAccounts, o.Namespace, o.Name}, &o)
}

// PutPod adds a pod or replaces the one of its name.
func (m *MemoryObjects) PutPod(p Pod) { m.put(objectKey{resourcePods, p.Namespace, p.Name}, &p) }

// PutSecret adds a Secret or replaces the one of its name.
func (m *MemoryObjects) PutSecret(o Object) {
	m.put(objectKey{resourceSecrets, o.Namespace, o.Name}, &o)
}

// PutNode adds a node or replaces the one of its name. Its namespace does not count.
func (m *MemoryObjects) PutNode(n Node) { m.put(objectKey{resourceNodes, "", n.Name}, &n) }

// DeleteServiceAccount removes a service account, if there is one of that name.
func (m *MemoryObjects) DeleteServiceAccount(namespace, name string) {
	m.put(objectKey{resourceServiceAccounts, namespace, name}, nil)
}

// DeletePod removes a pod, if there is one of that name.
func (m *MemoryObjects) DeletePod(namespace, name string) {
	m.put(objectKey{resourcePods, namespace, name}, nil)
}

// DeleteSecret removes a Secret, if there is one of that name.
func (m *MemoryObjects) DeleteSecret(namespace, name string) {
	m.put(objectKey{resourceSecrets, namespace, name}, nil)
}

// DeleteNode removes a node, if there is one of that name.
func (m *MemoryObjects) DeleteNode(name string) { m.put(objectKey{resourceNodes, "", name}, nil) }

// ServiceAccount returns the service account of that name, which must not be changed, or
// a [*NotFoundError].
func (m *MemoryObjects) ServiceAccount(_ context.Context, namespace, name string) (*Object, error) {
	return get[Object](m, objectKey{resourceServiceAccounts, namespace, name})
}

// Pod returns the pod of that name, which must not be changed, or a [*NotFoundError].
func (m *MemoryObjects) Pod(_ context.Context, namespace, name string) (*Pod, error) {
	return get[Pod](m, objectKey{resourcePods, namespace, name})
}

// Secret returns the Secret of that name, which must not be changed, or a
// [*NotFoundError].
func (m *MemoryObjects) Secret(_ context.Context, namespace, name string) (*Object, error) {
	return get[Object](m, objectKey{resourceSecrets, namespace, name})
}

// Node returns the node of that name, which must not be changed, or a [*NotFoundError].
func (m *MemoryObjects) Node(_ context.Context, name string) (*Node, error) {
	return get[Node](m, objectKey{resourceNodes, "", name})
}

// put keeps an object, or forgets the one that it has where that is nil.
func (m *MemoryObjects) put(key objectKey, object any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects == nil {
		m.objects = make(map[objectKey]any)
	}
	m.objects[key] = object
}

func get[T any](m *MemoryObjects, key objectKey) (*T, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if object, ok := m.objects[key].(*T); ok {
		return object, nil
	}
	return nil, NewNotFound(key.resource, key.name)
}
