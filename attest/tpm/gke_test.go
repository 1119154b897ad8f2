package tpm

import (
	"crypto/x509"
	"testing"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestGKEOnSimulator: the evidence is a TPM's own, the certificate that in its NV.
func TestGKEOnSimulator(t *testing.T) {
	instance := tpmsim.DefaultInstance()
	instance.InstanceName = gkeNode
	tpm := tpmsim.New(t, tpmsim.Options{AKs: []tpmsim.AK{{Certificate: &tpmsim.CertificateOptions{Style: tpmsim.StyleGoogle, Instance: instance}}}})
	for name, f := range map[string]*gkeFixture{"padded": newGKEFixture(t, true), "unpadded": newGKEFixture(t, true)} {
		t.Run(name, func(t *testing.T) {
			if name == "unpadded" {
				f.key = unpaddedKey(t)
				var err error
				if f.request, err = csr.Create(csr.PurposeClient, f.key, gkeNode, csr.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			attest, signature := certifyLikeGKE(t, tpm, f.key)
			f.certificate = tpm.AKCertificate(tpmsim.RSA2048).Raw
			f.config.Issuers = []tpmcert.Issuer{{Roots: []*x509.Certificate{tpm.CA().Root()}, Intermediates: tpm.CA().Intermediates(), Profile: tpmcert.ProfileGoogle()}}
			f.encode(attest, signature)
			if _, err := f.provider(t).VerifyClientAttestationData(t.Context(), f.object.Parsed()); err != nil {
				t.Error(err)
			}
			signature[7] ^= 1
			f.encode(attest, signature)
			_, err := f.provider(t).VerifyClientAttestationData(t.Context(), f.object.Parsed())
			expectCheck(t, err, statement.CheckSignature)
		})
	}
}
