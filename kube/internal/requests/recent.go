package requests

import (
	"sync"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"
)

// recentSize is how many requests a generation of a Recent holds.
const recentSize = 1024

// Recent remembers the requests that were decided last, so that nothing is verified twice
// because a cache does not have a write yet. A certificate that was recorded is another thing to
// remember than the decision before. It keeps two generations of recentSize each, and drops the
// older one when the younger is full.
type Recent struct {
	mu         sync.Mutex
	young, old map[types.UID]struct{}
}

// NewRecent returns a Recent that remembers nothing yet.
func NewRecent() *Recent { return &Recent{young: map[types.UID]struct{}{}} }

// id is what is remembered of a request.
func id(o *certificatesv1.CertificateSigningRequest) types.UID {
	if len(o.Status.Certificate) != 0 {
		return "signed " + o.UID
	}
	return o.UID
}

// Add remembers a request as it was seen.
func (r *Recent) Add(o *certificatesv1.CertificateSigningRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.young) >= recentSize {
		r.young, r.old = map[types.UID]struct{}{}, r.young
	}
	r.young[id(o)] = struct{}{}
}

// Has reports whether a request as it is seen is remembered.
func (r *Recent) Has(o *certificatesv1.CertificateSigningRequest) bool { return r.has(id(o)) }

func (r *Recent) has(id types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, young := r.young[id]
	_, old := r.old[id]
	return young || old
}
