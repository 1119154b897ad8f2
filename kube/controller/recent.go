package controller

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// recentSize is how many UIDs a generation of a recent holds.
const recentSize = 4096

// A recent remembers the UIDs of the requests that were decided last, so that a cache
// which does not have a write yet verifies nothing twice. It holds two generations, of
// recentSize each, and drops the older when the younger is full.
type recent struct {
	mu         sync.Mutex
	young, old map[types.UID]struct{}
}

func newRecent() *recent { return &recent{young: map[types.UID]struct{}{}} }

func (r *recent) add(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.young) >= recentSize {
		r.young, r.old = map[types.UID]struct{}{}, r.young
	}
	r.young[uid] = struct{}{}
}

func (r *recent) has(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, young := r.young[uid]
	_, old := r.old[uid]
	return young || old
}
