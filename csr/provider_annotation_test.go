package csr_test

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
)

func TestEndorsementKeyAnnotation(t *testing.T) {
	name, value, err := csr.EndorsementKeyAnnotation(p256Key().Public())
	if err != nil {
		t.Fatal(err)
	}
	if name != "cluster-x-k8s-io/tpm-endorsement-key" {
		t.Errorf("the proposal spells it otherwise: %s", name)
	}
	block, rest := pem.Decode([]byte(value))
	if block == nil || len(rest) > 0 || block.Type != "PUBLIC KEY" {
		t.Fatalf("value %q", value)
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil || !p256Key().Public().(*ecdsa.PublicKey).Equal(key) {
		t.Errorf("key %v, %v", key, err)
	}
	if _, _, err := csr.EndorsementKeyAnnotation("no key"); !errors.Is(err, csr.CheckUnsupportedKey) {
		t.Errorf("no key: %v", err)
	}
}
