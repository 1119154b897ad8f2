package kube

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/nodeattest/nodeattest/claims"
	grpctokens "github.com/nodeattest/nodeattest/kube/boundtokens/grpc"
)

// grpcStatus is HTTP's status for the codes of the interceptors.
var grpcStatus = map[codes.Code]int{
	codes.OK: http.StatusOK, codes.Unavailable: http.StatusServiceUnavailable,
	codes.PermissionDenied: http.StatusForbidden, codes.Unauthenticated: http.StatusUnauthorized,
}

// grpcService answers with its caller.
type grpcService struct {
	testpb.UnimplementedTestServiceServer
}

func (grpcService) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	w, ok := claims.WorkloadFrom(ctx)
	if !ok {
		return nil, status.Error(codes.Internal, "a call without a workload passed")
	}
	return &testpb.SimpleResponse{Username: w.Result.Username() + " on " + w.Node.Name}, nil
}

// serveGRPC is a transport.
func serveGRPC(t *testing.T, h *claims.Handler, config *tls.Config) func(client *tls.Config, authorization ...string) (int, string) {
	t.Helper()
	dial := dialGRPC(t, grpcService{}, append(grpctokens.ServerOptions(h), grpc.Creds(credentials.NewTLS(config)))...)
	return func(client *tls.Config, authorization ...string) (int, string) {
		t.Helper()
		connection := dial(client)
		defer func() { _ = connection.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for _, value := range authorization {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", value)
		}
		answer, err := testpb.NewTestServiceClient(connection).UnaryCall(ctx, &testpb.SimpleRequest{})
		if err != nil {
			return grpcStatus[status.Code(err)], status.Convert(err).Message()
		}
		return http.StatusOK, answer.GetUsername()
	}
}

// dialGRPC starts a server, and returns a function that connects to it.
func dialGRPC(t *testing.T, service testpb.TestServiceServer, options ...grpc.ServerOption) func(client *tls.Config) *grpc.ClientConn {
	t.Helper()
	server := grpc.NewServer(options...)
	testpb.RegisterTestServiceServer(server, service)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return func(client *tls.Config) *grpc.ClientConn {
		t.Helper()
		connection, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(client)))
		if err != nil {
			t.Fatal(err)
		}
		return connection
	}
}
