package tpmkey

import (
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
)

// PEM in the place of DER is said to be PEM.
func TestPEMWhereDERIsWanted(t *testing.T) {
	text := []byte(pemOf(tpmlab.CertificateOf(t, 10)))
	_, hello := message.ParseHello(text)
	_, bundle := message.ParseBundle(text)
	_, evidence := (&message.Bundle{Statements: []message.Statement{{Type: "\x2a", Stmt: []byte{5, 0}}}, Certificates: [][]byte{text}}).Marshal()
	for name, err := range map[string]error{"hello": hello, "bundle": bundle, "certificate of a bundle": evidence, "certificate for NV": checkNVCertificate(text)} {
		t.Run(name, func(t *testing.T) {
			if err == nil || !strings.Contains(err.Error(), "PEM") {
				t.Errorf("%s: got %v, want one that says PEM", name, err)
			}
		})
	}
	for _, err := range []error{hello, bundle, evidence} {
		tpmlab.ExpectCheck(t, err, der.CheckEncoding)
	}
}
