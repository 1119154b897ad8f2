package extsignertest

import (
	"context"
	"crypto"
	"encoding/base64"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/claims/extsigner"
	"github.com/nodeattest/nodeattest/externalsigner"
	"github.com/nodeattest/nodeattest/jws"
)

const testIssuer = "https://issuer.example"

// A signerUnderTest is the real service at a socket, with its keys.
type signerUnderTest struct {
	socket string
	// signs has the key that signs, retired the one that only verifies.
	signs, retired *jws.CryptoSigner
}

// newSigner serves the real service with keys for an algorithm.
func newSigner(t testing.TB, key, retired crypto.Signer) *signerUnderTest {
	t.Helper()
	s := &signerUnderTest{signs: sign(t, key, "signs"), retired: sign(t, retired, "retired")}
	keys, err := jws.NewRotatingSigner(s.signs, jws.RotationConfig{Publish: time.Minute, Retain: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	service, err := extsigner.NewService(extsigner.ServiceConfig{
		Issuer: testIssuer, Signer: keys, Keys: keys, VerifyOnly: []*jws.Key{s.retired.Key()}, RefreshHint: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.serve(t, service)
	return s
}

// serve serves a service over gRPC until the test ends.
func (s *signerUnderTest) serve(t testing.TB, service *extsigner.Service) {
	t.Helper()
	dir, err := os.MkdirTemp("", "signer") // a test's own folder makes paths too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s.socket = filepath.Join(dir, "socket")
	server, err := externalsigner.NewServer(externalsigner.ServerConfig{
		Service: service, AllowedUIDs: []uint32{uint32(os.Getuid())}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := externalsigner.Listen(s.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func sign(t testing.TB, key crypto.Signer, id string) *jws.CryptoSigner {
	t.Helper()
	s, err := jws.NewSigner(key, jws.SignerOptions{KeyID: id, Type: jws.TypeJWT})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *signerUnderTest) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+s.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func (s *signerUnderTest) client(t testing.TB) externaljwt.ExternalJWTSignerClient {
	t.Helper()
	connection, err := s.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return externaljwt.NewExternalJWTSignerClient(connection)
}

// weak is a signer with faults: changes of the good one's answers. A field that is nil changes nothing.
type weak struct {
	externaljwt.ExternalJWTSignerClient
	sign     func(ctx context.Context, claims string) (*externaljwt.SignJWTResponse, error)
	signed   func(answer *externaljwt.SignJWTResponse)
	keys     func(answer *externaljwt.FetchKeysResponse)
	metadata func(answer *externaljwt.MetadataResponse)
}

func (w weak) Sign(ctx context.Context, r *externaljwt.SignJWTRequest, _ ...grpc.CallOption) (*externaljwt.SignJWTResponse, error) {
	if w.sign != nil {
		return w.sign(ctx, r.Claims)
	}
	answer, err := w.ExternalJWTSignerClient.Sign(ctx, r)
	if err == nil && w.signed != nil {
		w.signed(answer)
	}
	return answer, err
}

func (w weak) FetchKeys(ctx context.Context, r *externaljwt.FetchKeysRequest, _ ...grpc.CallOption) (
	*externaljwt.FetchKeysResponse, error,
) {
	answer, err := w.ExternalJWTSignerClient.FetchKeys(ctx, r)
	if err == nil && w.keys != nil {
		w.keys(answer)
	}
	return answer, err
}

func (w weak) Metadata(ctx context.Context, r *externaljwt.MetadataRequest, _ ...grpc.CallOption) (*externaljwt.MetadataResponse, error) {
	answer, err := w.ExternalJWTSignerClient.Metadata(ctx, r)
	if err == nil && w.metadata != nil {
		w.metadata(answer)
	}
	return answer, err
}

// blind signs whatever it is sent.
func blind(signer jws.Signer) func(context.Context, string) (*externaljwt.SignJWTResponse, error) {
	return func(ctx context.Context, claims string) (*externaljwt.SignJWTResponse, error) {
		payload, err := base64.RawURLEncoding.DecodeString(claims)
		if err != nil {
			payload = []byte(claims) // it signs the text that it was sent
		}
		signature, err := signer.Sign(ctx, payload)
		if err != nil {
			return nil, err
		}
		return &externaljwt.SignJWTResponse{Header: signature.Header, Signature: signature.Value}, nil
	}
}
