package apiclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	// maxAnswer bounds a response, or all events of a watch, in bytes. A request is at most
	// 64 KiB, and is encoded in base64 twice.
	maxAnswer = 1 << 20
	// maxValues bounds the number of JSON elements and members, of which each can take more than a
	// hundred bytes of memory. A request has some dozens.
	maxValues = 16 << 10
	// maxHeaders bounds the headers of a response, in bytes.
	maxHeaders = 64 << 10
)

// CheckAnswer is the check that fails for a response that no API server gives: a redirect, or a
// response that exceeds the bounds.
const CheckAnswer refusal.Check = "api-server-answer"

// transport builds the HTTP client with the CA, the server name, the proxy and the credential of the
// configuration. client-go's own takes keys only in PEM, and caches transports for ever.
func (c *Client) transport(config *rest.Config, certificate *tls.Certificate) (*http.Client, error) {
	t, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	if t == nil {
		t = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if certificate != nil {
		t.Certificates, t.GetClientCertificate = []tls.Certificate{*certificate}, nil
	}
	own := utilnet.SetTransportDefaults(&http.Transport{ // with HTTP/2 and its pings
		TLSClientConfig: t, Proxy: proxyOf(config), DialContext: recovered.Dial(c.dialer(config.Dial)), TLSHandshakeTimeout: callLimit, ResponseHeaderTimeout: callLimit,
		DisableCompression: true, MaxResponseHeaderBytes: maxHeaders,
	})
	rt, err := rest.HTTPWrappersForConfig(config, &bounded{Transport: own, c: c})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: rt, CheckRedirect: func(*http.Request, []*http.Request) error {
		return &refusal.Error{Check: CheckAnswer, Got: "a redirect", Want: "an answer"}
	}}, nil
}

func proxyOf(c *rest.Config) func(*http.Request) (*url.URL, error) {
	if c.Proxy != nil {
		return c.Proxy
	}
	return http.ProxyFromEnvironment
}

// dialer returns a dial function whose connections Close closes.
func (c *Client) dialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if err := c.keep(nil); err != nil {
			return nil, err
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return conn, c.keep(conn)
	}
}

// errClosed must not have the text of net.ErrClosed, after which client-go would try again.
var errClosed = errors.New("the client is closed")

// keep remembers conn, if it is not nil, for Close. After Close it closes conn and fails.
func (c *Client) keep(conn net.Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case conn != nil && c.closed:
		return errors.Join(errClosed, conn.Close())
	case c.closed:
		return errClosed
	case conn != nil:
		c.conns = append(c.conns, conn)
	}
	return nil
}

// bounded limits responses.
type bounded struct {
	*http.Transport
	c *Client
}

func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	b.c.verified(answer.TLS)
	if kind := answer.Header.Get("Content-Type"); kind != "" {
		if media, _, err := mime.ParseMediaType(kind); err != nil || media != "application/json" {
			answer.Header.Set("Content-Type", "text/plain") // so that nothing is decoded
		}
	}
	answer.Body = &body{answer.Body, maxAnswer, maxValues}
	return answer, nil
}

// body is a response body that fails to be read beyond the bounds.
type body struct {
	io.ReadCloser
	bytes, values int
}

func (b *body) Read(p []byte) (int, error) {
	if b.bytes <= 0 || b.values <= 0 {
		return 0, &refusal.Error{Check: CheckAnswer, Got: "a larger response", Want: "at most " + strconv.Itoa(maxAnswer) + " bytes and " + strconv.Itoa(maxValues) + " values"}
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.bytes)])
	b.bytes -= n
	b.values -= bytes.Count(p[:n], []byte(","))
	return n, err
}

// verified remembers the CA of the first connection.
func (c *Client) verified(state *tls.ConnectionState) {
	if state == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ca == nil {
		c.ca = nearest(state.VerifiedChains, c.cas)
	}
}

func (c *Client) verifiedBy() *x509.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ca
}

// nearest returns the CA at the end of the shortest chain and, of several, the CA that is first in cas.
func nearest(chains [][]*x509.Certificate, cas []*x509.Certificate) *x509.Certificate {
	var found *x509.Certificate
	length, place := 0, 0
	for _, chain := range chains {
		ca := chain[len(chain)-1]
		at := slices.IndexFunc(cas, ca.Equal)
		if found == nil || len(chain) < length || len(chain) == length && at < place {
			found, length, place = ca, len(chain), at
		}
	}
	return found
}
