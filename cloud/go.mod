module github.com/nodeattest/nodeattest/cloud

go 1.26.0

replace github.com/nodeattest/nodeattest => ../

require (
	github.com/aws/smithy-go/aws-http-auth v1.2.2
	github.com/nodeattest/nodeattest v0.0.0
	golang.org/x/crypto v0.58.0
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/google/go-tpm v0.9.8 // indirect
	github.com/google/go-tpm-tools v0.4.11 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
