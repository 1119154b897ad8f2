// Package externalsigner serves an external signer of service-account tokens (KEP-740; GA in
// Kubernetes 1.36) to kube-apiserver: k8s.io/externaljwt v1, gRPC over a Unix socket. The decision
// which claims are signed is package claims/extsigner's; package program is the whole program.
//
// A client of the socket can have a token of every service account signed. So the socket's folder is
// the user's own, of mode 0700, and the server asks the kernel for each client's user (SO_PEERCRED):
//
//	listener, err := externalsigner.Listen("/run/external-jwt-signer/socket")
//	server, err := externalsigner.NewServer(externalsigner.ServerConfig{Service: service, Log: log})
//	err = server.Serve(ctx, listener)
package externalsigner
