package claims

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/internal/typednil"
	"github.com/nodeattest/nodeattest/refusal"
)

// Object is what a token may be bound to, reduced to what this package needs.
type Object struct {
	// Name is metadata.name.
	Name string
	// Namespace is metadata.namespace; "" for a Node.
	Namespace string
	// UID is metadata.uid.
	UID string
	// Deleted is metadata.deletionTimestamp; nil if the object is not being deleted.
	Deleted *time.Time
	// AsOf is when the API server had the object in this state. For an answer from a
	// cache it is no later than the request that brought the object there, or the last
	// event of the watch that feeds it. The zero time means that the object was read from
	// the API server for this very answer: only [LiveObjects] may leave it out. Kubernetes
	// has no such field.
	AsOf time.Time
}

// object returns the Object itself, or the one that a Pod or a Node embeds.
func (o *Object) object() *Object { return o }

// Pod is a pod, reduced to what this package needs.
type Pod struct {
	Object
	// ServiceAccountName is spec.serviceAccountName.
	ServiceAccountName string
	// NodeName is spec.nodeName; "" if the pod is not scheduled.
	NodeName string
}

// Node is a node, reduced to what this package needs.
type Node struct {
	Object
	// ProviderID is spec.providerID; "" if the node has none.
	ProviderID string
}

// Objects gets the objects that a token is issued for or compared with. Each method
// returns either an object or an error, never neither. For an object that does not exist,
// the error wraps [ErrNotFound]; any other error means that the question could not be
// answered. Implementations must be safe for concurrent use.
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

// WebhookObjects is an Objects that also gets webhook configurations, to which Kubernetes 1.37
// binds the tokens that an API server presents to an admission webhook. With any other Objects,
// a validator refuses these tokens as if the configuration were gone.
type WebhookObjects interface {
	Objects
	// WebhookConfiguration gets one of the resource validatingwebhookconfigurations or
	// mutatingwebhookconfigurations.
	WebhookConfiguration(ctx context.Context, resource, name string) (*Object, error)
}

// LiveObjects is an Objects that reads from the API server for each answer. Any other, such as
// one that reads a cache, must state in AsOf how old each object is. Validators accept it only
// if they are told how old an answer may be, and they accept no older answer, nor one without
// AsOf: a deleted object may be seen as existing for that long.
//
// Not: an informer's lister. Its answers are as old as its watch, which may have ended.
type LiveObjects interface {
	Objects
	// ReadsLive is a marker. It does nothing.
	ReadsLive()
}

// live reports whether an answer without AsOf is of this very moment.
func live(objects Objects) bool {
	_, marked := objects.(LiveObjects)
	_, memory := objects.(*MemoryObjects) // without the marker: whoever embeds one does not inherit it
	return marked || memory
}

// The resources, as named in the errors of the API server.
const (
	resourceServiceAccounts = "serviceaccounts"
	resourcePods            = "pods"
	resourceSecrets         = "secrets"
	resourceNodes           = "nodes"
)

// NewNotFound returns the error for an object that does not exist, in which errors.Is finds
// [ErrNotFound]. Its text is the API server's own, which appears in the answer to a
// TokenReview. resource is the plural name of the resource, such as serviceaccounts.
func NewNotFound(resource, name string) error {
	return &notFoundError{resource + " " + strconv.Quote(name) + " not found"}
}

// notFoundError has the API server's words in place of those of [ErrNotFound].
type notFoundError struct{ text string }

func (e *notFoundError) Error() string { return e.text }
func (e *notFoundError) Unwrap() error { return ErrNotFound }

// checkStaleAnswer: the answer of an [Objects] is older than allowed, does not say how old
// it is, or is from a time in the future. It comes with [refusal.ErrRetry].
const checkStaleAnswer Check = "stale-answer"

// FreshObjects passes on the answers of another Objects, and returns an error
// ("stale-answer", [refusal.ErrRetry]) instead of one that is too old. The validators of
// this package and of apiserver wrap their Objects in it; a [NodeCheck] accepts Objects that
// are not [LiveObjects] only inside one.
type FreshObjects struct {
	// From gives the answers. It is required.
	From Objects
	// MaxStaleness is how old they may be; 0 refuses Objects that are not [LiveObjects].
	MaxStaleness time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// clock returns the clock to use: time.Now for nil.
func clock(now func() time.Time) func() time.Time {
	if now == nil {
		return time.Now
	}
	return now
}

// Check returns [refusal.CheckConfig] for a configuration that cannot be used: no From, a
// negative MaxStaleness, or none for Objects that are not [LiveObjects].
func (f FreshObjects) Check() error {
	if typednil.Is(f.From) {
		return refusal.Config("Objects", "", "a getter for objects")
	}
	if f.MaxStaleness < 0 {
		return refusal.Config("MaxStaleness", f.MaxStaleness.String(), "0 or more")
	}
	if f.MaxStaleness == 0 && !live(f.From) {
		return refusal.Config("Objects", "without the method ReadsLive, whose answers may be old", "a MaxStaleness, or LiveObjects")
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

// WebhookConfiguration implements [WebhookObjects]. If From does not, nothing is found.
func (f FreshObjects) WebhookConfiguration(ctx context.Context, resource, name string) (*Object, error) {
	from, ok := f.From.(WebhookObjects)
	if !ok {
		return nil, fmt.Errorf("%w: Objects that are no WebhookObjects", ErrNotFound)
	}
	return fresh(f, func() (*Object, error) { return from.WebhookConfiguration(ctx, resource, name) })
}

// holder is a pointer to something that contains an Object.
type holder[T any] interface {
	*T
	object() *Object
}

// fresh passes an answer on, or returns an error if it is too old.
func fresh[T any, P holder[T]](f FreshObjects, get func() (P, error)) (P, error) {
	if f.From == nil {
		return nil, f.Check()
	}
	answer, err := get()
	if err != nil || answer == nil {
		return nil, err
	}
	object := answer.object()
	if object.AsOf.IsZero() && !live(f.From) {
		return nil, &Error{Check: checkStaleAnswer, Got: "an answer without its age", Want: "AsOf, or LiveObjects", Err: refusal.ErrRetry}
	}
	if err := object.checkAge(f.MaxStaleness, clock(f.Now)()); err != nil {
		return nil, err
	}
	return answer, nil
}

// checkAge refuses an answer that is older than most, or from a time after now, with
// "stale-answer" and [refusal.ErrRetry]. One without AsOf counts as current.
func (o *Object) checkAge(most time.Duration, now time.Time) error {
	if o.AsOf.IsZero() {
		return nil
	}
	// The monotonic clock stands still while a machine sleeps: the longer of two ages counts.
	if age := max(now.Sub(o.AsOf), now.Round(0).Sub(o.AsOf.Round(0))); age < 0 || age > most {
		return &Error{Check: checkStaleAnswer, Got: "an answer that is " + age.String() + " old", Want: "0s to " + most.String(), Err: refusal.ErrRetry}
	}
	return nil
}

// MemoryObjects is an [Objects] that is filled by hand, for tests and examples. Its contents
// count as current, unless an object's AsOf says otherwise: it is not a cache of an API
// server. The zero value is empty and ready to use. It is safe for concurrent use.
type MemoryObjects struct {
	mu      sync.RWMutex
	objects map[objectKey]any // pointers to the objects that were put in
}

type objectKey struct{ resource, namespace, name string }

// PutServiceAccount adds a service account or replaces the one with its name.
func (m *MemoryObjects) PutServiceAccount(o Object) {
	m.put(objectKey{resourceServiceAccounts, o.Namespace, o.Name}, &o)
}

// PutPod adds a pod or replaces the one with its name.
func (m *MemoryObjects) PutPod(p Pod) {
	m.put(objectKey{resourcePods, p.Namespace, p.Name}, &p)
}

// PutSecret adds a Secret or replaces the one with its name.
func (m *MemoryObjects) PutSecret(o Object) {
	m.put(objectKey{resourceSecrets, o.Namespace, o.Name}, &o)
}

// PutNode adds a node or replaces the one with its name. Its namespace is ignored.
func (m *MemoryObjects) PutNode(n Node) { m.put(objectKey{resourceNodes, "", n.Name}, &n) }

// PutWebhookConfiguration adds a configuration of that resource or replaces the one with its
// name; see [WebhookObjects].
func (m *MemoryObjects) PutWebhookConfiguration(resource string, o Object) {
	m.put(objectKey{resource, "", o.Name}, &o)
}

// DeleteServiceAccount removes a service account, if there is one with that name.
func (m *MemoryObjects) DeleteServiceAccount(namespace, name string) {
	m.put(objectKey{resourceServiceAccounts, namespace, name}, nil)
}

// DeletePod removes a pod, if there is one with that name.
func (m *MemoryObjects) DeletePod(namespace, name string) {
	m.put(objectKey{resourcePods, namespace, name}, nil)
}

// DeleteSecret removes a Secret, if there is one with that name.
func (m *MemoryObjects) DeleteSecret(namespace, name string) {
	m.put(objectKey{resourceSecrets, namespace, name}, nil)
}

// DeleteNode removes a node, if there is one with that name.
func (m *MemoryObjects) DeleteNode(name string) {
	m.put(objectKey{resourceNodes, "", name}, nil)
}

// DeleteWebhookConfiguration removes a configuration of that resource.
func (m *MemoryObjects) DeleteWebhookConfiguration(resource, name string) {
	m.put(objectKey{resource, "", name}, nil)
}

// ServiceAccount returns the service account with that name, which must not be changed, or
// an error of [NewNotFound].
func (m *MemoryObjects) ServiceAccount(_ context.Context, namespace, name string) (*Object, error) {
	return get[Object](m, objectKey{resourceServiceAccounts, namespace, name})
}

// Pod returns the pod with that name, which must not be changed, or an error of [NewNotFound].
func (m *MemoryObjects) Pod(_ context.Context, namespace, name string) (*Pod, error) {
	return get[Pod](m, objectKey{resourcePods, namespace, name})
}

// Secret returns the Secret with that name, which must not be changed, or a
// [NewNotFound] error.
func (m *MemoryObjects) Secret(_ context.Context, namespace, name string) (*Object, error) {
	return get[Object](m, objectKey{resourceSecrets, namespace, name})
}

// Node returns the node with that name, which must not be changed, or an error of [NewNotFound].
func (m *MemoryObjects) Node(_ context.Context, name string) (*Node, error) {
	return get[Node](m, objectKey{resourceNodes, "", name})
}

// WebhookConfiguration implements [WebhookObjects]; the answer must not be changed.
func (m *MemoryObjects) WebhookConfiguration(_ context.Context, resource, name string) (*Object, error) {
	return get[Object](m, objectKey{resource, "", name})
}

// put stores an object, or removes the stored one if object is nil.
func (m *MemoryObjects) put(key objectKey, object any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects == nil {
		m.objects = make(map[objectKey]any)
	}
	m.objects[key] = object
}

func get[T any](m *MemoryObjects, key objectKey) (*T, error) {
	m = typednil.OrZero(m)
	m.mu.RLock()
	defer m.mu.RUnlock()
	if object, ok := m.objects[key].(*T); ok {
		return object, nil
	}
	return nil, NewNotFound(key.resource, key.name)
}
