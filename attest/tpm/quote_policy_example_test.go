package tpm_test

import (
	"crypto/sha256"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
)

// Two versions of a machine image are known to be good.
func ExampleNewPCRPolicy() {
	value := func(version string) []byte {
		sum := sha256.Sum256([]byte(version)) // from the build of the image
		return sum[:]
	}
	policy, err := tpm.NewPCRPolicy(
		[]statement.PCR{{Bank: tpm2.TPMAlgSHA256, Index: 4, Value: value("1.0")}},
		[]statement.PCR{{Bank: tpm2.TPMAlgSHA256, Index: 4, Value: value("1.1")}},
	)
	if err != nil {
		panic(err)
	}
	_ = attest.VerifierConfig{ /* ..., QuotePolicy: policy */ }

	_, err = tpm.NewPCRPolicy([]statement.PCR{{Bank: tpm2.TPMAlgSHA256, Index: 23, Value: value("1.0")}})
	fmt.Println(policy != nil, err)
	// Output:
	// true tpm: PCR policy: set 0: pcr-resettable: got SHA256:23, want a PCR that only a reset of the machine resets
}
