module github.com/nodeattest/nodeattest/cloud

go 1.26.0

replace github.com/nodeattest/nodeattest => ../

require (
	github.com/nodeattest/nodeattest v0.0.0
	golang.org/x/crypto v0.58.0
)

require (
	github.com/fxamacker/cbor/v2 v2.9.6
	github.com/smallstep/pkcs7 v0.2.3
	github.com/veraison/go-cose v1.3.0
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/google/go-tpm v0.9.8 // indirect
	github.com/google/go-tpm-tools v0.4.11 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
