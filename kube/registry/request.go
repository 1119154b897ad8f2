package registry

import (
	"context"
	"encoding/hex"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
)

// Request is a certificate request as the registry remembers it.
type Request struct {
	// UID is the request object's.
	UID string
	// SPKIHash is the SHA-256 of the key's SubjectPublicKeyInfo.
	SPKIHash [32]byte
}

// requestKey is the key of a context's request.
type requestKey struct{}

// WithRequest returns a context in which [Registry.Raise] stores the request beside the
// last end, in the same write. membership.FirstUse calls Raise with the context of the
// verification. Where Kubernetes' own signer signs, only a certificate for this request
// and key is later taken as one that was issued through attestation.
func WithRequest(ctx context.Context, request Request) context.Context {
	return context.WithValue(ctx, requestKey{}, &v1alpha1.RequestReference{UID: request.UID, SPKISHA256: hex.EncodeToString(request.SPKIHash[:])})
}

func requestIn(ctx context.Context) *v1alpha1.RequestReference {
	request, _ := ctx.Value(requestKey{}).(*v1alpha1.RequestReference)
	return request
}
