package requests

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// recentSize is how many UIDs a generation of a Recent holds.
const recentSize = 1024

// Recent remembers the UIDs of the requests that were decided last, so that nothing is
// verified twice because a cache does not have a write yet. It keeps two generations of
// recentSize each, and drops the older one when the younger is full.
type Recent struct {
	mu         sync.Mutex
	young, old map[types.UID]struct{}
}

// NewRecent returns a Recent that remembers nothing yet.
func NewRecent() *Recent { return &Recent{young: map[types.UID]struct{}{}} }

// Add remembers a UID.
func (r *Recent) Add(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.young) >= recentSize {
		r.young, r.old = map[types.UID]struct{}{}, r.young
	}
	r.young[uid] = struct{}{}
}

// Has reports whether a UID is remembered.
func (r *Recent) Has(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, young := r.young[uid]
	_, old := r.old[uid]
	return young || old
}
