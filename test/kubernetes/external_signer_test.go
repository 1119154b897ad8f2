package kubernetes

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/serviceaccount/externaljwt/plugin"

	"github.com/nodeattest/nodeattest/claims/extsigner"
	"github.com/nodeattest/nodeattest/jws"
)

// signerServer serves an external signer to kube-apiserver.
type signerServer struct {
	externaljwtv1.UnimplementedExternalJWTSignerServer
	service *extsigner.Service
}

func (s signerServer) Sign(ctx context.Context, r *externaljwtv1.SignJWTRequest) (*externaljwtv1.SignJWTResponse, error) {
	signature, err := s.service.Sign(ctx, r.Claims)
	if err != nil {
		return nil, err
	}
	return &externaljwtv1.SignJWTResponse{Header: signature.Header, Signature: signature.Signature}, nil
}

func (s signerServer) FetchKeys(ctx context.Context, _ *externaljwtv1.FetchKeysRequest) (*externaljwtv1.FetchKeysResponse, error) {
	keys, err := s.service.FetchKeys(ctx)
	if err != nil {
		return nil, err
	}
	answer := &externaljwtv1.FetchKeysResponse{DataTimestamp: timestamppb.New(keys.DataTimestamp), RefreshHintSeconds: keys.RefreshHintSeconds}
	for _, key := range keys.Keys {
		answer.Keys = append(answer.Keys, &externaljwtv1.Key{KeyId: key.KeyID, Key: key.Key, ExcludeFromOidcDiscovery: key.ExcludeFromOIDCDiscovery})
	}
	return answer, nil
}

func (s signerServer) Metadata(ctx context.Context, _ *externaljwtv1.MetadataRequest) (*externaljwtv1.MetadataResponse, error) {
	metadata, err := s.service.Metadata(ctx)
	if err != nil {
		return nil, err
	}
	return &externaljwtv1.MetadataResponse{MaxTokenExpirationSeconds: metadata.MaxTokenExpirationSeconds}, nil
}

// serveSigner serves a service at a socket until the test ends.
func serveSigner(t *testing.T, service *extsigner.Service) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "signer.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	externaljwtv1.RegisterExternalJWTSignerServer(server, signerServer{service: service})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return socket
}

// TestExternalSigner: kube-apiserver's own client of external signers takes the service's keys and its
// signatures over gRPC, and gets none for another issuer or for claims that live too long.
func TestExternalSigner(t *testing.T) {
	const issuer = "https://issuer.example"
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	first, err := jws.NewSigner(private, jws.SignerOptions{KeyID: "key-1", Type: jws.TypeJWT})
	if err != nil {
		t.Fatal(err)
	}
	rotating, err := jws.NewRotatingSigner(first, jws.RotationConfig{Publish: time.Hour, Retain: 25 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	service, err := extsigner.NewService(extsigner.ServiceConfig{
		Issuer: issuer, Signer: rotating, Keys: rotating, RefreshHint: time.Hour, MaxLifetime: 24 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	socket := serveSigner(t, service)
	account := core.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "sa-uid"}}
	for _, tt := range []struct {
		name, issuer, want string
		seconds            int64
	}{
		{"good", issuer, "", 86400},
		{"another issuer", issuer + "/", "signer-claims", 3600},
		{"a second too long", issuer, "signer-claims", 86401},
	} {
		t.Run(tt.name, func(t *testing.T) {
			generator, _, err := plugin.New(t.Context(), tt.issuer, socket, 10*time.Second, false)
			if err != nil {
				t.Fatal(err)
			}
			claims, private, err := theirClaims(account, theirBound{}, tt.seconds, 0, []string{"https://identity.example"})
			if err != nil {
				t.Fatal(err)
			}
			token, err := generator.GenerateToken(t.Context(), claims, private)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("got %v, want %s", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			signed, err := jws.VerifySignature(t.Context(), token, rotating)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s", signed.Payload)
		})
	}
}
