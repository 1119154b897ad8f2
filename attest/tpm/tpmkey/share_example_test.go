package tpmkey_test

import (
	"context"
	"fmt"
	"log"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// An Attester, a TLS key and the program's own commands use one TPM.
func ExampleShare() {
	device, err := tpmsim.Open(tpmsim.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()
	chip := tpmkey.Share(device)

	prover, err := tpmkind.NewProver(chip, tpmkind.GCERSA(), tpmkind.ProverOptions{})
	if err != nil {
		log.Fatal(err)
	}
	attester, err := attest.NewAttester(prover)
	if err != nil {
		log.Fatal(err)
	}
	defer attester.Close()
	key, err := tpmkey.Create(context.Background(), chip, tpmkey.RSA2048, tpmkey.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer key.Close()
	random, err := tpm2.GetRandom{BytesRequested: 16}.Execute(chip)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(random.RandomBytes.Buffer))
	// Output: 16
}
