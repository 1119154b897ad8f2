package goattestation

import "github.com/nodeattest/nodeattest/refusal"

const (
	// checkBlob: a blob is not one of a key that go-attestation can load by it.
	checkBlob refusal.Check = "go-attestation-blob"
	// checkValue: a value of one library has no form in the other.
	checkValue refusal.Check = "go-attestation-value"
)
