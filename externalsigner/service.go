package externalsigner

import (
	"context"
	"errors"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/claims/extsigner"
	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

// service is k8s.io/externaljwt v1 over an extsigner.Service. Its errors are the Service's.
type service struct {
	externaljwt.UnimplementedExternalJWTSignerServer
	signer *extsigner.Service
}

// Sign signs the claims of a token.
func (s service) Sign(ctx context.Context, r *externaljwt.SignJWTRequest) (*externaljwt.SignJWTResponse, error) {
	signed, err := s.signer.Sign(ctx, r.GetClaims())
	if err != nil {
		return nil, err
	}
	return &externaljwt.SignJWTResponse{Header: signed.Header, Signature: signed.Signature}, nil
}

// FetchKeys returns the keys that verify tokens.
func (s service) FetchKeys(ctx context.Context, _ *externaljwt.FetchKeysRequest) (*externaljwt.FetchKeysResponse, error) {
	keys, err := s.signer.FetchKeys(ctx)
	if err != nil {
		return nil, err
	}
	answer := &externaljwt.FetchKeysResponse{DataTimestamp: timestamppb.New(keys.DataTimestamp), RefreshHintSeconds: keys.RefreshHintSeconds}
	for _, k := range keys.Keys {
		answer.Keys = append(answer.Keys, &externaljwt.Key{KeyId: k.KeyID, Key: k.Key, ExcludeFromOidcDiscovery: k.ExcludeFromOIDCDiscovery})
	}
	return answer, nil
}

// Metadata returns the maximum lifetime of a token.
func (s service) Metadata(ctx context.Context, _ *externaljwt.MetadataRequest) (*externaljwt.MetadataResponse, error) {
	m, err := s.signer.Metadata(ctx)
	if err != nil {
		return nil, err
	}
	return &externaljwt.MetadataResponse{MaxTokenExpirationSeconds: m.MaxTokenExpirationSeconds}, nil
}

// limitCalls runs a call if it finds a place, and turns its error, or its panic, into a status.
func (s *Server) limitCalls(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (response any, err error) {
	method, places := methods[info.FullMethod], s.other
	if info.FullMethod == externaljwt.ExternalJWTSigner_Sign_FullMethodName {
		places = s.signing
	}
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	default:
		refused := status.New(codes.ResourceExhausted, strconv.Itoa(cap(places))+" calls are waiting already")
		s.logFailed(method, refused.Code(), refused.Err())
		return nil, refused.Err()
	}
	if places == s.signing {
		s.metrics.waiting.Add(1)
		defer s.metrics.waiting.Add(-1)
	}
	err = recovered.Call(func() (err error) { response, err = next(ctx, request); return err })
	if err == nil {
		return response, nil
	}
	as := statusOf(ctx, err)
	if as.Code() != codes.Canceled {
		s.logFailed(method, as.Code(), err)
	}
	return nil, as.Err()
}

func (s *Server) logFailed(method string, code codes.Code, err error) {
	s.log.warn(failedKey{method, code}, "call failed", "method", method, "code", code.String(), "error", err)
}

// failedKey says which failures share a limit of log lines.
type failedKey struct {
	method string
	code   codes.Code
}

// statusOf is the status of a call that failed. Clients get the reason for which claims are refused; of
// what is wrong with a key they learn no more than that.
func statusOf(ctx context.Context, err error) *status.Status {
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err())
	case errors.Is(err, refusal.ErrRetry):
		return status.New(codes.Unavailable, "the key cannot be used now: the signer has logged the reason")
	case errors.Is(err, extsigner.CheckSignerClaims):
		return status.New(codes.InvalidArgument, err.Error())
	}
	return status.New(codes.Internal, "the signature or the keys failed the signer's checks: it has logged the reason")
}
