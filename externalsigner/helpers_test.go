package externalsigner

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/claims/extsigner"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
)

const issuer = "https://issuer.example"

// signerFunc is a signer with a fault.
type signerFunc func(ctx context.Context, payload []byte) (*jws.Signature, error)

func (f signerFunc) Sign(ctx context.Context, payload []byte) (*jws.Signature, error) {
	return f(ctx, payload)
}

// newService makes a service that signs with an own key, or with another signer in its place.
func newService(signer jws.Signer) *extsigner.Service {
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	own := testkit.Must(jws.NewSigner(key, jws.SignerOptions{Type: jws.TypeJWT}))
	if signer == nil {
		signer = own
	}
	keys := testkit.Must(jws.NewStaticKeySet(own.Key()))
	return testkit.Must(extsigner.NewService(extsigner.ServiceConfig{Issuer: issuer, Signer: signer, Keys: keys, RefreshHint: time.Minute}))
}

// claimsOf are the claims of a pod's token, as kube-apiserver sends them to be signed.
func claimsOf(iss string) string {
	c := testkit.Must(apiserver.NewClaims(apiserver.Bound{
		ServiceAccount: &claims.Object{Namespace: "shop", Name: "cart", UID: "4c2a"},
		Pod:            &claims.Object{Namespace: "shop", Name: "cart-0", UID: "9f31"},
	}, 3607, 0, []string{"https://api.example"}, "a1e1c1b5-5a5e-4d5e-8f5e-0123456789ab", time.Now()))
	c.Issuer = iss
	return base64.RawURLEncoding.EncodeToString(testkit.Must(c.Marshal()))
}

// newFolder makes a folder for a socket.
func newFolder(t testing.TB) string {
	t.Helper()
	folder := testkit.Must(os.MkdirTemp("", "s")) // as the names of tests make paths too long
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

// A served is a server with its log.
type served struct {
	*Server
	log  *testkit.Log
	path string
	end  func() // ends the server and waits for that
}

// serve serves at a socket in a new folder, or at the listener.
func serve(t testing.TB, config ServerConfig, l *Listener) *served {
	t.Helper()
	s := &served{log: new(testkit.Log), path: filepath.Join(newFolder(t), "s")}
	if l == nil {
		l = testkit.Must(Listen(s.path))
	}
	config.Log = slog.New(slog.NewTextHandler(s.log, nil))
	if config.Service == nil {
		config.Service = newService(nil)
	}
	s.Server = testkit.Must(NewServer(config))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	s.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(s.end)
	return s
}

// dial is a client as kube-apiserver is one.
func dial(t testing.TB, path string) *grpc.ClientConn {
	t.Helper()
	c := testkit.Must(grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		})))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *served) client(t testing.TB) externaljwt.ExternalJWTSignerClient {
	t.Helper()
	return externaljwt.NewExternalJWTSignerClient(dial(t, s.path))
}

// metricsText are the server's metrics.
func (s *served) metricsText(t testing.TB) string {
	t.Helper()
	var text strings.Builder
	testkit.NoError(t, s.WriteMetrics(&text))
	return text.String()
}

// wantMetrics waits until the metrics have all parts: a call is counted after its client has the reply.
func (s *served) wantMetrics(t testing.TB, parts ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the metrics have %q", parts), func() bool {
		text := s.metricsText(t)
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
	})
}

// want fails the test unless a text, the name of which is what, has all parts.
func want(t testing.TB, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s has no %q:\n%s", what, part, text)
		}
	}
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after 20 s still not: %s", what)
		}
	}
}
