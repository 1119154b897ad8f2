package gce

// For the tests from outside.
const (
	Issuer        = issuer
	MaxAnswerSize = maxAnswerSize
	MaxTokenSize  = maxTokenSize
)
