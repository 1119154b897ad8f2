package grpctokens_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/claimstest"
	grpctokens "github.com/nodeattest/nodeattest/kube/boundtokens/grpc"
)

// service says who calls. Over a stream it does so before it reads a message, and then for each.
type service struct {
	testpb.UnimplementedTestServiceServer

	mu    sync.Mutex
	calls int
	seen  metadata.MD
}

// who notes the call and returns its caller.
func (s *service) who(ctx context.Context) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.seen, _ = metadata.FromIncomingContext(ctx)
	w, ok := claims.WorkloadFrom(ctx)
	if !ok {
		return "unknown"
	}
	return w.Result.Username() + " on " + w.Node.Name
}

// last returns how often the service was called, and the metadata of the last call.
func (s *service) last() (int, metadata.MD) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls, s.seen
}

func (s *service) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return &testpb.SimpleResponse{Username: s.who(ctx)}, nil
}

func (s *service) FullDuplexCall(stream testpb.TestService_FullDuplexCallServer) error {
	for {
		if err := stream.Send(&testpb.StreamingOutputCallResponse{Payload: &testpb.Payload{Body: []byte(s.who(stream.Context()))}}); err != nil {
			return err
		}
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}

// observed are the decisions of a handler.
type observed struct {
	mu   sync.Mutex
	errs []error
}

func (o *observed) observe(err error, _ time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errs = append(o.errs, err)
}

// take returns the decisions since the last call.
func (o *observed) take() []error {
	o.mu.Lock()
	defer o.mu.Unlock()
	errs := o.errs
	o.errs = nil
	return errs
}

// served is a server behind the interceptors, on a socket.
type served struct {
	*service
	observed

	cluster *claimstest.Cluster
	address string
	roots   *x509.CertPool
	server  *grpc.Server
}

// serve starts a server, without TLS if plain. change, if not nil, edits its tls.Config.
func serve(t *testing.T, cluster *claimstest.Cluster, plain bool, change func(*tls.Config)) *served {
	t.Helper()
	s := &served{service: &service{}, cluster: cluster, roots: x509.NewCertPool()}
	config := cluster.ValidatorConfig()
	config.Replay, config.InsecureAllowReplay = nil, true
	validator, err := claims.NewValidator(config)
	if err != nil {
		t.Fatal(err)
	}
	options := cluster.HandlerOptions()
	options.Observe = s.observe
	handler, err := claims.NewHandler(validator, nil, options)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewTLSServer(nil) // for its certificate
	web.Close()
	s.roots.AddCert(web.Certificate())
	creds := insecure.NewCredentials()
	if !plain {
		tlsConfig := &tls.Config{Certificates: web.TLS.Certificates, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: cluster.ClientCAs(), SessionTicketsDisabled: true}
		if change != nil {
			change(tlsConfig)
		}
		creds = credentials.NewTLS(tlsConfig)
	}
	s.server = grpc.NewServer(append(grpctokens.ServerOptions(handler), grpc.Creds(creds))...)
	testpb.RegisterTestServiceServer(s.server, s.service)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	go func() { _ = s.server.Serve(listener) }()
	t.Cleanup(s.server.Stop)
	return s
}

// tlsConfig is that of a caller on a node; nil is a machine without a certificate.
func (s *served) tlsConfig(from *claimstest.Node) *tls.Config {
	config := &tls.Config{RootCAs: s.roots}
	if from != nil {
		config.Certificates = []tls.Certificate{*from.Certificate}
	}
	return config
}

// dial connects; a nil config is no TLS.
func (s *served) dial(t *testing.T, config *tls.Config) testpb.TestServiceClient {
	t.Helper()
	creds := insecure.NewCredentials()
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	connection, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return testpb.NewTestServiceClient(connection)
}

// forms are the kinds of calls. Each returns the answer of the service.
var forms = map[string]func(context.Context, testpb.TestServiceClient) (string, error){
	"unary": func(ctx context.Context, c testpb.TestServiceClient) (string, error) {
		answer, err := c.UnaryCall(ctx, &testpb.SimpleRequest{})
		return answer.GetUsername(), err
	},
	// The caller sends no message.
	"stream": func(ctx context.Context, c testpb.TestServiceClient) (string, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := c.FullDuplexCall(ctx)
		if err != nil {
			return "", err
		}
		answer, err := stream.Recv()
		return string(answer.GetPayload().GetBody()), err
	},
}

// with adds values of authorization.
func with(ctx context.Context, values ...string) context.Context {
	for _, value := range values {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", value)
	}
	return ctx
}

// bound returns a cluster with node-a and node-b, and the token of a pod on node-a.
func bound(t *testing.T) (cluster *claimstest.Cluster, nodeA, nodeB *claimstest.Node, token string) {
	t.Helper()
	cluster = claimstest.New(t, claimstest.Options{})
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
	return cluster, nodes["node-a"], nodes["node-b"], token
}
