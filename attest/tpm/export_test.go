package tpm

import "github.com/nodeattest/nodeattest/internal/testkit/tpmlab"

// ForgetSignatures empties the kind's memory of verified signatures.
func (k *Kind) ForgetSignatures(intermediates bool) { tpmlab.ForgetSignatures(k, intermediates) }

// For the tests from outside.
var ErrIAK = errIAK
