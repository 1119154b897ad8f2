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
	verifier, err := attest.NewVerifier(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	return verifier
}

func TestRunTPM(t *testing.T) {
	w := attesttest.NewWorld(t, attesttest.WorldOptions{})
	attesttest.Run(t, tpmProvider(t, w), w)
}

// TestRunTPMConfigurations: with TLS keys in the TPM, with quotes, and with one road
// closed.
func TestRunTPMConfigurations(t *testing.T) {
	for name, options := range map[string]attesttest.WorldOptions{
		"resident": {RequireTPMResident: true},
		"quote":    {RequireQuote: true},
		"ak":       {Roads: []attest.Road{attest.RoadAK}},
		"ek":       {Roads: []attest.Road{attest.RoadEK}, RequireTPMResident: true, RequireQuote: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := attesttest.NewWorld(t, options)
			for _, o := range attesttest.Try(context.Background(), tpmProvider(t, w), w) {
				if o.Fault != "" {
					t.Errorf("%s: %s: %v", o.Name, o.Fault, o.Err)
				}
			}
		})
	}
}
