// For control planes whose service-account tokens are signed outside kube-apiserver. It is a module of
// its own, so that no user of the core or of module kube gets gRPC.
module github.com/nodeattest/nodeattest/externalsigner

go 1.26.0

require (
	github.com/google/go-tpm v0.9.8
	github.com/nodeattest/nodeattest v0.0.0
	go.yaml.in/yaml/v2 v2.4.3
	google.golang.org/grpc v1.84.0
	google.golang.org/protobuf v1.36.12
	k8s.io/externaljwt v0.36.3
	sigs.k8s.io/json v0.0.0-20250730193827-2d320260d730
	sigs.k8s.io/yaml v1.6.0
)

require (
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260706201446-f0a921348800 // indirect
)

replace github.com/nodeattest/nodeattest => ../
