package tpm

import (
	"testing"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
)

// Each part of a certify statement is named by its refusal.
func TestFieldsOfCertifyStatement(t *testing.T) {
	a, none, over := tpmlab.Octets([]byte{1}), tpmlab.Octets(nil), tpmlab.Octets(make([]byte, der.MaxPublicSize+1))
	for name, c := range map[string]struct {
		der []byte
		bad string
	}{
		"no list":             {a, "certify frame"},
		"nothing":             {tpmlab.Seq(), "certify tpmSAttest"},
		"an empty attest":     {tpmlab.Seq(none, a, a), "certify tpmSAttest"},
		"a longer attest":     {tpmlab.Seq(over, a, a), "certify tpmSAttest"},
		"no signature":        {tpmlab.Seq(a), "certify signature"},
		"an empty signature":  {tpmlab.Seq(a, none, a), "certify signature"},
		"a longer signature":  {tpmlab.Seq(a, over, a), "certify signature"},
		"an empty public":     {tpmlab.Seq(a, a, none), "certify tpmTPublic"},
		"a longer public":     {tpmlab.Seq(a, a, over), "certify tpmTPublic"},
		"an empty one, again": {tpmlab.Seq(a, a, none, a), "certify tpmTPublic"},
		"something after":     {tpmlab.Seq(a, a, a, a), "certify frame"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := statement.ParseTCGAttestCertify(c.der)
			expectField(t, err, c.bad)
		})
	}
}
