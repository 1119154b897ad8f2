package claims

import (
	"context"
	"sync"
)

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
