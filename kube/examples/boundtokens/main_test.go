package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/claimstest"
	"github.com/nodeattest/nodeattest/refusal"
)

// served is the service on sockets, behind a simulated cluster.
type served struct {
	listeners [3]net.Listener
	roots     *x509.CertPool
	ended     chan error
	end       context.CancelFunc
}

func serve(t *testing.T, cluster *claimstest.Cluster) *served {
	t.Helper()
	config := cluster.ReviewConfig()
	config.Replay, config.InsecureAllowReplay = nil, true
	validator, err := claims.NewValidator(config)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewTLSServer(nil) // for its certificate
	web.Close()
	own := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &web.TLS.Certificates[0], nil }
	s, err := newService(validator, cluster.HandlerOptions(), mutualTLS(own, cluster.ClientCAs()))
	if err != nil {
		t.Fatal(err)
	}
	running := &served{roots: x509.NewCertPool(), ended: make(chan error, 1)}
	running.roots.AddCert(web.Certificate())
	for i := range running.listeners {
		if running.listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, end := context.WithCancel(t.Context())
	running.end = end
	go func() { running.ended <- s.serve(ctx, running.listeners) }()
	return running
}

// call asks over both protocols.
func (s *served) call(t *testing.T, from *claimstest.Node, token string) (web, grpcAnswer string) {
	t.Helper()
	config := &tls.Config{RootCAs: s.roots}
	if from != nil {
		config.Certificates = []tls.Certificate{*from.Certificate}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.listeners[0].Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := grpc.NewClient(s.listeners[1].Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	answer, err := testpb.NewTestServiceClient(connection).UnaryCall(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token), &testpb.SimpleRequest{})
	grpcAnswer = answer.GetUsername()
	if err != nil {
		grpcAnswer = status.Convert(err).Message()
	}
	return strings.TrimSpace(string(body)), grpcAnswer
}

// Both forms give the same answers, which are counted, and the service ends when it is told to.
func TestService(t *testing.T) {
	cluster := claimstest.New(t, claimstest.Options{})
	nodes := map[string]*claimstest.Node{}
	for _, name := range []string{"node-a", "node-b"} {
		node, err := cluster.AddNode(claimstest.Node{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		nodes[name] = node
	}
	cluster.Put("pods", claims.Object{Namespace: "shop", Name: "cart-0", ServiceAccountName: "cart", NodeName: "node-a"})
	token, err := cluster.Token(t.Context(), "shop", "cart", claimstest.TokenOptions{Pod: "cart-0"})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, cluster)
	for _, row := range []struct {
		name string
		from *claimstest.Node
		want string
	}{
		{"its own node", nodes["node-a"], "system:serviceaccount:shop:cart on node-a"},
		{"another node", nodes["node-b"], "refused: node-name"},
		{"no certificate", nil, "refused: node-certificate"},
	} {
		if web, calls := s.call(t, row.from, token); web != row.want || calls != row.want {
			t.Errorf("%s: got %q and %q, want %q", row.name, web, calls, row.want)
		}
	}
	cluster.Delete("pods", "shop", "cart-0")
	if web, calls := s.call(t, nodes["node-a"], token); web != "refused: token-review" || calls != web {
		t.Errorf("no pod: got %q and %q", web, calls)
	}
	cluster.Break("tokenreviews", claimstest.Fail)
	if web, calls := s.call(t, nodes["node-a"], token); web != "refused: retry" || calls != web {
		t.Errorf("no answer: got %q and %q", web, calls)
	}
	page := s.page(t, "/metrics")
	for _, protocol := range []string{"http", "grpc"} {
		for _, check := range []string{"accepted", "node-name", "node-certificate", "token-review", "retry"} {
			if row := `nodeattest_token_decisions_total{check="` + check + `",protocol="` + protocol + `"} 1`; !strings.Contains(page, row+"\n") {
				t.Errorf("no %s", row)
			}
		}
	}
	if health := s.page(t, "/healthz"); health != "ok\n" {
		t.Errorf("health: %q", health)
	}
	s.end()
	select {
	case err := <-s.ended:
		if err != nil {
			t.Errorf("the end: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it does not end")
	}
}

// page reads a page without TLS.
func (s *served) page(t *testing.T, path string) string {
	t.Helper()
	response, err := http.Get("http://" + s.listeners[2].Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// A listener that is closed ends the service with its error.
func TestServiceFails(t *testing.T) {
	for i := range 3 {
		s := serve(t, claimstest.New(t, claimstest.Options{}))
		_ = s.listeners[i].Close()
		select {
		case err := <-s.ended:
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("listener %d: %v", i, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("listener %d: it goes on", i)
		}
		s.end()
	}
}

// Settings that are wrong end the program before it listens.
func TestRunRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kubeconfig := write("kubeconfig", `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]}`)
	for name, row := range map[string]struct {
		s    settings
		want string
	}{
		"no audience":    {settings{kubeconfig: kubeconfig}, "Audiences"},
		"no CA":          {settings{kubeconfig: kubeconfig, audience: "a", clientCA: filepath.Join(dir, "gone")}, "--client-ca"},
		"an empty CA":    {settings{kubeconfig: kubeconfig, audience: "a", clientCA: write("empty", "")}, "no certificate in"},
		"no kubeconfig":  {settings{kubeconfig: filepath.Join(dir, "gone"), audience: "a"}, "gone"},
		"no certificate": {settings{kubeconfig: kubeconfig, audience: "a", clientCA: write("ca.crt", testCA(t)), certificate: dir}, "--certificate"},
	} {
		if err := run(t.Context(), row.s); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v, want %q", name, err, row.want)
		}
	}
	if err := run(t.Context(), settings{kubeconfig: kubeconfig}); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no audience: got %v", err)
	}
}

// testCA is a certificate in PEM.
func testCA(t *testing.T) string {
	t.Helper()
	web := httptest.NewTLSServer(nil)
	defer web.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}))
}
