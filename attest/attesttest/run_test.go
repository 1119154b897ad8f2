package attesttest_test

import (
	"context"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
)

// tpmProvider is the real one, made of a world.
func tpmProvider(t testing.TB, w *attesttest.World) csr.Provider {
	t.Helper()
	verifier, err := attest.NewVerifier(&w.Config)
	if err != nil {
		t.Fatal(err)
	}
	provider, err := attest.NewProvider(verifier)
	if err != nil {
		t.Fatal(err)
	}
	return provider
}

func TestRunTPM(t *testing.T) {
	w := attesttest.NewWorld(t, nil)
	attesttest.Run(t, tpmProvider(t, w), w)
}

func TestRunTPMResident(t *testing.T) {
	w := attesttest.NewWorld(t, &attesttest.WorldOptions{RequireTPMResident: true})
	outcomes := attesttest.Try(context.Background(), tpmProvider(t, w), w)
	if got := attesttest.GotIn(outcomes); len(got) > 0 {
		t.Errorf("got in: %q", got)
	}
}
