// For machines whose attestation keys were made by go-attestation. It is a module of its own, so
// that no user of the core gets go-attestation.
module github.com/nodeattest/nodeattest/attest/tpm/goattestation

go 1.26.0

require (
	github.com/google/go-attestation v0.6.4
	github.com/google/go-tpm v0.9.8
	github.com/nodeattest/nodeattest v0.0.0
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/google/go-tpm-tools v0.4.11 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/nodeattest/nodeattest => ../../..
