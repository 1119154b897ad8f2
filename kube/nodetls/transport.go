package nodetls

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"sync"
	"time"
)

// The limits of a transport that has none.
const (
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 90 * time.Second
	maxHeader        = 64 << 10
	// An HTTP/2 connection that is silent for pingAfter is asked for a sign of life, and closed without one.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// Transport returns an HTTP client's transport whose connections have the configuration of
// [Certificate.TLSConfig]. Once the file has a new certificate, no request uses a
// connection of the previous one: running requests end on theirs, which are closed when they are idle.
//
// base has the other settings; nil means a zero http.Transport with HTTP/2. It is copied, with
// TLSHandshakeTimeout 10 s, IdleConnTimeout 90 s and MaxResponseHeaderBytes 64 KiB where they are 0, and
// HTTP/2's pings after 30 s where HTTP2 is nil. It must dial its TLS connections itself, so DialTLS and
// DialTLSContext are not used, nor the protocols in TLSNextProto, as of golang.org/x/net/http2.ConfigureTransport:
// copies share their connections, whatever the certificate. An empty TLSNextProto still means no HTTP/2. The
// result has the method CloseIdleConnections, for http.Client.
func (c *Certificate) Transport(base *http.Transport) http.RoundTripper {
	if base == nil {
		base = &http.Transport{MaxResponseHeaderBytes: maxHeader}
	}
	base = base.Clone()
	if base.TLSClientConfig == nil {
		base.TLSClientConfig = new(tls.Config)
	}
	base.TLSClientConfig = c.configure(base.TLSClientConfig)
	if len(base.TLSNextProto) > 0 {
		base.TLSNextProto = nil
	}
	base.ForceAttemptHTTP2 = base.ForceAttemptHTTP2 || base.TLSNextProto == nil
	base.DialTLS, base.DialTLSContext = nil, nil //nolint:staticcheck // the deprecated one would be used, too
	base.TLSHandshakeTimeout = cmp.Or(base.TLSHandshakeTimeout, handshakeTimeout)
	base.IdleConnTimeout = cmp.Or(base.IdleConnTimeout, idleTimeout)
	base.MaxResponseHeaderBytes = cmp.Or(base.MaxResponseHeaderBytes, maxHeader)
	base.HTTP2 = cmp.Or(base.HTTP2, &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout})
	return &transport{certificate: c, base: base}
}

// transport has one http.Transport for each certificate.
type transport struct {
	certificate *Certificate
	base        *http.Transport // is only copied

	mu   sync.Mutex
	now  *http.Transport
	leaf *x509.Certificate // the connections of now have this certificate, or a later one
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	now, err := t.current()
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // http.RoundTripper
		}
		return nil, err
	}
	return now.RoundTrip(r)
}

// current returns the transport of the current certificate.
func (t *transport) current() (*http.Transport, error) {
	pair, err := t.certificate.current()
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == nil || !t.leaf.Equal(pair.Leaf) {
		t.close()
		t.now, t.leaf = t.base.Clone(), pair.Leaf
	}
	return t.now, nil
}

// close closes idle connections; those in use are closed once they are idle.
func (t *transport) close() {
	if t.now != nil {
		t.now.CloseIdleConnections()
	}
}

// CloseIdleConnections is http.Client's.
func (t *transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.close()
}
