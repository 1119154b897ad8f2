package tpm

import (
	"crypto/x509"
	"testing"

	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
)

// One value makes the request and is certified, whichever kind of key it is.
func TestKeySignsItsRequest(t *testing.T) {
	tpm := tpmlab.NewTPM(t)
	for _, key := range []tpmkey.Certifiable{
		mustSoftwareKey(t, tpmlab.NewECDSA(t, p256)), mustSoftwareKey(t, tpmlab.NewRSA(t, 2048)),
		mustTPMKey(t, tpm, tpmkey.ECDSAP256), mustTPMKey(t, tpm, tpmkey.RSA2048),
	} {
		der, err := csr.Create(csr.PurposeClient, key, "worker-1", csr.CreateOptions{})
		if err != nil {
			t.Fatalf("%v: %v", key, err)
		}
		request, err := x509.ParseCertificateRequest(der)
		if err != nil || !sameTestKey(request.PublicKey, key.Public()) {
			t.Fatalf("%v: the request is for another key, %v", key, err)
		}
		if _, err := certifyWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, key, []byte{1}); err != nil {
			t.Errorf("%v: %v", key, err)
		}
	}
}
