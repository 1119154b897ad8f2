package grpctokens_test

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/claimstest"
	"github.com/nodeattest/nodeattest/jws"
	grpctokens "github.com/nodeattest/nodeattest/kube/boundtokens/grpc"
	"github.com/nodeattest/nodeattest/refusal"
)

const caller = "system:serviceaccount:shop:cart on node-a"

// refusedWith fails the test unless a call was refused by a check, before the service, and once.
func (s *served) refusedWith(t *testing.T, err error, code codes.Code, check claims.Check) {
	t.Helper()
	if status.Code(err) != code || status.Convert(err).Message() != "refused: "+string(check) || len(status.Convert(err).Details()) != 0 {
		t.Errorf("got %v, want %v of %s", err, code, string(check))
	}
	if calls, _ := s.last(); calls != 0 {
		t.Errorf("the service was called %d times", calls)
	}
	seen := s.take()
	if len(seen) != 1 || !errors.Is(seen[0], check) && !(check == "retry" && errors.Is(seen[0], refusal.ErrRetry)) {
		t.Errorf("decisions %v, want one of %s", seen, string(check))
	}
}

func TestAccepts(t *testing.T) {
	cluster, nodeA, _, token := bound(t)
	for form, call := range forms {
		t.Run(form, func(t *testing.T) {
			s := serve(t, cluster, false, nil)
			ctx := metadata.AppendToOutgoingContext(with(t.Context(), "Bearer "+token), "tenant", "shop")
			got, err := call(ctx, s.dial(t, s.tlsConfig(nodeA)))
			if err != nil || got != caller {
				t.Fatalf("got %q, %v, want %q", got, err, caller)
			}
			_, seen := s.last()
			if len(seen.Get("authorization")) != 0 || !slices.Equal(seen.Get("tenant"), []string{"shop"}) {
				t.Errorf("the service sees %v, want the tenant and no token", seen)
			}
			if decisions := s.take(); len(decisions) != 1 || decisions[0] != nil {
				t.Errorf("decisions %v, want one without an error", decisions)
			}
		})
	}
}

func TestRefuses(t *testing.T) {
	cluster, nodeA, nodeB, token := bound(t)
	unrecorded, err := cluster.AddNode(claimstest.Node{Name: "node-c"})
	if err != nil {
		t.Fatal(err)
	}
	cluster.Delete("records", "", unrecorded.Record.CredentialID)
	elsewhere, err := cluster.Token(t.Context(), "shop", "cart", claimstest.TokenOptions{Pod: "cart-0", Audiences: []string{"https://other.example"}})
	if err != nil {
		t.Fatal(err)
	}
	good := "Bearer " + token
	for name, row := range map[string]struct {
		from          *claimstest.Node
		authorization []string
		code          codes.Code
		check         claims.Check
	}{
		"no certificate":              {nil, []string{good}, codes.PermissionDenied, "node-certificate"},
		"a certificate of no record":  {unrecorded, []string{good}, codes.PermissionDenied, "node-certificate"},
		"no certificate and no token": {nil, nil, codes.PermissionDenied, "node-certificate"},
		"another node":                {nodeB, []string{good}, codes.Unauthenticated, "node-name"},
		"another audience":            {nodeA, []string{"Bearer " + elsewhere}, codes.Unauthenticated, "audience"},
		"a changed token":             {nodeA, []string{good + "A"}, codes.Unauthenticated, "token-signature"},
		"no token":                    {nodeA, nil, codes.Unauthenticated, "bearer-token"},
		"two tokens":                  {nodeA, []string{good, good}, codes.Unauthenticated, "bearer-token"},
		"a token and nothing":         {nodeA, []string{good, ""}, codes.Unauthenticated, "bearer-token"},
		"nothing":                     {nodeA, []string{""}, codes.Unauthenticated, "bearer-token"},
		"the scheme alone":            {nodeA, []string{"Bearer"}, codes.Unauthenticated, "bearer-token"},
		"no scheme":                   {nodeA, []string{token}, codes.Unauthenticated, "bearer-token"},
		"another scheme":              {nodeA, []string{"Basic " + token}, codes.Unauthenticated, "bearer-token"},
		"a huge token":                {nodeA, []string{"Bearer " + strings.Repeat("a", jws.MaxTokenSize+1)}, codes.Unauthenticated, "bearer-token"},
	} {
		for form, call := range forms {
			t.Run(name+"/"+form, func(t *testing.T) {
				s := serve(t, cluster, false, nil)
				_, err := call(with(t.Context(), row.authorization...), s.dial(t, s.tlsConfig(row.from)))
				s.refusedWith(t, err, row.code, row.check)
			})
		}
	}
	for form, call := range forms {
		t.Run("no TLS/"+form, func(t *testing.T) {
			s := serve(t, cluster, true, nil)
			_, err := call(with(t.Context(), good), s.dial(t, nil))
			s.refusedWith(t, err, codes.PermissionDenied, "node-certificate")
		})
		// The transport ends the call, so that a caller cannot have megabytes kept.
		t.Run("huge metadata/"+form, func(t *testing.T) {
			s := serve(t, cluster, false, nil)
			ctx := metadata.AppendToOutgoingContext(with(t.Context(), good), "more", strings.Repeat("a", 128<<10))
			_, err := call(ctx, s.dial(t, s.tlsConfig(nodeA)))
			if calls, _ := s.last(); err == nil || calls != 0 || len(s.take()) != 0 {
				t.Errorf("%d calls, %v", calls, err)
			}
		})
	}
}

// Two sources that give no answer, and a registry that has one again.
func TestTryAgain(t *testing.T) {
	cluster, nodeA, _, token := bound(t)
	for _, resource := range []string{"nodes", "machines", "records", "keys"} {
		for form, call := range forms {
			t.Run(resource+"/"+form, func(t *testing.T) {
				s := serve(t, cluster, false, nil)
				client := s.dial(t, s.tlsConfig(nodeA))
				cluster.Break(resource, claimstest.Fail)
				defer cluster.Break(resource, 0)
				_, err := call(with(t.Context(), "Bearer "+token), client)
				s.refusedWith(t, err, codes.Unavailable, "retry")
				cluster.Break(resource, 0)
				if got, err := call(with(t.Context(), "Bearer "+token), client); err != nil || got != caller {
					t.Errorf("later: %q, %v", got, err)
				}
			})
		}
	}
}

// A session ticket of a node does not prove that its holder has the node's key.
func TestRefusesResumedSessions(t *testing.T) {
	cluster, nodeA, _, token := bound(t)
	for _, tickets := range []bool{true, false} {
		s := serve(t, cluster, false, func(c *tls.Config) { c.SessionTicketsDisabled = !tickets })
		config := s.tlsConfig(nodeA)
		config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		for attempt, resumed := range []bool{false, tickets} {
			client := s.dial(t, config) // a connection of its own
			_, err := forms["unary"](with(t.Context(), "Bearer "+token), client)
			if want := map[bool]codes.Code{true: codes.PermissionDenied, false: codes.OK}[resumed]; status.Code(err) != want {
				t.Errorf("tickets %t, connection %d: %v, want %v", tickets, attempt, err, want)
			}
		}
	}
}

// A stream is decided about once, before its first message, and then goes on.
func TestStreamDecidedOnce(t *testing.T) {
	cluster, nodeA, _, token := bound(t)
	s := serve(t, cluster, false, nil)
	client := s.dial(t, s.tlsConfig(nodeA))
	stream, err := client.FullDuplexCall(with(t.Context(), "Bearer "+token))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		answer, err := stream.Recv()
		if err != nil || string(answer.GetPayload().GetBody()) != caller {
			t.Fatalf("message %d: %v, %v", n, answer, err)
		}
		cluster.Delete("nodes", "", "node-a")
		if err := stream.Send(&testpb.StreamingOutputCallRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if decisions := s.take(); len(decisions) != 1 || decisions[0] != nil {
		t.Errorf("decisions %v, want one without an error", decisions)
	}
	if _, err := forms["stream"](with(t.Context(), "Bearer "+token), client); status.Convert(err).Message() != "refused: node-gone" {
		t.Errorf("a new stream: %v, want node-gone", err)
	}
}

// A caller who hangs up ends the decision.
func TestCallerHangsUp(t *testing.T) {
	cluster, nodeA, _, token := bound(t)
	cluster.Break("machines", claimstest.Hang)
	for form, call := range forms {
		t.Run(form, func(t *testing.T) {
			s := serve(t, cluster, false, nil)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := call(with(ctx, "Bearer "+token), s.dial(t, s.tlsConfig(nodeA)))
			if code := status.Code(err); code != codes.DeadlineExceeded && code != codes.Unavailable {
				t.Errorf("the caller gets %v", err)
			}
			s.server.GracefulStop() // waits for the calls
			if calls, _ := s.last(); calls != 0 {
				t.Error("the service was called")
			}
			if decisions := s.take(); len(decisions) != 1 || !errors.Is(decisions[0], refusal.ErrRetry) {
				t.Errorf("decisions %v, want one to try again", decisions)
			}
		})
	}
}

// Without a handler, no call passes.
func TestWithoutHandler(t *testing.T) {
	called := false
	_, err := grpctokens.UnaryServerInterceptor(nil)(t.Context(), nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) {
		called = true
		return nil, nil
	})
	if status.Code(err) != codes.Unauthenticated || called {
		t.Errorf("unary: %v, called %t", err, called)
	}
	err = grpctokens.StreamServerInterceptor(nil)(nil, stream{ctx: t.Context()}, &grpc.StreamServerInfo{}, func(any, grpc.ServerStream) error {
		called = true
		return nil
	})
	if status.Code(err) != codes.Unauthenticated || called {
		t.Errorf("stream: %v, called %t", err, called)
	}
}

type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }
