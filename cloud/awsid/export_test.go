package awsid

// For the tests from outside.
const (
	MaxPEMSize = maxPEMSize
	MaxSize    = maxSize
)

var Fingerprints = fingerprints
