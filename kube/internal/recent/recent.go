// Package recent has a cache of bounded size.
package recent

import "sync"

// Map keeps the entries that were put last, between size and twice as many of them. It has two
// generations, and drops the older one when the younger is full. It is safe for use by multiple
// goroutines.
type Map[K comparable, V any] struct {
	size       int
	mu         sync.Mutex
	young, old map[K]V
}

// New returns an empty map.
func New[K comparable, V any](size int) *Map[K, V] {
	return &Map[K, V]{size: size, young: map[K]V{}}
}

// Get returns the value of a key.
func (m *Map[K, V]) Get(key K) (value V, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if value, ok = m.young[key]; !ok {
		value, ok = m.old[key]
	}
	return value, ok
}

// Put sets the value of a key.
func (m *Map[K, V]) Put(key K, value V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, value)
}

func (m *Map[K, V]) put(key K, value V) {
	if len(m.young) >= m.size {
		m.young, m.old = map[K]V{}, m.young
	}
	m.young[key] = value
}

// Keep returns the value of a key, which is then among the entries that were put last. For a key
// that the map lacks, it calls create.
func (m *Map[K, V]) Keep(key K, create func() V) V {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.young[key]
	if ok {
		return value
	}
	if value, ok = m.old[key]; !ok {
		value = create()
	}
	m.put(key, value)
	return value
}
