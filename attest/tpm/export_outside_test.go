package tpm_test

// For the tests from outside.
var LabStrangeSPKIs = labStrangeSPKIs

const (
	LabSHA1RSA     = labSHA1RSA
	LabECDSASHA256 = labECDSASHA256
)
