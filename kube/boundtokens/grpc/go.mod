// For services that take pods' tokens over gRPC. It is a module of its own, so that no user of module
// kube gets gRPC.
module github.com/nodeattest/nodeattest/kube/boundtokens/grpc

go 1.26.0

require (
	github.com/nodeattest/nodeattest v0.0.0
	google.golang.org/grpc v1.84.0
)

require (
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260706201446-f0a921348800 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)

replace github.com/nodeattest/nodeattest => ../../..
