package extsignertest

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"time"

	externaljwt "k8s.io/externaljwt/apis/v1"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/extsigner"
	"github.com/nodeattest/nodeattest/jws"
)

// The limits of a token's lifetime in seconds: of an external signer's metadata
// (k8s.io/externaljwt/apis/v1), and of a TokenRequest.
const (
	minLifetime = 600
	maxLifetime = 1 << 32
	// kubeletLifetime is the lifetime of the tokens that the kubelet requests.
	kubeletLifetime = 3607
)

// remote is the signer under test.
type remote struct {
	issuer string
	client externaljwt.ExternalJWTSignerClient
}

// Sign implements [jws.Signer], so that an extsigner.Service judges the answers.
func (r *remote) Sign(ctx context.Context, payload []byte) (*jws.Signature, error) {
	answer, err := r.client.Sign(ctx, &externaljwt.SignJWTRequest{Claims: base64.RawURLEncoding.EncodeToString(payload)})
	if err != nil {
		return nil, err
	}
	return &jws.Signature{Header: answer.GetHeader(), Value: answer.GetSignature()}, nil
}

// judge fetches the signer's keys, and returns the Service that accepts only answers which verify with
// them.
func (r *remote) judge(ctx context.Context) (*extsigner.Service, error) {
	published, verifyOnly, err := r.keys(ctx)
	if err != nil {
		return nil, err
	}
	set, err := jws.NewStaticKeySet(published...)
	if err != nil {
		return nil, fmt.Errorf("got %d keys in the discovery document, want 1 at least, under different IDs: %w", len(published), err)
	}
	return extsigner.NewService(extsigner.ServiceConfig{
		Issuer: r.issuer, Signer: r, Keys: set, VerifyOnly: verifyOnly, RefreshHint: time.Second,
		MaxLifetime: maxLifetime * time.Second,
	})
}

// keys fetches the keys. It refuses a key that kube-apiserver does not read, or that fits none of its algorithms.
func (r *remote) keys(ctx context.Context) (published, verifyOnly []*jws.Key, err error) {
	answer, err := r.client.FetchKeys(ctx, &externaljwt.FetchKeysRequest{})
	if err != nil {
		return nil, nil, err
	}
	for i, k := range answer.GetKeys() {
		public, err := x509.ParsePKIXPublicKey(k.GetKey())
		if err != nil {
			return nil, nil, fmt.Errorf("got key %d of %d bytes, want PKIX: %w", i, len(k.GetKey()), err)
		}
		if k.GetKeyId() == "" { // from which jws would derive one
			return nil, nil, fmt.Errorf("got key %d without an ID, want an ID of 1 to 1024 bytes", i)
		}
		key, err := jws.NewKey(public, jws.KeyOptions{KeyID: k.GetKeyId()})
		if err != nil {
			return nil, nil, fmt.Errorf("got key %d, want one with which tokens verify: %w", i, err)
		}
		if k.GetExcludeFromOidcDiscovery() {
			verifyOnly = append(verifyOnly, key)
		} else {
			published = append(published, key)
		}
	}
	return published, verifyOnly, nil
}

// longest is the longest lifetime of a token in seconds.
func (r *remote) longest(ctx context.Context) (int64, error) {
	metadata, err := r.client.Metadata(ctx, &externaljwt.MetadataRequest{})
	return metadata.GetMaxTokenExpirationSeconds(), err
}

// checkKeys judges an answer to FetchKeys.
func checkKeys(ctx context.Context, r *remote) error {
	judge, err := r.judge(ctx)
	if err != nil {
		return err
	}
	if _, err := judge.FetchKeys(ctx); err != nil {
		return err
	}
	answer, err := r.client.FetchKeys(ctx, &externaljwt.FetchKeysRequest{})
	if err != nil {
		return err
	}
	if hint := answer.GetRefreshHintSeconds(); hint <= 0 {
		return fmt.Errorf("got a refresh hint of %d s, want more than 0", hint)
	}
	if err := answer.GetDataTimestamp().CheckValid(); err != nil {
		return fmt.Errorf("got a data timestamp that is no time, want when the keys were read: %w", err)
	}
	if ahead := time.Until(answer.GetDataTimestamp().AsTime()); ahead > claims.DefaultLeeway {
		return fmt.Errorf("got a data timestamp %s ahead, want at most %s", ahead.Round(time.Second), claims.DefaultLeeway)
	}
	return nil
}

// checkMetadata judges an answer to Metadata.
func checkMetadata(ctx context.Context, r *remote) error {
	seconds, err := r.longest(ctx)
	if err == nil && (seconds < minLifetime || seconds > maxLifetime) {
		err = fmt.Errorf("got a maximum lifetime of %d s, want %d to %d", seconds, minLifetime, maxLifetime)
	}
	return err
}
