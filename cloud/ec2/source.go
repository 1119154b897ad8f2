package ec2

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/smithy-go/aws-http-auth/credentials"
	"github.com/aws/smithy-go/aws-http-auth/sigv4"
	v4 "github.com/aws/smithy-go/aws-http-auth/v4"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/cloud/internal/metadata"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	documentPath    = "/latest/dynamic/instance-identity/rsa2048"
	credentialsPath = "/latest/meta-data/iam/security-credentials/"

	maxDocumentText = 16 << 10
	maxCredentials  = 8 << 10
)

// SourceOptions says how an instance asks its metadata server. The zero value is right on
// Amazon EC2.
type SourceOptions struct {
	// URL is the server's URL, "http://<host>" or "http://<host>:<port>"; "" means
	// http://169.254.169.254. Over IPv6 it is http://[fd00:ec2::254].
	URL string
	// Timeout limits one question, including all its tries, each of which has 10 seconds; zero
	// means 75 seconds.
	Timeout time.Duration
	// Now is the clock of signatures, which STS allows to be 15 minutes off; nil means time.Now.
	Now func() time.Time
}

// Source is an Amazon EC2 instance with a role, which asks its metadata server, version 2 (IMDSv2),
// for its identity document and its credentials, with a session token and without a proxy, and signs
// requests itself: it asks STS nothing. In a container the server answers only if the instance's
// hop limit is 2 or more. It is safe for concurrent use, and keeps no connection and no credentials.
type Source struct {
	client *metadata.Client
	now    func() time.Time
}

// NewSource makes a source. The error matches [refusal.CheckConfig].
func NewSource(opts SourceOptions) (*Source, error) {
	client, err := metadata.New(opts.URL, opts.Timeout)
	if err != nil {
		return nil, err
	}
	s := &Source{client, opts.Now}
	if s.now == nil {
		s.now = time.Now
	}
	return s, nil
}

// NewProver is the node's side of this kind of evidence. The error matches
// [refusal.CheckConfig].
func NewProver(opts SourceOptions) (*document.Prover, error) {
	s, err := NewSource(opts)
	if err != nil {
		return nil, err
	}
	return document.NewProver(Provider, 1, s)
}

// Machine reads the instance's identity document for the names in it. The error is a
// [*refusal.Error] with the check "metadata-server", one of package awsid, or "ec2-region".
func (s *Source) Machine(ctx context.Context) (attest.Identity, error) {
	_, d, err := s.document(ctx)
	if err != nil {
		return "", err
	}
	return nitro.Identity(d.Region, d.InstanceID)
}

// Document signs a request over a value of 32 bytes with the credentials of the instance's role, and
// puts the identity document before it. The error is as for Machine, or has the check
// "ec2-request-value" or "ec2-request-query".
func (s *Source) Document(ctx context.Context, value []byte) ([]byte, error) {
	if len(value) != valueSize {
		return nil, checkValue.Refuse(refusal.Hex(value), "32 bytes")
	}
	pkcs7, d, err := s.document(ctx)
	if err != nil {
		return nil, err
	}
	at, err := endpointOf(d.Region)
	if err != nil {
		return nil, err
	}
	c, err := s.credentials(ctx)
	if err != nil {
		return nil, err
	}
	request, err := sign(c, at, value, s.now())
	if err != nil {
		return nil, err
	}
	return (&evidence{pkcs7, request.sent(at)}).marshal()
}

func (s *Source) get(ctx context.Context, path string, most int) ([]byte, error) {
	if s == nil {
		s = &Source{}
	}
	return s.client.EC2(ctx, path, most)
}

// document asks for the instance's signed document, and reads it.
func (s *Source) document(ctx context.Context) ([]byte, *awsid.Document, error) {
	text, err := s.get(ctx, documentPath, maxDocumentText)
	if err != nil {
		return nil, nil, err
	}
	pkcs7, err := awsid.ParseBase64(text)
	if err != nil {
		return nil, nil, err
	}
	d, err := awsid.ParseInsecure(pkcs7)
	return pkcs7, d, err
}

// credentials asks for the current credentials of the instance's role. No error has the server's text.
func (s *Source) credentials(ctx context.Context) (credentials.Credentials, error) {
	var c credentials.Credentials
	bad := func(got string) error {
		return metadata.CheckMetadata.Refuse(got, "the credentials of a role: attach an instance profile with one that the control plane lists")
	}
	role, err := s.get(ctx, credentialsPath, maxName+2)
	if status, _ := metadata.StatusOf(err); status == http.StatusNotFound {
		return c, bad("no role")
	}
	if err != nil {
		return c, err
	}
	name := strings.TrimSpace(string(role))
	if _, ok := parseRole("arn:aws:iam::000000000000:role/" + name); !ok || strings.Contains(name, "/") {
		return c, bad("a role " + refusal.Quote(name))
	}
	text, err := s.get(ctx, credentialsPath+name, maxCredentials)
	if err != nil {
		return c, err
	}
	var code string
	err = strictjson.Fields{"Code": strictjson.Into(&code), "AccessKeyId": strictjson.Into(&c.AccessKeyID),
		"SecretAccessKey": strictjson.Into(&c.SecretAccessKey), "Token": strictjson.Into(&c.SessionToken)}.Parse(text)
	if err != nil || code != "Success" || c.SecretAccessKey == "" {
		return credentials.Credentials{}, bad("an answer without credentials")
	}
	return c, nil
}

// sign signs a request over a value.
func sign(c credentials.Credentials, e *endpoint, value []byte, at time.Time) (*signedRequest, error) {
	r := &signedRequest{accessKeyID: c.AccessKeyID, token: c.SessionToken, at: at.UTC().Truncate(time.Second), value: value}
	request, err := http.NewRequest(http.MethodGet, "https://"+e.host+"/", nil)
	if err != nil {
		return nil, checkHost.Refuse("a request that cannot be made", e.host)
	}
	request.Header.Set(valueHeader, hex.EncodeToString(value))
	query := url.Values{}
	for _, p := range parameters() {
		if p[1] != "" && p[0] != signed {
			query.Set(p[0], p[1]) // the signer adds the others
		}
	}
	request.URL.RawQuery = query.Encode()
	nothing := sha256.Sum256(nil)
	if err := sigv4.New().SignRequest(&sigv4.SignRequestInput{Request: request, PayloadHash: nothing[:], Credentials: c, Service: service,
		Region: e.region, Time: r.at, SignatureType: v4.SignatureTypeQueryString}, func(o *v4.SignerOptions) { o.HeaderRules = rules{} }); err != nil {
		return nil, checkQuery.Refuse("a request that is not signed", "one")
	}
	r.signature = request.URL.Query().Get(signature)
	return r, r.checkForms()
}

// rules choose the signed headers: the host, and the header with the value.
type rules struct{}

// IsSigned reports whether a header is signed.
func (rules) IsSigned(name string) bool { return name == "host" || name == valueHeader }
