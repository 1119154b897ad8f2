package tpm_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// An answer with a quote, where the nth command fails, for every n and on both roads: an
// error, and nothing stays loaded.
func TestAnswerWithQuoteFlushesWhateverFails(t *testing.T) {
	ctx := context.Background()
	device := tpmsim.New(t, tpmsim.Options{})
	for name, o := range map[string]attesttest.NodeOptions{
		"road AK": {},
		"road EK": {Road: attest.RoadEK, AK: tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}},
	} {
		o.TPM, o.Quote = device, tpmkind.DefaultPCRs()
		node := attesttest.NewNode(t, o)
		plane := attesttest.NewControlPlane(t, node)
		challenge, err := plane.Challenge(ctx, node)
		testkit.NoError(t, err)
		faulty := tpmsim.Faulty(device, nil)
		options := tpmkind.ProverOptions{Quote: o.Quote, Certificates: [][]byte{device.AKCertificate(tpmsim.RSA2048).Raw}}
		if o.Road == attest.RoadEK {
			ek := tpmkind.EKRSA2048()
			options.EK, options.Certificates = &ek, [][]byte{device.EKCertificate(tpmsim.RSA2048).Raw}
		}
		source := o.AK
		if o.Road == attest.RoadAK {
			source = tpmkind.GCERSA()
		}
		attester := attesterOf(t, faulty, source, options)
		if _, err := attester.Answer(ctx, challenge, node.Certified, node.Subject); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		total := faulty.Count()
		for n := 1; n <= total; n++ {
			again := tpmsim.Faulty(device, tpmsim.FailAt(n, nil))
			attester = attesterOf(t, again, source, options)
			_, err := attester.Answer(ctx, challenge, node.Certified, node.Subject)
			// Without a saved context the key is loaded again.
			if !errors.Is(err, tpmsim.ErrInjected) && again.Commands()[n-1] != tpm2.TPMCCContextSave {
				t.Errorf("%s, command %d of %d (0x%x): %v", name, n, total, again.Commands()[n-1], err)
			}
			again.SetFaults(nil)
			if err := attester.Close(); err != nil {
				t.Errorf("%s, command %d: close: %v", name, n, err)
			}
			noHandles(t, device)
		}
		if total < 6 {
			t.Errorf("%s: %d commands", name, total)
		}
	}
}
