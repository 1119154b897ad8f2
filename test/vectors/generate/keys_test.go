package main

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"testing"

	"github.com/nodeattest/nodeattest/test/vectors/forge"
)

func TestRSAKey(t *testing.T) {
	a, b := rsaKey(1024, "a"), rsaKey(1024, "a")
	if !a.Equal(b) || a.Equal(rsaKey(1024, "b")) || a.N.BitLen() != 1024 {
		t.Error("keys do not follow from their labels")
	}
	digest := sha256.Sum256([]byte("message"))
	sig, err := forge.Repeatable{Signer: a}.Sign(nil, digest[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256})
	if err != nil || rsa.VerifyPSS(&b.PublicKey, crypto.SHA256, digest[:], sig, nil) != nil {
		t.Errorf("PSS: %v", err)
	}
}
