package registry

import (
	"sync"

	"github.com/nodeattest/nodeattest/attest/membership"
)

// recentSize is how many nodes a generation of a recent holds.
const recentSize = 128

// A recent keeps the nodes that were read or written last, and the names that were found
// free, for a write over one of them that follows at once. What has changed since fails the
// write. It holds two generations, and drops the older when the younger is full.
type recent struct {
	mu         sync.Mutex
	young, old map[string]*node // by version; nil by a name that is free
}

func newRecent() *recent { return &recent{young: map[string]*node{}} }

func (r *recent) add(n *node) { r.put(n.record.Version, n) }

// addFree remembers that there is no object of a node's name, which is no version.
func (r *recent) addFree(name string) { r.put(name, nil) }

func (r *recent) put(key string, n *node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.young) >= recentSize {
		r.young, r.old = map[string]*node{}, r.young
	}
	r.young[key] = n
}

// takeFree says, once, whether a name was found free.
func (r *recent) takeFree(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, young := r.young[name]
	_, old := r.old[name]
	delete(r.young, name)
	delete(r.old, name)
	return young || old
}

// of finds the node of a record; nil where there is none.
func (r *recent) of(record *membership.Record) *node {
	if record == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.young[record.Version]
	if n == nil {
		n = r.old[record.Version]
	}
	if n == nil || n.record.NodeName != record.NodeName {
		return nil
	}
	return n
}
