package externalsigner

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/tap"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/claims/extsigner"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	// defaultWaiting and maxWaiting bound ServerConfig.MaxWaitingCalls.
	defaultWaiting, maxWaiting = 64, 4096
	// defaultTimeout and maxTimeout bound ServerConfig.CallTimeout.
	defaultTimeout, maxTimeout = 5 * time.Second, time.Minute
	// maxUIDs is how many users may be allowed.
	maxUIDs = 16
	// overflowUID is how the kernel shows a user that has no number in the user namespace
	// (/proc/sys/kernel/overflowuid).
	overflowUID = 65534

	// maxMessage and maxHeaders are the maximum size of a request and of its headers in bytes. Claims are
	// at most 48 KiB (extsigner.Service.Sign).
	maxMessage, maxHeaders = 64 << 10, 8 << 10
	// handshake is how long a client may take to begin. One without a call for idle is disconnected, and
	// so is one that does not answer a ping, sent after pingAfter without any word, in pingWait.
	handshake, idle, pingAfter, pingWait = 5 * time.Second, 15 * time.Minute, 30 * time.Second, 10 * time.Second
)

// ServerConfig configures a Server.
type ServerConfig struct {
	// Service signs. It is required. Its Signer and its Keys must return when a call's context ends.
	Service *extsigner.Service
	// AllowedUIDs are the users that may connect, at most 16, by their numbers in the server's user
	// namespace; empty: root alone. Root of a container without a user namespace of its own is root.
	// 65534, which stands for any user without a number there, is refused.
	AllowedUIDs []uint32
	// MaxWaitingCalls is how many calls of Sign may wait for their signature at a time, at most 4096: the
	// next one fails at once with ResourceExhausted. 0 means 64. As many other calls may wait.
	MaxWaitingCalls int
	// CallTimeout is how long a call may take, from its first byte to its reply, at most a minute; 0 means
	// 5 s. Then it fails with DeadlineExceeded.
	CallTimeout time.Duration
	// Log is where refused clients and failed calls are logged, at most 10 lines at once and then one in 10
	// seconds for each reason and user. It is required.
	Log *slog.Logger
}

// Server serves k8s.io/externaljwt v1 over gRPC. It is safe for concurrent use.
//
// A call that fails has one of these codes. kube-apiserver calls none again: it replies to the request for
// a token with status 500, and asks for the keys when it next would. The text names no key, file or
// device: the reason is in the log.
//
//   - InvalidArgument: the claims are refused ([extsigner.CheckSignerClaims])
//   - ResourceExhausted: MaxWaitingCalls calls wait, or the request is larger than 64 KiB
//   - DeadlineExceeded: the signature was not made in time
//   - Unavailable: the key, or the keys, could not be used now
//   - Internal: the signature or the keys failed the checks of the service
type Server struct {
	config  ServerConfig
	log     *limitedLog
	metrics *metrics
	signing chan struct{} // a place for each call of Sign
	other   chan struct{} // and of others
	serving atomic.Pointer[Listener]
}

// NewServer checks a configuration. The error is [refusal.CheckConfig].
func NewServer(config ServerConfig) (*Server, error) {
	config.AllowedUIDs = slices.Clone(config.AllowedUIDs)
	if len(config.AllowedUIDs) == 0 {
		config.AllowedUIDs = []uint32{0}
	}
	config.MaxWaitingCalls = cmp.Or(config.MaxWaitingCalls, defaultWaiting)
	config.CallTimeout = cmp.Or(config.CallTimeout, defaultTimeout)
	switch {
	case config.Service == nil:
		return nil, refusal.Config("Service", "", "an extsigner.Service")
	case config.Log == nil || config.Log.Handler() == nil:
		return nil, refusal.Config("Log", "", "a slog.Logger")
	case len(config.AllowedUIDs) > maxUIDs:
		return nil, refusal.Config("allowedUIDs", "of "+strconv.Itoa(len(config.AllowedUIDs))+" users", "at most 16")
	case slices.Contains(config.AllowedUIDs, overflowUID) || slices.Contains(config.AllowedUIDs, math.MaxUint32):
		return nil, refusal.Config("allowedUIDs", "with 65534 or 4294967295, which stand for any user without a number", "the number of a user")
	case config.MaxWaitingCalls < 1 || config.MaxWaitingCalls > maxWaiting:
		return nil, refusal.Config("maxWaitingCalls", strconv.Itoa(config.MaxWaitingCalls), "1 to 4096")
	case config.CallTimeout < 0 || config.CallTimeout > maxTimeout:
		return nil, refusal.Config("callTimeout", config.CallTimeout.String(), "at most 1m")
	}
	if _, err := config.Service.Metadata(context.Background()); err != nil { // that NewService did not make
		return nil, err
	}
	return &Server{
		config: config, log: newLimitedLog(config.Log), metrics: newMetrics(),
		signing: make(chan struct{}, config.MaxWaitingCalls), other: make(chan struct{}, config.MaxWaitingCalls),
	}, nil
}

// errServer is the error of methods of a Server that NewServer did not make.
var errServer = refusal.Config("Server", "that NewServer did not make", "one that it made")

// Serve serves the clients of a listener until ctx ends, and then waits for the calls in progress, as long
// as they may take. It closes the listener. A client that is not allowed is disconnected before it can
// call. Each allowed user has at most 16 connections, and a connection has twice MaxWaitingCalls calls.
// The error is the listener's, nil if ctx ended, and [refusal.CheckConfig] for a second Serve.
func (s *Server) Serve(ctx context.Context, l *Listener) error {
	switch {
	case s == nil || s.log == nil:
		return errServer
	case l == nil || l.bare == nil:
		return refusal.Config("listener", "", "that of Listen")
	case !s.serving.CompareAndSwap(nil, l):
		return refusal.Config("server", "that has served", "a new one for each listener")
	}
	g := grpc.NewServer(
		grpc.ConnectionTimeout(handshake),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(2*uint32(s.config.MaxWaitingCalls)), // so that one too many is refused, and does not wait in the client
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idle, Time: pingAfter, Timeout: pingWait}),
		grpc.InTapHandle(s.limitTime),
		grpc.StatsHandler(s.metrics),
		grpc.UnaryInterceptor(s.limitCalls),
		grpc.WaitForHandlers(true), // as the keys are closed next; their contexts have ended
	)
	externaljwt.RegisterExternalJWTSignerServer(g, service{signer: s.config.Service})
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { //goroutine: it runs gRPC's code alone
		defer close(stopped)
		force := time.AfterFunc(s.config.CallTimeout+handshake, g.Stop) //goroutine: it runs gRPC's code alone
		defer force.Stop()
		g.GracefulStop()
	})
	err := g.Serve(&peers{Listener: l, server: s, open: map[uint32]int{}})
	if !stop() {
		<-stopped
		return nil
	}
	g.Stop()
	return err
}

// limitTime ends the context of a call after CallTimeout, also if its request never arrives as a whole.
func (s *Server) limitTime(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.CallTimeout)
	context.AfterFunc(ctx, cancel) //goroutine: stops the timer when the call has ended
	return ctx, nil
}

// Ready reports, for a readiness check, whether clients reach the server and get its keys: the error is
// that of the socket's folder ([Listen]) or of [extsigner.Service.FetchKeys].
func (s *Server) Ready(ctx context.Context) error {
	if s == nil || s.log == nil {
		return errServer
	}
	l := s.serving.Load()
	if l == nil {
		return errors.New("the server does not serve yet")
	}
	if err := l.check(); err != nil {
		return err
	}
	_, err := s.config.Service.FetchKeys(ctx)
	return err
}
