package gce

// For the tests from outside.
const (
	Issuer       = issuer
	MaxTokenSize = maxTokenSize
)
