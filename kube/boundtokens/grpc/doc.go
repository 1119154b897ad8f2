// Package grpctokens lets a gRPC server take a workload's token only from the very machine that the
// token was issued for, as [claims.Handler] does for HTTP: the caller shows the node's client certificate
// in mutual TLS, and the token in the metadata "authorization", as "Bearer" and the token (RFC 6750,
// section 2.1).
//
//	handler, err := claims.NewHandler(validator, nil, options)
//	…
//	server := grpc.NewServer(append(grpctokens.ServerOptions(handler), grpc.Creds(credentials.NewTLS(config)))...)
//
// The [tls.Config] is that of an HTTP server ([claims.NewHandler]): ClientCAs are the CAs that sign for
// attested nodes, and there are no session tickets. The service finds the caller with
// [claims.WorkloadFrom] in its context.
//
// A call that is refused never reaches the service. Its status has one of three codes, and the name of
// the check that failed as its message, "refused: node-name":
//
//   - Unavailable, "refused: retry": the API server or the registry of machines did not answer;
//   - PermissionDenied: without a certificate of an attested node;
//   - Unauthenticated: without a token that was issued for a workload on that node.
//
// The reason with both values is what [claims.HandlerOptions] Observe gets.
//
// The service does not see the metadata "authorization", so that it cannot pass the token on. A
// stats.Handler and a tap.ServerInHandle of the server do: they come before interceptors.
package grpctokens
