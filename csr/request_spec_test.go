package csr_test

import (
	"crypto"
	"errors"
	"slices"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestSpec files what a bundle's Spec says, under each kind of signer: a policy passes it.
func TestSpec(t *testing.T) {
	for name, c := range map[string]struct {
		signer     string
		class      csr.RequesterClass
		key        crypto.Signer
		expiration int32
		usages     []string
	}{
		"client":   {csr.SignerClientTPM, csr.RequesterBootstrap, p256Key(), 0, []string{"digital signature", "client auth"}},
		"serving":  {csr.SignerServingTPM, csr.RequesterNode, p256Key(), 600, []string{"digital signature", "server auth"}},
		"recovery": {csr.SignerRecoveryTPM, csr.RequesterNode, p384Key(), 1 << 30, []string{"digital signature", "client auth"}},
		"RSA":      {csr.SignerClientTPM, csr.RequesterNode, rsa2048(), 3600, []string{"digital signature", "key encipherment", "client auth"}},
		"built-in": {csr.SignerKubeAPIServerClientKubelet, csr.RequesterBootstrap, p256Key(), 3600, []string{"digital signature", "client auth"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := goodFixture(c.signer, c.class)
			f.builder.key = c.key
			bundle := &csr.Bundle{Request: f.builder.der(t), Provider: "tpm/v1", Data: []byte{1}}
			spec, err := bundle.Spec(c.signer, c.expiration)
			if err != nil {
				t.Fatal(err)
			}
			if spec.SignerName != c.signer || !slices.Equal(spec.Usages, c.usages) ||
				(spec.ExpirationSeconds == nil) != (c.expiration == 0) || c.expiration != 0 && *spec.ExpirationSeconds != c.expiration {
				t.Errorf("got %+v", spec)
			}
			hello, err := bundle.HelloSpec(c.signer, c.expiration)
			if err != nil {
				t.Fatal(err)
			}
			if hello.SignerName != csr.SignerChallengeTPM || !slices.Equal(hello.Usages, c.usages) || !slices.Equal(hello.Request, spec.Request) {
				t.Errorf("hello: got %+v", hello)
			}
			for _, filed := range []*csr.Spec{spec, hello} {
				request := csr.Filed(filed, f.request.User, issueTime)
				if _, err := f.policy.CheckUnsigned(t.Context(), request.Parsed(), c.signer); err != nil {
					t.Errorf("filed under %s: %v", filed.SignerName, err)
				}
			}
		})
	}
}

func TestSpecRefuses(t *testing.T) {
	der := goodFixture(csr.SignerClientTPM, csr.RequesterBootstrap).builder.der(t)
	good := csr.Bundle{Request: der, Provider: "tpm/v1", Data: []byte{1}}
	for name, c := range map[string]struct {
		bundle     *csr.Bundle
		signer     string
		expiration int32
		spec       csr.Check // "" where Spec refuses nothing
		hello      csr.Check
	}{
		"good":               {&good, csr.SignerClientTPM, 600, "", ""},
		"no bundle":          {nil, csr.SignerClientTPM, 600, csr.CheckBlock, csr.CheckSignerName},
		"no request":         {&csr.Bundle{Provider: "tpm/v1", Data: []byte{1}}, csr.SignerClientTPM, 600, csr.CheckRequestDER, csr.CheckRequestDER},
		"no evidence":        {&csr.Bundle{Request: der}, csr.SignerClientTPM, 600, "", csr.CheckSignerName},
		"insecure":           {&csr.Bundle{Request: der, Provider: "insecure/v1", Data: []byte{1}}, csr.SignerClientInsecure, 600, "", csr.CheckSignerName},
		"a challenge signer": {&good, csr.SignerChallengeTPM, 600, csr.CheckSignerName, csr.CheckSignerName},
		"no signer":          {&good, "", 600, csr.CheckSignerName, csr.CheckSignerName},
		"under ten minutes":  {&good, csr.SignerClientTPM, 599, refusal.CheckConfig, refusal.CheckConfig},
		"negative":           {&good, csr.SignerClientTPM, -1, refusal.CheckConfig, refusal.CheckConfig},
		"a foreign request":  {&csr.Bundle{Request: []byte{0x30, 8, 0x30, 0, 0x30, 0, 3, 2, 0, 1}}, csr.SignerClientTPM, 600, csr.CheckRequestDER, csr.CheckSignerName},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.bundle.Spec(c.signer, c.expiration)
			if (err == nil) != (c.spec == "") || err != nil && !errors.Is(err, c.spec) {
				t.Errorf("Spec: got %v, want %q", err, c.spec)
			}
			_, err = c.bundle.HelloSpec(c.signer, c.expiration)
			if (err == nil) != (c.hello == "") || err != nil && !errors.Is(err, c.hello) {
				t.Errorf("HelloSpec: got %v, want %q", err, c.hello)
			}
		})
	}
}
