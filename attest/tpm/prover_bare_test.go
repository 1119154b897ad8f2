package tpm

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm/internal/tpmop"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// helloOf is the hello of a prover, with the certificates that it sends.
func helloOf(t *testing.T, tpm transport.TPM, o ProverOptions) (certificates [][]byte, m *message.Hello, err error) {
	t.Helper()
	p, err := NewProver(tpm, AKSource{Template: AKTemplateECDSAP256()}, o)
	testkit.NoError(t, err)
	err = p.Use(t.Context(), attest.StageHello, func(s attest.Session) error {
		e, err := s.Hello(context.Background(), attest.Head{Road: attest.RoadEK, ClusterID: "cluster", TargetSigner: "example.com/signer"})
		if err == nil {
			certificates = e.Certificates
			m, err = message.ParseHello(e.Statements[0].DER)
		}
		return err
	})
	return certificates, m, err
}

// TestEKWithoutCertificate: virtual TPMs have no certificate of their EK. Where its NV index does not
// exist, and for no other reason, the node sends the key alone, for a control plane that lists it.
func TestEKWithoutCertificate(t *testing.T) {
	for name, device := range map[string]*tpmsim.TPM{"simulator": tpmlab.NewTPM(t), "swtpm": tpmsim.Swtpm(t, tpmlab.Bare())} {
		t.Run(name, func(t *testing.T) {
			ek := EKP256()
			ek.CertificateIndex = 0x01c00555
			all := map[string]ProverOptions{"alone": {EK: &ek}, "intermediates": {EK: &ek, Intermediates: [][]byte{{0x30, 0}}}, "chain": {EK: &ek, EKChainFromNV: true}}
			for name, o := range all {
				certificates, m, err := helloOf(t, device, o)
				if err != nil || len(certificates) != 0 || len(m.EKPublic) == 0 {
					t.Errorf("%s: %d certificates, %+v, %v", name, len(certificates), m, err)
				}
			}
			tpmlab.DefineNV(t, device, ek.CertificateIndex, tpm2.TPMANV{OwnerWrite: true, OwnerRead: true, NoDA: true, NT: tpm2.TPMNTOrdinary}, 8, nil)
			for name, o := range all {
				if _, _, err := helloOf(t, device, o); !errors.Is(err, tpmop.ErrNVCertificateIncomplete) || !strings.Contains(err.Error(), "certificate of the EK") {
					t.Errorf("%s: an index that was not written: got %v", name, err)
				}
			}
			tpmlab.CheckNothingLoaded(t, device)
		})
	}
}

// TestEKCertificateThatCannotBeRead: a certificate that exists is never left out.
func TestEKCertificateThatCannotBeRead(t *testing.T) {
	device := tpmlab.NewTPM(t)
	ek := EKP256()
	ek.CertificateIndex = 0x01c00555
	o := ProverOptions{EK: &ek}
	tpmlab.WriteNV(t, device, ek.CertificateIndex, []byte("no certificate"))
	if _, _, err := helloOf(t, device, o); err == nil {
		t.Error("garbage: a hello")
	}
	faulty := tpmsim.Faulty(device, nil)
	_, _, _ = helloOf(t, faulty, o)
	n := 0
	for at, code := range faulty.Commands() {
		if code != tpm2.TPMCCNVReadPublic && code != tpm2.TPMCCNVRead && code != tpm2.TPMCCGetCapability {
			continue
		}
		for _, rc := range []tpm2.TPMRC{tpm2.TPMRCFailure, tpm2.TPMRCLockout, tpm2.TPMRCNVAuthorization, tpm2.TPMRCNVLocked, tpm2.TPMRCNVUninitialized, tpm2.TPMRCNVRange, tpm2.TPMRCValue} {
			n++
			faulty := tpmsim.Faulty(device, tpmsim.AnswerAt(at+1, rc))
			if certificates, _, err := helloOf(t, faulty, o); err == nil {
				t.Errorf("%v to command %d, 0x%x: a hello with %d certificates", rc, at+1, code, len(certificates))
			}
		}
		faulty := tpmsim.Faulty(device, tpmsim.DropAt(at+1))
		if _, _, err := helloOf(t, faulty, o); err == nil {
			t.Errorf("no answer to command %d, 0x%x: a hello", at+1, code)
		}
	}
	tpmlab.CheckNothingLoaded(t, device)
	if n == 0 {
		t.Error("nothing was read")
	}
}
