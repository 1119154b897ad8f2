module github.com/nodeattest/nodeattest

go 1.26.0

require (
	github.com/aws/smithy-go/aws-http-auth v1.2.2
	github.com/google/go-cmp v0.7.0
	github.com/google/go-tpm v0.9.8
	github.com/google/go-tpm-tools v0.4.11
	go.yaml.in/yaml/v3 v3.0.6
	golang.org/x/crypto v0.58.0
)

require (
	golang.org/x/sync v0.24.0
	golang.org/x/sys v0.49.0
)
