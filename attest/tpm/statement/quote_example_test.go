package statement_test

import (
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
)

func ExampleNewPCRSelection() {
	s, err := statement.NewPCRSelection(tpm2.TPMAlgSHA256, 0, 4, 7)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%x %v\n", s.Select, s.PCRs())

	_, err = statement.NewPCRSelection(tpm2.TPMAlgSHA256, 4, 4)
	fmt.Println(err)
	// Output:
	// 910000 [0 4 7]
	// pcr-duplicate: got PCR 4 twice, want once
}

func ExampleMarshalQuote() {
	e := &statement.QuoteEvidence{
		Attest:    []byte("a TPMS_ATTEST"),
		Signature: []byte("a TPMT_SIGNATURE"),
		PCRs:      []statement.PCR{{Bank: tpm2.TPMAlgSHA256, Index: 7, Value: make([]byte, 32)}},
	}
	der, err := statement.MarshalQuote(e)
	if err != nil {
		panic(err)
	}
	again, err := statement.ParseQuote(der)
	if err != nil {
		panic(err)
	}
	fmt.Println(len(der), again.PCRs[0])
	// Output:
	// 79 SHA256:7 0000000000000000000000000000000000000000000000000000000000000000
}

// A verified quote is asked for values; a PCR that it does not cover is an error.
func ExampleQuoted_Value() {
	var q statement.Quoted // of VerifyQuote, or of a Result
	_, err := q.Value(tpm2.TPMAlgSHA256, 7)
	fmt.Println(errors.Is(err, statement.CheckPCRNotQuoted))
	_, err = q.Value(tpm2.TPMAlgSHA256, 16)
	fmt.Println(err)
	// Output:
	// true
	// pcr-resettable: got SHA256:16, want a PCR that only a reset of the machine resets
}

// VerifyQuote names missing options before it looks at any evidence.
func ExampleVerifyQuote() {
	_, err := statement.VerifyQuote(&statement.QuoteEvidence{}, statement.QuoteOptions{})
	fmt.Println(err)
	// Output:
	// quote-options: got no attestation key, want AKFromCredential or AKFromIssuer
}
