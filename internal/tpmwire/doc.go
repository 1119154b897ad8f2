// Package tpmwire has the vocabulary of TPM structures: algorithms and their names, hashes,
// curves, sizes, and TPM2B fields. [ReadTPM2B] and [AddTPM2B] read and write such a field.
package tpmwire
