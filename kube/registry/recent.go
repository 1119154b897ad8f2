package registry

import (
	"sync"

	"github.com/nodeattest/nodeattest/attest/membership"
)

// recentSize is how many nodes a generation of a recent holds.
const recentSize = 128

// A recent keeps the nodes that were read or written last, for a write over one of them that
// follows soon. If the node has changed since, the write fails. It keeps two generations, and
// drops the older one when the younger is full.
type recent struct {
	mu         sync.Mutex
	young, old map[string]*node // by version
}

func newRecent() *recent { return &recent{young: map[string]*node{}} }

// add remembers a node. It never forgets that a version is complete.
func (r *recent) add(n *node) {
	if held := r.of(n.record); held != nil && held.complete {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.young) >= recentSize {
		r.young, r.old = map[string]*node{}, r.young
	}
	r.young[n.record.Version] = n
}

// of finds the node of a record; nil if there is none.
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
