// Package tpmop runs operations on a TPM: one at a time ([Shared]), each with a list of what
// it loaded ([Handles]), which is flushed on every path. It has what both attest/tpm and
// attest/tpm/tpmkey need: primary keys and templates, sessions that encrypt passwords and
// authorise an EK, and reading NV. Start with [Share] and [Shared.Do].
package tpmop
