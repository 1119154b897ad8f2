// TPM key files against those of another Go package. It forces a go-tpm that is not
// released yet, so it is a module by itself: no other test runs with that one.
module github.com/nodeattest/nodeattest/test/keyfiles

go 1.26.0

require (
	github.com/foxboron/go-tpm-keyfiles v0.0.0-20260902202739-8c9c2d1005f4
	github.com/google/go-cmp v0.7.0
	github.com/google/go-tpm v0.9.9-0.20260124013517-8f8f42cba0de
	github.com/nodeattest/nodeattest v0.0.0
)

require (
	github.com/google/go-tpm-tools v0.4.11 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/nodeattest/nodeattest => ../..
