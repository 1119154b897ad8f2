package tpm_test

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
)

func ExampleNewPCRSelection() {
	s, err := tpm.NewPCRSelection(tpm2.TPMAlgSHA256, 0, 4, 7)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%x %v\n", s.Select, s.PCRs())

	_, err = tpm.NewPCRSelection(tpm2.TPMAlgSHA256, 4, 4)
	fmt.Println(err)
	// Output:
	// 910000 [0 4 7]
	// pcr-duplicate: got PCR 4 twice, want once
}

func ExampleMarshalQuote() {
	e := &tpm.QuoteEvidence{
		Attest:    []byte("a TPMS_ATTEST"),
		Signature: []byte("a TPMT_SIGNATURE"),
		PCRs:      []tpm.PCR{{Bank: tpm2.TPMAlgSHA256, Index: 7, Value: make([]byte, 32)}},
	}
	der, err := tpm.MarshalQuote(e)
	if err != nil {
		panic(err)
	}
	again, err := tpm.ParseQuote(der)
	if err != nil {
		panic(err)
	}
	fmt.Println(len(der), again.PCRs[0])
	// Output:
	// 79 SHA256:7 0000000000000000000000000000000000000000000000000000000000000000
}

// A verified quote is asked for values; what it does not cover is an error.
func ExampleQuoted_Value() {
	var q tpm.Quoted // of VerifyQuote, or of a Result
	_, err := q.Value(tpm2.TPMAlgSHA256, 7)
	fmt.Println(errors.Is(err, tpm.CheckPCRNotQuoted))
	_, err = q.Value(tpm2.TPMAlgSHA256, 16)
	fmt.Println(err)
	// Output:
	// true
	// pcr-resettable: got SHA256:16, want a PCR that only a reset of the machine resets
}

// VerifyQuote says what is missing before it looks at any evidence.
func ExampleVerifyQuote() {
	_, err := tpm.VerifyQuote(&tpm.QuoteEvidence{}, &tpm.QuoteOptions{})
	fmt.Println(err)
	// Output:
	// quote-options: got no attestation key, want AKFromCredential or AKFromIssuer
}

// Two versions of a machine image are known to be good.
func ExampleNewPCRPolicy() {
	value := func(version string) []byte {
		sum := sha256.Sum256([]byte(version)) // from the build of the image
		return sum[:]
	}
	policy, err := tpm.NewPCRPolicy(
		[]tpm.PCR{{Bank: tpm2.TPMAlgSHA256, Index: 4, Value: value("1.0")}},
		[]tpm.PCR{{Bank: tpm2.TPMAlgSHA256, Index: 4, Value: value("1.1")}},
	)
	if err != nil {
		panic(err)
	}
	_ = attest.VerifierConfig{ /* ..., QuotePolicy: policy */ }

	_, err = tpm.NewPCRPolicy([]tpm.PCR{{Bank: tpm2.TPMAlgSHA256, Index: 23, Value: value("1.0")}})
	fmt.Println(policy != nil, err)
	// Output:
	// true attest: PCR policy: set 0: pcr-resettable: got SHA256:23, want a PCR that only a reset of the machine resets
}
