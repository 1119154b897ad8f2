package requests

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeattest/nodeattest/kube/internal/recent"
)

// recentSize is the size of a Recent (recent.New).
const recentSize = 1024

// Recent remembers the requests that were decided last, so that no request is verified twice
// because a cache lags behind a write. A decision and the later recording of its certificate are
// separate entries.
type Recent struct {
	requests *recent.Map[types.UID, struct{}]
}

// NewRecent returns an empty Recent.
func NewRecent() *Recent { return &Recent{recent.New[types.UID, struct{}](recentSize)} }

// id returns the entry of a request.
func id(o *certificatesv1.CertificateSigningRequest) types.UID {
	if len(o.Status.Certificate) != 0 {
		return "signed " + o.UID
	}
	return o.UID
}

// Add remembers a request in its present state.
func (r *Recent) Add(o *certificatesv1.CertificateSigningRequest) { r.requests.Put(id(o), struct{}{}) }

// Has reports whether a request in its present state is remembered.
func (r *Recent) Has(o *certificatesv1.CertificateSigningRequest) bool { return r.has(id(o)) }

func (r *Recent) has(id types.UID) bool {
	_, ok := r.requests.Get(id)
	return ok
}
