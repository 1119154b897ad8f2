package externalsigner

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/claims/extsigner"
	"github.com/nodeattest/nodeattest/refusal"
)

// ServerConfig configures a Server.
type ServerConfig struct {
	// Service signs. It is required.
	Service *extsigner.Service
	// AllowedUIDs are the users that may connect, by their numbers in the server's user namespace;
	// empty: root alone.
	AllowedUIDs []uint32
	// MaxWaitingCalls is how many calls of Sign may wait for a signature at a time: the next one
	// fails with ResourceExhausted. 0 means 64.
	MaxWaitingCalls int
	// CallTimeout is how long a call may take; 0 means 5 s, after which kube-apiserver gives up.
	CallTimeout time.Duration
	// Log is where refused clients and failed calls are logged. It is required.
	Log *slog.Logger
}

// Server serves a Service over gRPC. It is safe for concurrent use.
type Server struct {
	config ServerConfig
}

// NewServer checks a configuration. The error is [refusal.CheckConfig].
func NewServer(config ServerConfig) (*Server, error) {
	switch {
	case config.Service == nil:
		return nil, refusal.Config("Service", "", "an extsigner.Service")
	case config.Log == nil:
		return nil, refusal.Config("Log", "", "a slog.Logger")
	}
	return &Server{config: config}, nil
}

// Serve serves the clients of a listener until ctx ends, and then waits for the calls in progress. It
// closes the listener.
func (s *Server) Serve(ctx context.Context, l *Listener) error {
	g := grpc.NewServer()
	externaljwt.RegisterExternalJWTSignerServer(g, service{config: s.config})
	defer context.AfterFunc(ctx, g.GracefulStop)()
	return g.Serve(l.bare)
}
