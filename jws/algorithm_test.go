package jws

import (
	"crypto"
	"strings"
	"testing"
)

func TestAlgorithms(t *testing.T) {
	for algorithm, want := range map[Algorithm]crypto.Hash{
		RS256: crypto.SHA256, RS384: crypto.SHA384, RS512: crypto.SHA512,
		PS256: crypto.SHA256, PS384: crypto.SHA384, PS512: crypto.SHA512,
		ES256: crypto.SHA256, ES384: crypto.SHA384, ES512: crypto.SHA512, EdDSA: 0,
	} {
		if got := algorithm.Hash(); got != want {
			t.Errorf("%s: got %v, want %v", algorithm, got, want)
		}
		if !algorithm.Asymmetric() || asymmetric(string(algorithm)) != algorithm {
			t.Errorf("%s does not verify tokens", algorithm)
		}
		for _, other := range []string{strings.ToLower(string(algorithm)), string(algorithm) + " ", string(algorithm)[1:]} {
			if Algorithm(other).Asymmetric() {
				t.Errorf("%q verifies tokens", other)
			}
		}
	}
	if HS256.Hash() != crypto.SHA256 {
		t.Error("HS256 has another hash")
	}
	for _, other := range []Algorithm{"", HS256, "HS384", "none", "ES256K", "Ed25519", "RS1"} {
		if other.Asymmetric() {
			t.Errorf("%q verifies tokens", other)
		}
	}
}
