package attest

// Names for the tests of package attest_test.
const (
	CheckAnswerEarly   = checkAnswerEarly
	CheckBindingWindow = checkBindingWindow
	CheckEncoding      = checkEncoding
)
