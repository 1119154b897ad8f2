package csr_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/secrettest"
)

// TestCAKeyIsNotShown: the private key of a CA that stands in a program's configuration is
// in nothing that is written about it. An Ed25519 key is bytes, which fmt shows.
func TestCAKeyIsNotShown(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := makeCA(t, caTemplate("root"), key, nil, nil)
	ca, err := csr.NewCA([]*x509.Certificate{root}, key, goodOptions())
	if err != nil {
		t.Fatal(err)
	}
	secrettest.Check(t, ca, key.Seed())
	secrettest.Check(t, *ca, key.Seed())
}
