package refusal

// For the tests from outside.
const (
	MaxText   = maxText
	MaxCause  = maxCause
	MaxQuoted = maxQuoted
)
