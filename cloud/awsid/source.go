package awsid

import (
	"bytes"
	"context"
	"encoding/base64"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/cloud/internal/metadata"
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
}

// Source is an Amazon EC2 instance that asks its metadata server, version 2 (IMDSv2), with a
// session token and without a proxy. In a container the server answers only if the instance's
// hop limit is 2 or more. It is safe for concurrent use.
type Source struct{ client *metadata.Client }

// NewSource makes a source. The error matches refusal.CheckConfig.
func NewSource(opts SourceOptions) (*Source, error) {
	client, err := metadata.New(opts.URL, metadata.EC2URL, opts.Timeout)
	if err != nil {
		return nil, err
	}
	return &Source{client}, nil
}

// Document asks for the instance's signed document: the bytes that [Verify] takes. The error
// is a [*refusal.Error] with the check "metadata-server" or the check "awsid-encoding".
func (s *Source) Document(ctx context.Context) ([]byte, error) {
	if s == nil {
		s = &Source{}
	}
	text, err := s.client.EC2(ctx, "/latest/dynamic/instance-identity/rsa2048", 2*maxSize)
	if err != nil {
		return nil, err
	}
	return ParseBase64(text)
}

// ParseBase64 reads what /rsa2048 serves: base64 (RFC 4648, section 4) in lines of any length that end
// with LF or CRLF, without armour. The error is a [*refusal.Error] with the check "awsid-size" or
// "awsid-encoding".
func ParseBase64(text []byte) ([]byte, error) {
	if len(text) > 2*maxSize {
		return nil, refuse(checkSize, strconv.Itoa(len(text))+" bytes", "at most "+strconv.Itoa(2*maxSize))
	}
	text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r\n"), nil), []byte("\n"), nil)
	data := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(data, text)
	if err != nil || bytes.ContainsAny(text, "\r") || n == 0 {
		return nil, refuse(checkEncoding, "no base64", "that of a signed document")
	}
	return data[:n], nil
}
