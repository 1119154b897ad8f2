package tpm

import "github.com/nodeattest/nodeattest/internal/tpmop"

// CheckEKType: the EK is of a kind for which no credential is made. RSA-2048, RSA-3072 (with
// the exponent 65537), P-256 and P-384 are supported.
const CheckEKType = tpmop.CheckEKType

// ErrHierarchyPassword says that a hierarchy of the TPM refused the given password, or the
// empty one if none was given. The error that wraps it names the hierarchy; the password is
// never in an error.
var ErrHierarchyPassword = tpmop.ErrHierarchyPassword
