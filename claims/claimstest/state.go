package claimstest

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// The names for [Cluster.Break] and [Cluster.Delete] of sources other than the API server.
const (
	resourceKeys     = "keys"
	resourceMachines = "machines"
	resourceRecords  = "records"
	resourceReviews  = "tokenreviews"
)

// resources are those whose objects a token may be bound to.
var resources = []string{"serviceaccounts", "pods", "secrets", "nodes", "validatingwebhookconfigurations", "mutatingwebhookconfigurations"}

// checkResource panics for a misspelt resource, which no answer would ever meet.
func checkResource(resource string, also ...string) {
	if all := slices.Concat(resources, also); !slices.Contains(all, resource) {
		panic(fmt.Sprintf("claimstest: got resource %q, want one of %s", resource, strings.Join(all, ", ")))
	}
}

// state is all that a service asks a cluster for. A copy answers for its objects and keys as they
// were then.
type state struct {
	keys     []*jws.Key // never changed in place
	objects  map[objectKey]claims.Object
	machines map[string]claims.RegisteredMachine // by node name
	records  map[string]claims.CertificateRecord // by credential ID
}

type objectKey struct{ resource, namespace, name string }

func newState() state {
	return state{objects: map[objectKey]claims.Object{}, machines: map[string]claims.RegisteredMachine{},
		records: map[string]claims.CertificateRecord{}}
}

func (s *state) clone() *state {
	return &state{keys: s.keys, objects: maps.Clone(s.objects), machines: maps.Clone(s.machines), records: maps.Clone(s.records)}
}

// ReadsLive implements claims.LiveObjects.
func (*state) ReadsLive() {}

// Get implements claims.Objects.
func (s *state) Get(_ context.Context, resource, namespace, name string) (*claims.Object, error) {
	if object := copyOf(s.objects, objectKey{resource, namespace, name}); object != nil {
		return object, nil
	}
	return nil, claims.NewNotFound(resource, name)
}

// Keys implements jws.KeySet.
func (s *state) Keys(_ context.Context, keyID string) (keys []*jws.Key, _ error) {
	for _, key := range s.keys {
		if keyID == "" || key.KeyID() == keyID {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// copyOf returns a copy of a map's value, or nil.
func copyOf[K comparable, V any](from map[K]V, key K) *V {
	if value, ok := from[key]; ok {
		return &value
	}
	return nil
}

// Put adds an object of a resource, named as in the paths of the API server (pods, nodes, secrets,
// serviceaccounts and the two kinds of webhook configurations), and returns it as it is now. One
// that has the namespace and name is replaced: with a UID of "" it gets a new one, so it is an
// object that was deleted and made again. A pod without a ServiceAccountName has "default", and its
// service account is made with it if it is missing. Put panics if there is no such resource.
func (c *Cluster) Put(resource string, o claims.Object) claims.Object {
	checkResource(resource)
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.UID == "" {
		o.UID = newUID()
	}
	if resource == "pods" {
		o.ServiceAccountName = cmp.Or(o.ServiceAccountName, "default")
		account := objectKey{"serviceaccounts", o.Namespace, o.ServiceAccountName}
		if _, there := c.current.objects[account]; !there {
			c.current.objects[account] = claims.Object{Namespace: o.Namespace, Name: o.ServiceAccountName, UID: newUID()}
		}
	}
	c.current.objects[objectKey{resource, o.Namespace, o.Name}] = o
	return o
}

// Delete removes an object at once, if there is one. In addition to the resources of [Cluster.Put]
// there are "machines", the registered ones by the node's name, and "records", of certificates by
// their credential ID; their namespace is "". Delete panics if there is no such resource.
func (c *Cluster) Delete(resource, namespace, name string) {
	checkResource(resource, resourceMachines, resourceRecords)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch resource {
	case resourceMachines:
		delete(c.current.machines, name)
	case resourceRecords:
		delete(c.current.records, name)
	default:
		delete(c.current.objects, objectKey{resource, namespace, name})
	}
}

// newUID returns a UID as Kubernetes makes them (RFC 9562, version 4).
func newUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Fault is a way in which answers are wrong.
type Fault int

// The faults.
const (
	// Fail answers with an error at once: a validator gives [refusal.ErrRetry].
	Fail Fault = iota + 1
	// Hang never answers: a call ends with its context, and gives [refusal.ErrRetry].
	Hang
	// Stale gives the answers of the time when the fault began, like a cache that is not updated
	// any more. Objects have that time in AsOf: an answer that is older than the MaxStaleness of a
	// validator gives "stale-answer" and [refusal.ErrRetry], a younger one counts.
	Stale
)

// fault is a fault of one resource.
type fault struct {
	kind  Fault
	since time.Time
	then  *state // for Stale
}

// Break gives the answers for a resource a fault from now on; 0 mends it. In addition to the
// resources of [Cluster.Put] there are "keys" for the KeySet, "machines" for the NodeCheck's registry,
// "records" for the records of certificates and "tokenreviews" for [Cluster.Review]. Tokens are issued
// all the same. Break panics if there is no such resource or fault.
func (c *Cluster) Break(resource string, kind Fault) {
	checkResource(resource, resourceKeys, resourceMachines, resourceRecords, resourceReviews)
	if kind < 0 || kind > Stale {
		panic(fmt.Sprintf("claimstest: got fault %d, want 0 to %d", kind, Stale))
	}
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults[resource] = fault{kind: kind, since: now, then: c.current.clone()}
}

// read calls look with the state that answers for a resource come from, and returns the time of
// that state if it is old.
func (c *Cluster) read(ctx context.Context, resource string, look func(*state)) (since time.Time, err error) {
	c.mu.Lock()
	f := c.faults[resource] // zero for an intact one
	c.mu.Unlock()
	switch f.kind {
	case Fail:
		return time.Time{}, refusal.Retry(fmt.Errorf("claimstest: reading %s failed, as Fail asks", resource))
	case Hang:
		<-ctx.Done()
		return time.Time{}, refusal.Retry(fmt.Errorf("claimstest: reading %s gave no answer, as Hang asks: %w", resource, ctx.Err()))
	case Stale:
		look(f.then) // which does not change any more
		return f.since, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	look(&c.current)
	return time.Time{}, nil
}
