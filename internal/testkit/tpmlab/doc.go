// Package tpmlab is the laboratory that the tests of the packages about TPMs share: keys, CAs
// and certificates, honest and otherwise, a fresh TPM and ones that lie, and the programs of
// others to compare with. It is only for tests. It imports none of the packages that it helps
// to test; what needs package statement is in package softak.
package tpmlab
