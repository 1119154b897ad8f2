package gce

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/cloud/internal/metadata"
)

const (
	metadataRoot  = "/computeMetadata/v1/"
	maxAnswerSize = 256 // of project and instance IDs, in bytes
)

// SourceOptions says how a machine asks its metadata server. The zero value is right on
// Google Compute Engine.
type SourceOptions struct {
	// URL is the server's URL, "http://<host>" or "http://<host>:<port>"; "" means
	// http://169.254.169.254.
	URL string
	// Timeout limits one question, including all its tries, each of which has 10 seconds; zero
	// means 75 seconds.
	Timeout time.Duration
}

// Source is a Google Compute Engine machine that asks its metadata server for documents about
// itself, a [document.Source]. The machine must have a service account, which needs no role.
// It is safe for concurrent use, keeps no connection and uses no proxy.
type Source struct{ client *metadata.Client }

// NewSource makes a source. The error matches refusal.CheckConfig.
func NewSource(opts SourceOptions) (*Source, error) {
	client, err := metadata.New(opts.URL, opts.Timeout)
	if err != nil {
		return nil, err
	}
	return &Source{client}, nil
}

// NewProver makes the node's side of this kind, for attest.NewAttester. The error matches
// refusal.CheckConfig.
func NewProver(opts SourceOptions) (*document.Prover, error) {
	s, err := NewSource(opts)
	if err != nil {
		return nil, err
	}
	return document.NewProver(Provider, 1, s)
}

// Machine asks for the project ID and the instance ID. The error is a [*refusal.Error] with
// the check "metadata-server" or attest.CheckIdentity.
func (s *Source) Machine(ctx context.Context) (attest.Identity, error) {
	project, err := s.get(ctx, "project/project-id", maxAnswerSize, nil)
	if err != nil {
		return "", err
	}
	instance, err := s.get(ctx, "instance/id", maxAnswerSize, nil)
	if err != nil {
		return "", err
	}
	return parseIdentity(attest.Identity(identityKind + ":" + string(project) + "/" + string(instance)))
}

// Document asks for an identity token whose audience carries the value, 32 bytes, and reads
// it: one that the control plane would refuse for its contents is refused here. The errors are
// [*refusal.Error], with the check "metadata-server", the checks of a control plane's kind
// on a token that it reads, and attest.CheckQualifyingData if the token is for another value.
func (s *Source) Document(ctx context.Context, value []byte) ([]byte, error) {
	token, err := s.Token(ctx, audiencePrefix+base64.RawURLEncoding.EncodeToString(value))
	if err != nil {
		return nil, err
	}
	_, claims, err := read([]byte(token))
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(claims.Value, value) {
		return nil, attest.CheckQualifyingData.Refuse("a token for another value", "one for this challenge")
	}
	return []byte(token), nil
}

// Token asks for an identity token for an audience, with format=full, and does not look into
// it. It is a bearer token: anyone who sees it can present it to that audience.
func (s *Source) Token(ctx context.Context, audience string) (string, error) {
	token, err := s.get(ctx, "instance/service-accounts/default/identity?format=full&audience="+url.QueryEscape(audience), maxTokenSize, map[int]string{
		http.StatusNotFound:  "the token of a service account: attach one to the instance, which needs no role",
		http.StatusForbidden: "the instance's own metadata server, and no proxy in front of it: a pod of GKE asks another one, unless it is in the host's network",
	})
	return string(token), err
}

func (s *Source) get(ctx context.Context, path string, maxSize int, wants map[int]string) ([]byte, error) {
	if s == nil {
		s = &Source{}
	}
	return s.client.Do(ctx, metadata.Request{Path: metadataRoot + path, MaxSize: maxSize,
		Header: map[string]string{"Metadata-Flavor": "Google"}, Answer: "Metadata-Flavor", Value: "Google", Wants: wants})
}
