// Documents of clouds beside other verifiers. It is a module of its own, as those need much.
module github.com/nodeattest/nodeattest/test/clouds

go 1.26.0

require (
	github.com/nodeattest/nodeattest v0.0.0
	github.com/nodeattest/nodeattest/cloud v0.0.0
	google.golang.org/api v0.305.0
)

require (
	github.com/google/go-tpm v0.9.8 // indirect
	github.com/x448/float16 v0.8.4 // indirect
)

require (
	cloud.google.com/go/auth v0.24.1-0.20261001053825-dbc26066f70a // indirect
	cloud.google.com/go/auth/oauth2adapt v0.3.0 // indirect
	cloud.google.com/go/compute/metadata v0.10.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/felixge/httpsnoop v1.1.0 // indirect
	github.com/fxamacker/cbor/v2 v2.9.6
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/google/s2a-go v0.1.11 // indirect
	github.com/googleapis/enterprise-certificate-proxy v0.3.23 // indirect
	github.com/googleapis/gax-go/v2 v2.26.2 // indirect
	github.com/nodeattest/nodeattest/vectors v0.0.0
	github.com/smallstep/pkcs7 v0.2.3
	github.com/veraison/go-cose v1.3.0
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp v0.69.0 // indirect
	go.opentelemetry.io/otel v1.45.0 // indirect
	go.opentelemetry.io/otel/metric v1.45.0 // indirect
	go.opentelemetry.io/otel/trace v1.45.0 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/oauth2 v0.37.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261005182115-fad411399dd8 // indirect
	google.golang.org/grpc v1.84.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace (
	github.com/nodeattest/nodeattest => ../..
	github.com/nodeattest/nodeattest/cloud => ../../cloud
	github.com/nodeattest/nodeattest/vectors => ../../vectors
)
