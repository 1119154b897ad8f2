// Package extsignertest tests an external signer of service-account tokens (k8s.io/externaljwt v1, KEP-740)
// over its gRPC interface, in whichever language it is written: the tokens that it signs, the requests that it
// refuses, and the keys that it publishes.
//
//	func TestMySigner(t *testing.T) {
//		extsignertest.Run(t, "https://issuer.example", func() (*grpc.ClientConn, error) {
//			return grpc.NewClient("unix:///run/my-signer/socket", grpc.WithTransportCredentials(insecure.NewCredentials()))
//		})
//	}
//
// kube-apiserver looks at the header of an answer, verifies no signature, and never learns what else the
// signer signs: every process that reaches the socket can send claims of any kind. The checks here are made by
// kube-apiserver 1.36 and 1.37 (pkg/serviceaccount/externaljwt/plugin in k8s.io/kubernetes), or by
// extsigner.Service, which judges each answer.
package extsignertest
