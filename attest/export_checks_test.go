package attest

import "github.com/nodeattest/nodeattest/internal/der"

// Names for the tests of package attest_test.
const (
	CheckAnswerEarly   = checkAnswerEarly
	CheckBindingWindow = checkBindingWindow
	CheckEncoding      = der.CheckEncoding
)
