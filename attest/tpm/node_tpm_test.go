package tpm

import (
	"context"
	"crypto"

	"testing"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/tpmop"
)

// do is tpmop.Shared.do for tests, with the result that f computes.
func do[T any](t testing.TB, tpm transport.TPM, f func(ctx context.Context, h *tpmop.Handles) (T, error)) (T, error) {
	t.Helper()
	var v T
	err := tpmop.Share(tpm).Do(t.Context(), func(h *tpmop.Handles) (err error) {
		v, err = f(t.Context(), h)
		return err
	})
	return v, err
}

func mustSoftwareKey(t testing.TB, priv crypto.Signer) tpmkey.Certifiable {
	t.Helper()
	k, err := tpmkey.SoftwareKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func mustTPMKey(t testing.TB, tpm transport.TPM, kind tpmkey.Kind) *tpmkey.Key {
	t.Helper()
	k, err := tpmkey.Create(t.Context(), tpm, kind, tpmkey.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}
