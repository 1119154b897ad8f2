package program_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/nodeattest/nodeattest/externalsigner/program"
)

// A program of one's own has a key behind a crypto.Signer, such as one of a PKCS #11 module, here one in
// memory. Its section of the configuration file says which.
func ExampleMain() {
	keys := map[string]crypto.Signer{"tokens": fixedKey()}
	module := program.KeySource{Name: "module", Open: func(decode func(into any) error) (crypto.Signer, error) {
		var section struct {
			Key string `json:"key"`
		}
		if err := decode(&section); err != nil {
			return nil, err
		}
		key, ok := keys[section.Key]
		if !ok {
			return nil, fmt.Errorf("no key %q", section.Key)
		}
		return key, nil
	}}

	folder, err := os.MkdirTemp("", "signer")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	config := filepath.Join(folder, "config.yaml")
	const text = `
apiVersion: config.nodeattest.github.io/v1alpha1
kind: ExternalSigner
issuer: https://issuer.example
stateFile: /var/lib/external-jwt-signer/state.json
publish: 1h
retain: 2h
module: {key: tokens}
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		log.Fatal(err)
	}
	// A main function passes os.Args[1:], and exits with the status.
	fmt.Println(program.Main([]string{"public-key", "--config", config}, os.Stdout, os.Stdout, module))
	// Output:
	// -----BEGIN PUBLIC KEY-----
	// MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEjlM7b6C/e0YluzBmfAH7YH75+Lio
	// D+9bMAYocDGHsqNz6x294DMYNm0Gn4Om9ZAAU8c2M8sEGyHFXhqGwfQAtA==
	// -----END PUBLIC KEY-----
	// 0
}

// fixedKey is a key whose public key never changes.
func fixedKey() crypto.Signer {
	secret := make([]byte, 32)
	secret[31] = 7
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), secret)
	if err != nil {
		log.Fatal(err)
	}
	return key
}
