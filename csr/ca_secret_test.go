package csr_test

import (
	"crypto/ecdsa"
	"crypto/x509"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/secrettest"
)

// TestCAKeyIsNotShown: the private key of a CA that stands in a program's configuration is
// in nothing that is written about it.
func TestCAKeyIsNotShown(t *testing.T) {
	key, ok := p256Key().(*ecdsa.PrivateKey)
	if !ok {
		t.Fatalf("a key of type %T", p256Key())
	}
	number, err := key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	root := makeCA(t, caTemplate("root"), key, nil, nil)
	ca, err := csr.NewCA([]*x509.Certificate{root}, key, goodOptions())
	if err != nil {
		t.Fatal(err)
	}
	secrettest.Check(t, ca, number)
	secrettest.Check(t, *ca, number)
}
