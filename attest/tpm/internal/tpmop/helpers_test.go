package tpmop

import (
	"context"

	"testing"

	"github.com/google/go-tpm/tpm2/transport"
)

// do is Shared.do for tests, with the result that f computes.
func do[T any](t testing.TB, tpm transport.TPM, f func(ctx context.Context, h *Handles) (T, error)) (T, error) {
	t.Helper()
	var v T
	err := Share(tpm).Do(t.Context(), func(h *Handles) (err error) {
		v, err = f(t.Context(), h)
		return err
	})
	return v, err
}
