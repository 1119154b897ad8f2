package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/kube/boundtokens"
	grpctokens "github.com/nodeattest/nodeattest/kube/boundtokens/grpc"
)

const (
	maxHeaders = 128 << 10 // bytes: a token of the largest size and as much again
	maxMessage = 64 << 10  // bytes of a gRPC message
	patience   = 10 * time.Second
	// maxAge is the age at which gRPC connections end: a certificate that has ended opens no new one.
	maxAge = 5 * time.Minute
)

// service is one service over two protocols, and the page of its metrics.
type service struct {
	web, health *http.Server
	calls       *grpc.Server
}

// newService returns a service that admits callers by the validator, for HTTP and gRPC alike.
func newService(validator *claims.Validator, options claims.HandlerOptions, mutual *tls.Config) (*service, error) {
	registry := prometheus.NewRegistry()
	handler := func(protocol string, next http.Handler) (*claims.Handler, error) {
		count, err := boundtokens.NewObserver(registry, protocol)
		if err != nil {
			return nil, err
		}
		options := options
		options.Observe = func(err error, took time.Duration) {
			count(err, took)
			if err != nil {
				log.Printf("%s: call refused: %v", protocol, err)
			}
		}
		return claims.NewHandler(validator, next, options)
	}
	web, err := handler("http", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, caller(r.Context())) }))
	if err != nil {
		return nil, err
	}
	calls, err := handler("grpc", nil)
	if err != nil {
		return nil, err
	}
	health := http.NewServeMux()
	health.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	health.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	s := &service{
		web:    &http.Server{Handler: web, TLSConfig: mutual, ReadTimeout: patience, WriteTimeout: 2 * patience, MaxHeaderBytes: maxHeaders},
		health: &http.Server{Handler: health, ReadTimeout: patience, WriteTimeout: 2 * patience, MaxHeaderBytes: 4 << 10},
		calls: grpc.NewServer(append(grpctokens.ServerOptions(calls), grpc.Creds(credentials.NewTLS(mutual)),
			grpc.ConnectionTimeout(patience), grpc.MaxConcurrentStreams(100), grpc.MaxRecvMsgSize(maxMessage),
			grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: maxAge, MaxConnectionAgeGrace: 2 * patience}))...),
	}
	testpb.RegisterTestServiceServer(s.calls, greeter{})
	return s, nil
}

// caller is the workload and its node. Both forms pass on only calls that have one.
func caller(ctx context.Context) string {
	w, ok := claims.WorkloadFrom(ctx)
	if !ok {
		return "unknown"
	}
	return w.Result.Username() + " on " + w.Node.Name
}

// greeter is gRPC's own service for tests, whose UnaryCall answers with the user.
type greeter struct {
	testpb.UnimplementedTestServiceServer
}

func (greeter) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return &testpb.SimpleResponse{Username: caller(ctx)}, nil
}

// serve serves HTTPS, gRPC and health until the context ends or one of them fails, and then waits for the
// calls that have begun, at most 20 seconds.
func (s *service) serve(ctx context.Context, listeners [3]net.Listener) error {
	failed := make(chan error, len(listeners))
	go func() { failed <- s.web.ServeTLS(listeners[0], "", "") }() //goroutine: net/http recovers its handlers
	go func() { failed <- s.calls.Serve(listeners[1]) }()          //goroutine: gRPC does not recover; greeter does not panic
	go func() { failed <- s.health.Serve(listeners[2]) }()         //goroutine: net/http recovers its handlers
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	ending, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	stop := context.AfterFunc(ending, s.calls.Stop) //goroutine: ends the connections of gRPC's own server
	defer stop()
	err = errors.Join(err, s.web.Shutdown(ending))
	s.calls.GracefulStop()
	return errors.Join(err, s.health.Shutdown(ending))
}
