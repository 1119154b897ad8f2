package tpm

import (
	"testing"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/der"
)

// Each part of a certify statement is named by its refusal.
func TestFieldsOfCertifyStatement(t *testing.T) {
	a, none, over := octets([]byte{1}), octets(nil), octets(make([]byte, der.MaxPublicSize+1))
	for name, c := range map[string]struct {
		der []byte
		bad string
	}{
		"no list":             {a, "certify frame"},
		"nothing":             {seq(), "certify tpmSAttest"},
		"an empty attest":     {seq(none, a, a), "certify tpmSAttest"},
		"a longer attest":     {seq(over, a, a), "certify tpmSAttest"},
		"no signature":        {seq(a), "certify signature"},
		"an empty signature":  {seq(a, none, a), "certify signature"},
		"a longer signature":  {seq(a, over, a), "certify signature"},
		"an empty public":     {seq(a, a, none), "certify tpmTPublic"},
		"a longer public":     {seq(a, a, over), "certify tpmTPublic"},
		"an empty one, again": {seq(a, a, none, a), "certify tpmTPublic"},
		"something after":     {seq(a, a, a, a), "certify frame"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := statement.ParseTCGAttestCertify(c.der)
			expectField(t, err, c.bad)
		})
	}
}
