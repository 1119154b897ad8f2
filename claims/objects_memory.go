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
	mu              sync.RWMutex
	serviceAccounts map[objectKey]*Object
	pods            map[objectKey]*Pod
	secrets         map[objectKey]*Object
	nodes           map[objectKey]*Node
}

type objectKey struct{ namespace, name string }

// PutServiceAccount adds a service account or replaces the one of its name.
func (m *MemoryObjects) PutServiceAccount(o Object) { put(m, &m.serviceAccounts, o.key(), o) }

// PutPod adds a pod or replaces the one of its name.
func (m *MemoryObjects) PutPod(p Pod) { put(m, &m.pods, p.key(), p) }

// PutSecret adds a Secret or replaces the one of its name.
func (m *MemoryObjects) PutSecret(o Object) { put(m, &m.secrets, o.key(), o) }

// PutNode adds a node or replaces the one of its name. Its namespace does not count.
func (m *MemoryObjects) PutNode(n Node) { put(m, &m.nodes, objectKey{name: n.Name}, n) }

// DeleteServiceAccount removes a service account, if there is one of that name.
func (m *MemoryObjects) DeleteServiceAccount(namespace, name string) {
	remove(m, &m.serviceAccounts, objectKey{namespace, name})
}

// DeletePod removes a pod, if there is one of that name.
func (m *MemoryObjects) DeletePod(namespace, name string) {
	remove(m, &m.pods, objectKey{namespace, name})
}

// DeleteSecret removes a Secret, if there is one of that name.
func (m *MemoryObjects) DeleteSecret(namespace, name string) {
	remove(m, &m.secrets, objectKey{namespace, name})
}

// DeleteNode removes a node, if there is one of that name.
func (m *MemoryObjects) DeleteNode(name string) { remove(m, &m.nodes, objectKey{name: name}) }

// ServiceAccount returns the service account of that name, which must not be changed, or
// a [*NotFoundError].
func (m *MemoryObjects) ServiceAccount(_ context.Context, namespace, name string) (*Object, error) {
	return get(m, &m.serviceAccounts, objectKey{namespace, name}, resourceServiceAccounts)
}

// Pod returns the pod of that name, which must not be changed, or a [*NotFoundError].
func (m *MemoryObjects) Pod(_ context.Context, namespace, name string) (*Pod, error) {
	return get(m, &m.pods, objectKey{namespace, name}, resourcePods)
}

// Secret returns the Secret of that name, which must not be changed, or a
// [*NotFoundError].
func (m *MemoryObjects) Secret(_ context.Context, namespace, name string) (*Object, error) {
	return get(m, &m.secrets, objectKey{namespace, name}, resourceSecrets)
}

// Node returns the node of that name, which must not be changed, or a [*NotFoundError].
func (m *MemoryObjects) Node(_ context.Context, name string) (*Node, error) {
	return get(m, &m.nodes, objectKey{name: name}, resourceNodes)
}

func (o *Object) key() objectKey { return objectKey{o.Namespace, o.Name} }

func put[T any](m *MemoryObjects, in *map[objectKey]*T, key objectKey, value T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if *in == nil {
		*in = make(map[objectKey]*T)
	}
	(*in)[key] = &value
}

func remove[T any](m *MemoryObjects, from *map[objectKey]*T, key objectKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(*from, key)
}

func get[T any](m *MemoryObjects, from *map[objectKey]*T, key objectKey, resource string) (*T, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if value, ok := (*from)[key]; ok {
		return value, nil
	}
	return nil, NewNotFound(resource, key.name)
}
