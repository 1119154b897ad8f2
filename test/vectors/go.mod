// The test vectors' generator and their replay by the SDK. Nothing imports this module.
module github.com/nodeattest/nodeattest/test/vectors

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/google/go-tpm v0.9.8
	github.com/nodeattest/nodeattest v0.0.0
	github.com/nodeattest/nodeattest/vectors v0.0.0
	golang.org/x/crypto v0.58.0
)

require (
	github.com/google/go-tpm-tools v0.4.11 // indirect
	go.etcd.io/bbolt v1.5.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace (
	github.com/nodeattest/nodeattest => ../..
	github.com/nodeattest/nodeattest/vectors => ../../vectors
)
