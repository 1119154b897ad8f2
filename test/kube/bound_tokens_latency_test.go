package kube

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/kube/boundtokens"
	grpctokens "github.com/nodeattest/nodeattest/kube/boundtokens/grpc"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// latencyTurns is how often each way is timed.
const latencyTurns = 300

// TestBoundTokensLatency compares a call with a token, over a connection that is open, with the same call
// without a decision and with a bare TokenReview, in turns. docs/benchmarks.md has its figures.
func TestBoundTokensLatency(t *testing.T) {
	x := &boundTokens{cluster: startJoinable(t)}
	x.joined(t)
	x.apply(t, "boundtokens/rbac.yaml")
	config := func(user string, groups ...string) (*boundtokens.Cluster, claims.ValidatorConfig) {
		t.Helper()
		cluster, err := boundtokens.New(x.user(t, user, groups...), boundtokens.Options{})
		if err != nil {
			t.Fatal(err)
		}
		config := cluster.ValidatorConfig(serviceAudience)
		config.InsecureAllowReplay = true
		return cluster, config
	}
	cluster, reviews := config("system:serviceaccount:boundtokens-example:boundtokens-example", "system:serviceaccounts")
	_, byKeys := config("reader", "system:masters") // of pods and service accounts, too
	byKeys.Review, byKeys.Issuers = nil, map[string]jws.KeySet{controlplane.Issuer: x.publishedKeys(t)}

	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "good") })
	handler := func(config claims.ValidatorConfig) *claims.Handler {
		t.Helper()
		v, err := claims.NewValidator(config)
		if err != nil {
			t.Fatal(err)
		}
		h, err := claims.NewHandler(v, next, cluster.HandlerOptions())
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	l := &latency{x}
	ways := []*way{
		{name: "HTTP, bare", call: l.http(t, next)},
		{name: "HTTP, by TokenReview", call: l.http(t, handler(reviews))},
		{name: "HTTP, by keys", call: l.http(t, handler(byKeys))},
		{name: "gRPC, bare", call: l.grpc(t)},
		{name: "gRPC, by TokenReview", call: l.grpc(t, grpctokens.ServerOptions(handler(reviews))...)},
		{name: "gRPC, by keys", call: l.grpc(t, grpctokens.ServerOptions(handler(byKeys))...)},
		{name: "TokenReview, bare", call: l.review},
	}
	for turn := range latencyTurns {
		for _, w := range ways {
			began := time.Now()
			if err := w.call(t.Context()); err != nil {
				t.Fatalf("%s, turn %d: %v", w.name, turn, err)
			}
			w.took = append(w.took, time.Since(began))
		}
	}
	review := ways[len(ways)-1].median()
	t.Logf("%s; %d turns; a bare TokenReview takes %s", cpuName(t), latencyTurns, review)
	for i, w := range ways[:len(ways)-1] {
		bare := ways[i-i%3]
		t.Logf("%-22s %8s, %5.2f × the bare call, %5.2f × a bare TokenReview", w.name, w.median().Round(time.Microsecond),
			float64(w.median())/float64(bare.median()), float64(w.median())/float64(review))
		// Four or five requests to the API server, one after the other, and nothing that takes as long.
		if w.median() > 10*(review+bare.median()) {
			t.Errorf("%s takes more than ten times a bare call and a bare TokenReview", w.name)
		}
	}
}

// way is one way to call, and how long each call took.
type way struct {
	name string
	call func(context.Context) error
	took []time.Duration
}

func (w *way) median() time.Duration {
	slices.Sort(w.took)
	return w.took[len(w.took)/2]
}

// latency makes servers and clients, each client with one connection.
type latency struct{ *boundTokens }

// http calls a handler over HTTP/2, as gRPC does.
func (l *latency) http(t *testing.T, handler http.Handler) func(context.Context) error {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.TLS, server.EnableHTTP2 = l.serverTLS(t), true
	server.StartTLS()
	t.Cleanup(server.Close)
	caller := &http.Client{Transport: &http.Transport{TLSClientConfig: l.from(l.node), ForceAttemptHTTP2: true}}
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+l.token)
		response, err := caller.Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if body, err := io.ReadAll(response.Body); err != nil || string(body) != "good" {
			return fmt.Errorf("%d %s, %w", response.StatusCode, body, err)
		}
		return nil
	}
}

// bareService answers every call.
type bareService struct {
	testpb.UnimplementedTestServiceServer
}

func (bareService) UnaryCall(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return &testpb.SimpleResponse{Username: "good"}, nil
}

func (l *latency) grpc(t *testing.T, options ...grpc.ServerOption) func(context.Context) error {
	t.Helper()
	connection := dialGRPC(t, bareService{}, append(options, grpc.Creds(credentials.NewTLS(l.serverTLS(t))))...)(l.from(l.node))
	t.Cleanup(func() { _ = connection.Close() })
	caller := testpb.NewTestServiceClient(connection)
	return func(ctx context.Context) error {
		_, err := caller.UnaryCall(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+l.token), &testpb.SimpleRequest{})
		return err
	}
}

// review has the API server review the token, and does nothing else.
func (l *latency) review(ctx context.Context) error {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: l.token, Audiences: []string{serviceAudience}}}
	if err := l.admin.Create(ctx, review); err != nil {
		return err
	}
	if !review.Status.Authenticated {
		return fmt.Errorf("not authenticated: %s", review.Status.Error)
	}
	return nil
}

// joined has a machine join as node-1, and gets the token of a pod there.
func (x *boundTokens) joined(t *testing.T) {
	t.Helper()
	node := x.nodeOn(t, tpmsim.Swtpm(t, tpmsim.Options{CA: newCA(t, "")}), "node-1")
	p := &plane{config: attesttest.NewControlPlane(t, node).Config, clusterIDs: []string{x.clusterID(t)}, inv: new(inventory)}
	p.run(t, x.cluster, "controller")
	leaf := x.joins(t, x.client(t, x.bearer(t, attesttest.TokenID)), node)
	x.node = tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: node.Key}
	x.makeObjects(t)
}

// cpuName is the processor's name.
func cpuName(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "an unknown processor"
	}
	name := regexp.MustCompile(`(?m)^model name\s*: (.*)$`).FindSubmatch(text)
	if name == nil {
		return "an unknown processor"
	}
	return strings.TrimSpace(string(name[1]))
}
