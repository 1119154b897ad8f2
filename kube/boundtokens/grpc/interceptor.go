package grpctokens

import (
	"context"
	"crypto/tls"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	// authorization is the metadata's key; gRPC writes keys in lower case.
	authorization = "authorization"
	// maxMetadata is the most bytes of metadata that a call may have: a token of the largest size and
	// as much again.
	maxMetadata = 2 * jws.MaxTokenSize
)

// ServerOptions returns options of a server that decides about every call, unary or stream, by
// [UnaryServerInterceptor] and [StreamServerInterceptor]. They are chained: interceptors of options
// before them run first, and see the token. A call with more than 128 KiB of metadata fails in the
// transport. gRPC decodes the message of a unary call before its interceptors run: a server that takes
// callers without certificates keeps grpc.MaxRecvMsgSize, 4 MiB by default, small.
// A panic of a function in the configuration, such as FindMachine, ends the process, as gRPC does not
// recover: an interceptor before these can.
//
// It decides about the methods of all services of the server, such as health checks and reflection: a
// server for clients without certificates is another one, at another address. A nil h refuses every call.
func ServerOptions(h *claims.Handler) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(UnaryServerInterceptor(h)),
		grpc.ChainStreamInterceptor(StreamServerInterceptor(h)),
		grpc.MaxHeaderListSize(maxMetadata),
	}
}

// UnaryServerInterceptor returns an interceptor that passes on only calls that h admits
// ([claims.Handler.Admit]). It does not run for streams: a server needs both interceptors, or
// [ServerOptions]. A nil h refuses every call.
func UnaryServerInterceptor(h *claims.Handler) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		ctx, err := admit(ctx, h)
		if err != nil {
			return nil, err
		}
		return next(ctx, request)
	}
}

// StreamServerInterceptor is [UnaryServerInterceptor] for streams. It decides once for each stream, before
// its first message is read: a stream that goes on does not end with its token or certificate. A service
// whose streams live long ends them itself, by the times in the token's Claims.
func StreamServerInterceptor(h *claims.Handler) grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		ctx, err := admit(stream.Context(), h)
		if err != nil {
			return err
		}
		return next(service, &admitted{stream, ctx})
	}
}

// admitted is a stream whose context has the workload.
type admitted struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *admitted) Context() context.Context { return s.ctx }

// admit decides about a call, and returns the context for its service, or an error with a status.
func admit(ctx context.Context, h *claims.Handler) (context.Context, error) {
	fields, _ := metadata.FromIncomingContext(ctx) // a copy
	tokens := fields.Get(authorization)
	delete(fields, authorization) // the service must not see or replay it
	ctx, err := h.Admit(metadata.NewIncomingContext(ctx, fields), connection(ctx), tokens)
	if err != nil {
		return nil, refused(err)
	}
	return ctx, nil
}

// connection returns the TLS connection of a call; nil without TLS.
func connection(ctx context.Context) *tls.ConnectionState {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			return &info.State
		}
	}
	return nil
}

// refused returns a status with only the name of the check.
func refused(err error) error {
	code, check := codes.Unauthenticated, "refused"
	if e, ok := errors.AsType[*claims.Error](err); ok {
		check = string(e.Check)
	}
	switch {
	case errors.Is(err, refusal.ErrRetry):
		code, check = codes.Unavailable, "retry"
	case errors.Is(err, claims.Check("node-certificate")):
		code = codes.PermissionDenied
	}
	return status.Error(code, "refused: "+check)
}
