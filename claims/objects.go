package claims

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/internal/wallclock"
	"github.com/nodeattest/nodeattest/refusal"
)

// Object is an object that a token may be bound to, reduced to the fields of this package.
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
	// ServiceAccountName is a pod's spec.serviceAccountName.
	ServiceAccountName string
	// NodeName is a pod's spec.nodeName; "" if it is not scheduled.
	NodeName string
	// ProviderID is a Node's spec.providerID; "" if it has none.
	ProviderID string
}

// Objects gets objects from the API server. If an API server had the object, Get
// returns either it or an error, never neither. For an object that does not exist,
// the error wraps [ErrNotFound]; any other error means that the question could not be
// answered. Implementations must be safe for concurrent use.
type Objects interface {
	// Get gets an object of a resource, as it is named in the paths of the API server:
	// serviceaccounts, pods, secrets and nodes, and, to which Kubernetes 1.37 binds the tokens
	// that an API server presents to an admission webhook, validatingwebhookconfigurations and
	// mutatingwebhookconfigurations. namespace is "" for nodes and for the last two. A token
	// whose object is not found is refused, so an implementation may leave out resources.
	Get(ctx context.Context, resource, namespace, name string) (*Object, error)
}

// LiveObjects is an Objects that reads from the API server for each answer. Any other, such as
// one that reads a cache, must state in AsOf how old each object is. Validators accept it only
// if they are told how old an answer may be, and they accept no older answer, nor one without
// AsOf: a deleted object may be seen as existing for that long.
//
// An informer's lister is not LiveObjects: its answers are as old as its watch, which may have
// ended.
type LiveObjects interface {
	Objects
	// ReadsLive is a marker. It does nothing.
	ReadsLive()
}

// live reports whether an answer without AsOf is current.
func live(objects Objects) bool {
	_, marked := objects.(LiveObjects)
	_, memory := objects.(*MemoryObjects) // without the marker: a type that embeds one does not inherit it
	return marked || memory
}

// NewNotFound returns the error for an object that does not exist, in which errors.Is finds
// [ErrNotFound]. Its text is the API server's own, which appears in the answer to a
// TokenReview. resource is the plural name of the resource, such as serviceaccounts.
func NewNotFound(resource, name string) error {
	return &notFoundError{resource + " " + strconv.Quote(name) + " not found"}
}

// notFoundError has the API server's text in place of [ErrNotFound]'s.
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

// Check returns [refusal.CheckConfig] for a configuration that cannot be used: no From, a
// negative MaxStaleness, or none for Objects that are not [LiveObjects].
func (f FreshObjects) Check() error {
	switch {
	case f.From == nil:
		return refusal.Config("Objects", "", "a getter for objects")
	case f.MaxStaleness < 0:
		return refusal.Config("MaxStaleness", f.MaxStaleness.String(), "0 or more")
	case f.MaxStaleness == 0 && !live(f.From):
		return refusal.Config("Objects", "without the method ReadsLive, whose answers may be old", "a MaxStaleness, or LiveObjects")
	}
	return nil
}

// Get implements [Objects].
func (f FreshObjects) Get(ctx context.Context, resource, namespace, name string) (*Object, error) {
	if f.From == nil {
		return nil, f.Check()
	}
	object, err := f.From.Get(ctx, resource, namespace, name)
	if err != nil || object == nil {
		return nil, err
	}
	undated, now := object.AsOf.IsZero(), wallclock.Or(f.Now)()
	// The monotonic clock stands still while a machine sleeps: the longer of two ages counts.
	age := max(now.Sub(object.AsOf), now.Round(0).Sub(object.AsOf.Round(0)))
	switch {
	case undated && !live(f.From):
		return nil, &Error{Check: checkStaleAnswer, Got: "an answer without its age", Want: "AsOf, or LiveObjects", Err: refusal.ErrRetry}
	case !undated && (age < 0 || age > f.MaxStaleness):
		return nil, &Error{Check: checkStaleAnswer, Got: "an answer that is " + age.String() + " old",
			Want: "0s to " + f.MaxStaleness.String(), Err: refusal.ErrRetry}
	}
	return object, nil
}

// MemoryObjects is an [Objects] that is filled by hand, for tests and examples. Its contents
// count as current, unless an object's AsOf says otherwise: it is not a cache of an API
// server. The zero value is empty and ready to use. It is safe for concurrent use.
type MemoryObjects struct {
	mu      sync.RWMutex
	objects map[objectKey]*Object
}

type objectKey struct{ resource, namespace, name string }

// Put adds an object of that resource or replaces the one with its namespace and name.
func (m *MemoryObjects) Put(resource string, o Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects == nil {
		m.objects = make(map[objectKey]*Object)
	}
	m.objects[objectKey{resource, o.Namespace, o.Name}] = &o
}

// Delete removes an object of that resource, if there is one with that namespace and name.
func (m *MemoryObjects) Delete(resource, namespace, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, objectKey{resource, namespace, name})
}

// Get returns the object of that resource, which must not be changed, or an error of
// [NewNotFound].
func (m *MemoryObjects) Get(_ context.Context, resource, namespace, name string) (*Object, error) {
	if m == nil {
		return nil, NewNotFound(resource, name)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if object, ok := m.objects[objectKey{resource, namespace, name}]; ok {
		return object, nil
	}
	return nil, NewNotFound(resource, name)
}
