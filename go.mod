module github.com/nodeattest/nodeattest

go 1.26.0

require (
	github.com/google/go-attestation v0.6.4 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/google/go-tpm v0.9.8 // indirect
	github.com/google/go-tpm-tools v0.4.11 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/vuln v1.9.0 // indirect
	honnef.co/go/tools v0.8.2 // indirect
)
