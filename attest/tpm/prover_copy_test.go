package tpm

import (
	"bytes"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A prover keeps its own options: later changes to the caller's change neither the quote nor the
// request.
func TestProverCopiesItsOptions(t *testing.T) {
	password := []byte("endorsement")
	o := ProverOptions{
		Certificates: [][]byte{{0x30, 0}}, EndorsementPassword: hidden(password),
		Quote: []statement.PCRSelection{{Hash: tpm2.TPMAlgSHA256, Select: []byte{0xff, 0, 0}}},
	}
	tpm := tpmsim.New(t, tpmsim.Options{})
	a, err := NewProver(tpm, AKSource{Template: AKTemplateECDSAP256()}, o)
	testkit.NoError(t, err)
	o.Quote[0].Select[0] = 1
	o.Certificates[0][0] = 0
	password[0] = 'x'
	if got := a.options.Quote[0].Select; !bytes.Equal(got, []byte{0xff, 0, 0}) {
		t.Errorf("it quotes %x", got)
	}
	o.Quote[0] = statement.PCRSelection{Hash: tpm2.TPMAlgSHA1}
	if got := a.options.Quote[0].Hash; got != tpm2.TPMAlgSHA256 {
		t.Errorf("it quotes bank %v", got)
	}
	if a.options.Certificates[0][0] != 0x30 || string(a.options.EndorsementPassword.Reveal()) != "endorsement" {
		t.Error("it shares memory with its options")
	}
	o = ProverOptions{EK: new(EKP256()), Intermediates: [][]byte{{0x30, 0}}}
	if a, err = NewProver(tpm, AKSource{Template: AKTemplateECDSAP256()}, o); err != nil {
		t.Fatal(err)
	}
	o.Intermediates[0][0], o.EK.CertificateIndex = 0, 1
	if a.options.Intermediates[0][0] != 0x30 || a.options.EK.CertificateIndex == 1 {
		t.Error("it shares memory with its options")
	}
}
