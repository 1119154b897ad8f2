package tpm

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"

	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

// The tools cut a label from their standard input in halves, and lose the last byte of an odd
// one: the last spelling of templates.
func TestToolsSpellIAKs(t *testing.T) {
	x := tpmlab.StartTools(t)
	for name, c := range map[string]struct {
		curve elliptic.Curve
		hash  tpm2.TPMIAlgHash
		words string
	}{
		"P-256": {elliptic.P256(), tpm2.TPMAlgSHA256, "-G ecc256:ecdsa-sha256:null -g sha256"},
		"P-384": {elliptic.P384(), tpm2.TPMAlgSHA384, "-G ecc384:ecdsa-sha384:null -g sha384"},
	} {
		t.Run(name, func(t *testing.T) {
			x.Write("policy", []byte(iakPolicies[c.hash]))
			x.Write("iak.sh", []byte("printf IAK | tpm2_createprimary -Q -C e "+c.words+" -L policy -u - --template-data iak.template -c iak.ctx "+
				"-a 'fixedtpm|fixedparent|sensitivedataorigin|userwithauth|adminwithpolicy|restricted|sign'"))
			x.Run("sh iak.sh")
			x.Run("tpm2_flushcontext -t")
			templates := IAKTemplates(&ecdsa.PublicKey{Curve: c.curve})
			if got, want := x.Read("iak.template"), tpm2.Marshal(templates[len(templates)-1]); !bytes.Equal(got, want) {
				t.Errorf("the tools' template is\n%x, ours\n%x", got, want)
			}
		})
	}
}
