// Command pkcs11 is external-jwt-signer with the key in a PKCS #11 module, such as the library of an HSM. It
// needs cgo, as every user of such a library does.
package main

import (
	"crypto"
	"fmt"
	"os"
	"strings"

	"github.com/ThalesGroup/crypto11"

	"github.com/nodeattest/nodeattest/externalsigner/program"
)

// section is the section pkcs11 of the configuration file, in place of keyFile and tpm.
type section struct {
	Module  string `json:"module"`  // the path of the library
	Token   string `json:"token"`   // the token's label
	PINFile string `json:"pinFile"` // the file of the user's PIN
	Key     string `json:"key"`     // the label of the key pair, RSA or ECDSA
}

func open(decode func(into any) error) (crypto.Signer, error) {
	var s section
	if err := decode(&s); err != nil {
		return nil, err
	}
	pin, err := os.ReadFile(s.PINFile)
	if err != nil {
		return nil, err
	}
	token, err := crypto11.Configure(&crypto11.Config{Path: s.Module, TokenLabel: s.Token, Pin: strings.TrimSpace(string(pin))})
	if err != nil {
		return nil, fmt.Errorf("%s: token %q: %w", s.Module, s.Token, err)
	}
	key, err := token.FindKeyPair(nil, []byte(s.Key))
	if err == nil && key == nil {
		err = fmt.Errorf("%s: no key pair %q in token %q", s.Module, s.Key, s.Token)
	}
	return key, err
}

func main() {
	os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr, program.KeySource{Name: "pkcs11", Open: open}))
}
