package grpctokens_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"net"
	"net/http/httptest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/claimstest"
	grpctokens "github.com/nodeattest/nodeattest/kube/boundtokens/grpc"
)

// greeter is the service. Calls that the interceptors refuse do not reach it.
type greeter struct {
	testpb.UnimplementedTestServiceServer
}

func (greeter) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	who, _ := claims.WorkloadFrom(ctx)
	return &testpb.SimpleResponse{Username: who.Result.Username() + " on " + who.Node.Name}, nil
}

// A service over gRPC takes a pod's token from the pod's node, and from no other machine. The cluster is
// simulated: package boundtokens has the configuration for a real one.
func Example() {
	cluster, err := claimstest.Open(claimstest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	config := cluster.ValidatorConfig()
	config.Replay, config.InsecureAllowReplay = nil, true // a token comes with each call
	validator, err := claims.NewValidator(config)
	if err != nil {
		log.Fatal(err)
	}
	handler, err := claims.NewHandler(validator, nil, cluster.HandlerOptions())
	if err != nil {
		log.Fatal(err)
	}
	web := httptest.NewTLSServer(nil) // for its certificate
	web.Close()
	server := grpc.NewServer(append(grpctokens.ServerOptions(handler), grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates:           web.TLS.Certificates,
		ClientAuth:             tls.VerifyClientCertIfGiven, // one without a certificate gets an answer
		ClientCAs:              cluster.ClientCAs(),         // the CAs that sign for attested nodes, and no other
		SessionTicketsDisabled: true,                        // a ticket is good without the node's key
	})))...)
	testpb.RegisterTestServiceServer(server, greeter{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	onA, onB := &tls.Config{RootCAs: roots}, &tls.Config{RootCAs: roots}
	for name, config := range map[string]*tls.Config{"node-a": onA, "node-b": onB} {
		node, err := cluster.AddNode(claimstest.Node{Name: name})
		if err != nil {
			log.Fatal(err)
		}
		config.Certificates = []tls.Certificate{*node.Certificate}
	}
	token := podOn(cluster, "node-a")
	call(listener.Addr().String(), onA, token)
	call(listener.Addr().String(), onB, token)                         // attested just as well
	call(listener.Addr().String(), &tls.Config{RootCAs: roots}, token) // a machine that never joined
	// Output:
	// system:serviceaccount:shop:cart on node-a
	// Unauthenticated: refused: node-name
	// PermissionDenied: refused: node-certificate
}

// podOn issues the token of a pod on a node.
func podOn(cluster *claimstest.Cluster, nodeName string) string {
	cluster.Put("pods", claims.Object{Namespace: "shop", Name: "cart-0", ServiceAccountName: "cart", NodeName: nodeName})
	token, err := cluster.Token(context.Background(), "shop", "cart", claimstest.TokenOptions{Pod: "cart-0"})
	if err != nil {
		log.Fatal(err)
	}
	return token
}

// call asks the service who is calling.
func call(address string, config *tls.Config, token string) {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+token)
	answer, err := testpb.NewTestServiceClient(connection).UnaryCall(ctx, &testpb.SimpleRequest{})
	if err != nil {
		fmt.Printf("%v: %s\n", status.Code(err), status.Convert(err).Message())
		return
	}
	fmt.Println(answer.GetUsername())
}
