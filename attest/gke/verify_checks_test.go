package gke

import (
	"crypto"
	"crypto/elliptic"
	"testing"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
)

// GKE's nodes have keys on three curves, and their area is made for no other.
func TestPublicAreasOfGKE(t *testing.T) {
	for name, c := range map[string]struct {
		key  crypto.PublicKey
		want Check
	}{
		"P-256": {ecdsaKey(t, elliptic.P256()).Public(), ""},
		"P-384": {ecdsaKey(t, elliptic.P384()).Public(), ""},
		"P-521": {ecdsaKey(t, elliptic.P521()).Public(), ""},
		"P-224": {ecdsaKey(t, elliptic.P224()).Public(), statement.CheckPoint},
		"RSA":   {rsaTestKeys()[0].Public(), statement.CheckKeyMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := gkePublic(c.key)
			checkOutcome(t, err, c.want)
		})
	}
}
