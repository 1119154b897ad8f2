package externalsigner

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/refusal"
)

// service is k8s.io/externaljwt v1 over an extsigner.Service.
type service struct {
	externaljwt.UnimplementedExternalJWTSignerServer
	config ServerConfig
}

// Sign signs the claims of a token.
func (s service) Sign(ctx context.Context, r *externaljwt.SignJWTRequest) (*externaljwt.SignJWTResponse, error) {
	signed, err := s.config.Service.Sign(ctx, r.GetClaims())
	if err != nil {
		return nil, asStatus(ctx, err)
	}
	return &externaljwt.SignJWTResponse{Header: signed.Header, Signature: signed.Signature}, nil
}

// FetchKeys returns the keys that verify tokens.
func (s service) FetchKeys(ctx context.Context, _ *externaljwt.FetchKeysRequest) (*externaljwt.FetchKeysResponse, error) {
	keys, err := s.config.Service.FetchKeys(ctx)
	if err != nil {
		return nil, asStatus(ctx, err)
	}
	answer := &externaljwt.FetchKeysResponse{DataTimestamp: timestamppb.New(keys.DataTimestamp), RefreshHintSeconds: keys.RefreshHintSeconds}
	for _, k := range keys.Keys {
		answer.Keys = append(answer.Keys, &externaljwt.Key{KeyId: k.KeyID, Key: k.Key, ExcludeFromOidcDiscovery: k.ExcludeFromOIDCDiscovery})
	}
	return answer, nil
}

// Metadata returns the maximum lifetime of a token.
func (s service) Metadata(ctx context.Context, _ *externaljwt.MetadataRequest) (*externaljwt.MetadataResponse, error) {
	m, err := s.config.Service.Metadata(ctx)
	if err != nil {
		return nil, asStatus(ctx, err)
	}
	return &externaljwt.MetadataResponse{MaxTokenExpirationSeconds: m.MaxTokenExpirationSeconds}, nil
}

// asStatus gives an error the code that says whether the same call may succeed later.
func asStatus(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, refusal.ErrRetry):
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Error(codes.InvalidArgument, err.Error())
}
