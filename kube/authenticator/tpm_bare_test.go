package authenticator

import (
	"regexp"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestEKWithoutCertificate: the denial of an EK that has no certificate says how the control plane
// has to list, and which EKs of the TPM have one. That of an EK with a certificate says nothing of it.
func TestEKWithoutCertificate(t *testing.T) {
	for name, c := range map[string]struct {
		eks    []tpmsim.Algorithm // with a certificate
		ek     tpm.EKOrigin
		others string
		bare   bool
	}{
		"none has one":    {[]tpmsim.Algorithm{}, tpm.EKRSA2048(), "none", true},
		"another has one": {[]tpmsim.Algorithm{tpmsim.RSA2048}, tpm.EKP256(), "rsa-2048", true},
		"it has one":      {[]tpmsim.Algorithm{tpmsim.RSA2048}, tpm.EKRSA2048(), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			device := tpmsim.Swtpm(t, tpmsim.Options{EKs: c.eks})
			f := newFakeAPI(t)
			a, _ := tpmNode(t, f, device, func(k *TPM) { k.Options.EK, k.PersistentEK = &c.ek, 0 })
			if !c.bare {
				f.verifier = tpmVerifier(t, f, tpmsim.Swtpm(t, tpmsim.Options{}))
			}
			_, err := a.snapshot(caller{daemon: true}).runStep(t.Context(), a.slots[0])
			if !isDenied(err) {
				t.Fatalf("got %v, want %v", err, checkDenied)
			}
			ids := regexp.MustCompile("ek:sha256:[0-9a-f]{64}").FindAllString(err.Error(), -1) // the control plane's, and the node's
			if !c.bare {
				if strings.Contains(err.Error(), "tpm.allowedEKs") || !strings.Contains(err.Error(), "the EK is ek:sha256:") {
					t.Errorf("got %v", err)
				}
				return
			}
			if len(ids) != 2 || ids[0] != ids[1] {
				t.Fatalf("identities %q in %v", ids, err)
			}
			if line := "lists " + ids[0] + ". The TPM has certificates of the EKs: " + c.others; !strings.HasSuffix(err.Error(), line) || !strings.HasSuffix(a.onDisk(ClientFile).Error, line) {
				t.Errorf("got %v, noted %q, want %q", err, a.onDisk(ClientFile).Error, line)
			}
		})
	}
}
