package externalsigner

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/claims/extsigner"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// grpcService serves an extsigner.Service as gRPC.
type grpcService struct {
	externaljwtv1.UnimplementedExternalJWTSignerServer
	service *extsigner.Service
}

func (g grpcService) Sign(ctx context.Context, r *externaljwtv1.SignJWTRequest) (*externaljwtv1.SignJWTResponse, error) {
	signed, err := g.service.Sign(ctx, r.Claims)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &externaljwtv1.SignJWTResponse{Header: signed.Header, Signature: signed.Signature}, nil
}

func (g grpcService) FetchKeys(ctx context.Context, _ *externaljwtv1.FetchKeysRequest) (*externaljwtv1.FetchKeysResponse, error) {
	keys, err := g.service.FetchKeys(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	answer := &externaljwtv1.FetchKeysResponse{DataTimestamp: timestamppb.New(keys.DataTimestamp), RefreshHintSeconds: keys.RefreshHintSeconds}
	for _, k := range keys.Keys {
		answer.Keys = append(answer.Keys, &externaljwtv1.Key{KeyId: k.KeyID, Key: k.Key, ExcludeFromOidcDiscovery: k.ExcludeFromOIDCDiscovery})
	}
	return answer, nil
}

func (g grpcService) Metadata(ctx context.Context, _ *externaljwtv1.MetadataRequest) (*externaljwtv1.MetadataResponse, error) {
	metadata, err := g.service.Metadata(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &externaljwtv1.MetadataResponse{MaxTokenExpirationSeconds: metadata.MaxTokenExpirationSeconds}, nil
}

// serve serves a signer of the cluster's issuer at a socket, whose path it returns, until the test ends.
func serve(t *testing.T, signer *jws.RotatingSigner, hint time.Duration) (socket string) {
	t.Helper()
	service, err := extsigner.NewService(extsigner.ServiceConfig{Issuer: controlplane.Issuer, Signer: signer, Keys: signer, RefreshHint: hint})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "signer") // not below a test's folder, whose name makes paths too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	externaljwtv1.RegisterExternalJWTSignerServer(server, grpcService{service: service})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return socket
}
