package tpmkey

import (
	"context"

	"encoding/pem"

	"os"

	"strings"

	"testing"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/internal/testkit"

	"github.com/nodeattest/nodeattest/secret"
)

func readAll(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	testkit.NoError(t, err)
	return b
}

// badPassword is one that no TPM takes.
var badPassword = []byte("a\x00b")

// do is Shared.do for tests, with the result that f computes.
func do[T any](t testing.TB, tpm transport.TPM, f func(ctx context.Context, h *tpmop.Handles) (T, error)) (T, error) {
	t.Helper()
	var v T
	err := tpmop.Share(tpm).Do(t.Context(), func(h *tpmop.Handles) (err error) {
		v, err = f(t.Context(), h)
		return err
	})
	return v, err
}

func mustTPMKey(t testing.TB, tpm transport.TPM, algorithm Algorithm) *Key {
	t.Helper()
	k, err := Create(t.Context(), tpm, algorithm, Options{})
	testkit.NoError(t, err)
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

func pemOf(ders ...[]byte) string {
	var out strings.Builder
	for _, der := range ders {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return out.String()
}

// hidden is secret.New where a test has a variable of that name.
func hidden(b []byte) secret.Value[[]byte] { return secret.New(b) }
