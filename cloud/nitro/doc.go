// Package nitro verifies the attestation documents of NitroTPMs, the TPMs of Amazon EC2
// instances, and is a kind of evidence for package attest that is made of them.
package nitro
