// Package keyfiles tests TPM key files against github.com/foxboron/go-tpm-keyfiles,
// another implementation of the same format: each reads and uses the other's files.
package keyfiles
