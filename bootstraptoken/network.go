package bootstraptoken

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nodeattest/nodeattest/internal/fetch"
	"github.com/nodeattest/nodeattest/internal/wallclock"
	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
)

// The reasons why a server's answer is not used.
const (
	// checkRedirect: a redirect where none is followed, one that is not to https, or too many of
	// them.
	checkRedirect Check = "redirect"
	// checkReply: an answer that is too large, is compressed or has the wrong content type.
	checkReply Check = "reply"
	// CheckCertificate: the server's certificate does not chain to the CAs, is not for the
	// host's name, or is not valid now.
	CheckCertificate Check = "server-certificate"
	// checkForbidden: HTTP status 401 or 403: the server does not let everybody read it. It
	// comes with [refusal.ErrRetry], since the role that allows it may be added later, except
	// from [Refresh].
	checkForbidden Check = "forbidden"
	// checkStatus: an HTTP status other than 200. It comes with [refusal.ErrRetry].
	checkStatus Check = "http-status"
)

// The defaults for zero fields of a [Network].
const (
	defaultTimeout        = 5 * time.Minute
	defaultRequestTimeout = 10 * time.Second
	defaultMinBackoff     = time.Second
	defaultMaxBackoff     = 5 * time.Second
)

// Network says how servers are reached. Nothing that it sends carries a credential: no bearer
// token, no client certificate, no cookie. The zero Network is ready to use.
type Network struct {
	// Timeout limits the whole call, retries and waiting included; 0 means 5 minutes. The
	// context may end it earlier.
	Timeout time.Duration
	// RequestTimeout limits one request, from dialling to the last byte; 0 means
	// 10 s.
	RequestTimeout time.Duration
	// MinBackoff is the wait after the first round over all addresses, and MaxBackoff the
	// longest wait: it doubles from round to round, and each wait is lengthened by up to a
	// fifth at random. 0 means 1 s and 5 s.
	MinBackoff, MaxBackoff time.Duration
	// Dial opens TCP connections; nil means a [net.Dialer].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Proxy chooses the proxy of a request, as in [http.Transport]; nil means none. A proxy
	// reached over TLS (https) is refused with [refusal.CheckConfig]. The environment is not
	// consulted unless this is [http.ProxyFromEnvironment].
	Proxy func(*http.Request) (*url.URL, error)
	// SystemRoots replaces the system's roots; nil means [x509.SystemCertPool].
	SystemRoots *x509.CertPool
	// Now is the clock by which certificates are judged; nil means [time.Now].
	Now func() time.Time
}

// check refuses negative durations.
func (n *Network) check() error {
	for name, d := range map[string]time.Duration{"Timeout": n.Timeout, "RequestTimeout": n.RequestTimeout, "MinBackoff": n.MinBackoff, "MaxBackoff": n.MaxBackoff} {
		if d < 0 {
			return refusal.Config(name, d.String(), "no negative duration")
		}
	}
	return nil
}

func (n *Network) now() time.Time { return wallclock.Or(n.Now)() }

// roots returns the roots of info, with SystemRoots in place of the system's.
func (n *Network) roots(info *ClusterInfo) (*x509.CertPool, error) {
	if info.SystemRoots && n.SystemRoots != nil {
		return n.SystemRoots, nil
	}
	return info.Roots()
}

// A request is one GET without credentials.
type request struct {
	url     *url.URL
	tls     *tls.Config
	maxSize int
	json    bool // the answer must be JSON
	// redirect decides whether to follow a redirect.
	redirect func(*http.Request, []*http.Request) error
}

// proxy refuses a proxy reached over TLS: the configuration for the server, which may skip
// verification, would apply to the proxy too, and the proxy is sent the credentials in its URL.
func (n *Network) proxy(r *http.Request) (*url.URL, error) {
	if n.Proxy == nil {
		return nil, nil
	}
	proxy, err := n.Proxy(r)
	if err != nil { // whose text may repeat the proxy's password
		return nil, refusal.Retry(errors.New("the proxy could not be determined"))
	}
	if proxy != nil && proxy.Scheme == "https" {
		return nil, refusal.Config("Proxy", "over https", "http or socks5")
	}
	return proxy, nil
}

// verifiedTLS is the configuration for a server that is verified by roots, which must not be
// nil.
func (n *Network) verifiedTLS(roots *x509.CertPool) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Time: n.now}
}

// insecureTLS is the configuration for the one fetch whose answer is believed only for its
// signature: it is not yet known which CA identifies the server.
func (n *Network) insecureTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, Time: n.now}
}

// get makes a request, and returns the body of the response, and the response. The error
// matches refusal.ErrRetry unless the server's answer is refused.
func (n *Network) get(ctx context.Context, r *request) ([]byte, *http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(n.RequestTimeout, defaultRequestTimeout))
	defer cancel()
	var sent atomic.Bool // a URL has reached a server, which may repeat it
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	limits := fetch.Limits{Redirect: r.redirect} // the context limits the time, and maxSize the body
	transport := limits.Transport(n.proxy)
	transport.DialContext, transport.TLSClientConfig = recovered.Dial(n.Dial), r.tls
	header := map[string]string{"Accept-Encoding": "identity"}
	if r.json {
		header["Accept"] = "application/json"
	}
	res, err := fetch.Do(ctx, limits.Client(transport), http.MethodGet, r.url.String(), header)
	switch {
	case errors.Is(err, fetch.ErrRequest):
		return nil, nil, &Error{Check: checkServer, Got: "a URL that is refused", Want: wantServer}
	case err != nil:
		return nil, nil, transportError(err, sent.Load())
	}
	defer func() { _ = res.Body.Close() }()
	body, err := readReply(res, r)
	return body, res, err
}

func refuseRedirect(*http.Request, []*http.Request) error {
	return &Error{Check: checkRedirect, Got: "a redirect", Want: "an answer"}
}

// transportError distinguishes a refusal from a server that was not reached. It repeats
// nothing that came after a URL was sent, whose query may be a secret.
func transportError(err error, sent bool) error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	untrusted, ok := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case ok && sent:
		return &Error{Check: CheckCertificate, Got: "that of a server to which it was redirected"}
	case ok:
		return &Error{Check: CheckCertificate, Err: untrusted.Err}
	case sent:
		err = withoutAnswer(err)
	}
	return refusal.Retry(err)
}

// withoutAnswer keeps, of an error that came with or after an answer, only what no server
// wrote.
func withoutAnswer(err error) error {
	for _, known := range []error{context.Canceled, context.DeadlineExceeded, io.ErrUnexpectedEOF, io.EOF} {
		if errors.Is(err, known) {
			return known
		}
	}
	if number := syscall.Errno(0); errors.As(err, &number) {
		return number
	}
	return errors.New("no answer, or one that is not HTTP")
}

func readReply(res *http.Response, r *request) ([]byte, error) {
	if res.StatusCode != http.StatusOK {
		return nil, refusal.Retry(statusError(res.StatusCode, r.json))
	}
	if coding := res.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, &Error{Check: checkReply, Got: "the content encoding " + refusal.Quote(coding), Want: "none, as requested"}
	}
	if r.json {
		kind := res.Header.Get("Content-Type")
		if media, _, err := mime.ParseMediaType(kind); media == "text/html" {
			return nil, &Error{Check: checkReply, Got: "a web page", Want: "an API server's application/json"}
		} else if err != nil || media != "application/json" {
			return nil, &Error{Check: checkReply, Got: "the content type " + refusal.Quote(kind), Want: "application/json"}
		}
	}
	body, more, err := fetch.Body(res, r.maxSize)
	switch {
	case more:
		return nil, &Error{Check: checkReply, Got: "more than " + strconv.Itoa(r.maxSize) + " bytes", Want: "no more"}
	case err != nil:
		return nil, refusal.Retry(withoutAnswer(err))
	}
	return body, nil
}

// statusError is the error of an HTTP status. For the ConfigMap cluster-info it adds the likely
// cause: 401 and 403 end only when an operator allows the request.
func statusError(status int, clusterInfo bool) error {
	e := &Error{Check: checkStatus, Got: strconv.Itoa(status), Want: "200"}
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		e.Check = checkForbidden
	}
	switch {
	case !clusterInfo:
	case status == http.StatusUnauthorized:
		e.Got += ": the API server takes no anonymous requests"
		e.Want += ": allow them for cluster-info in its AuthenticationConfiguration, or bring the discovery document in a file"
	case status == http.StatusForbidden:
		e.Got += ": anonymous requests may not read cluster-info"
		e.Want += ": a RoleBinding for system:anonymous in kube-public, as kubeadm's kubeadm:bootstrap-signer-clusterinfo"
	case status == http.StatusNotFound:
		e.Got += ": no ConfigMap cluster-info in kube-public, or no API server"
		e.Want += ": a cluster that publishes it, as kubeadm's do"
	}
	return e
}

// clusterInfo reads the ConfigMap from a server, and returns its data and the connection over
// which it came. With insecureTLS the data may be believed only for its signature.
func (n *Network) clusterInfo(ctx context.Context, server *url.URL, config *tls.Config) (map[string]string, *tls.ConnectionState, error) {
	body, reply, err := n.get(ctx, &request{
		url: server.JoinPath(clusterInfoPath), tls: config, maxSize: maxConfigMapSize, json: true, redirect: refuseRedirect,
	})
	if err != nil {
		return nil, nil, err
	}
	data, err := parseConfigMap(body)
	return data, reply.TLS, err
}

// The reasons why an API server's URL is refused.
const (
	// checkServer: not https://host[:port][/path] in plain ASCII, with a host that is
	// a DNS name or an IP address: no query, fragment, dot segments or empty port.
	checkServer Check = "server-url"
	// checkServerScheme: the URL's scheme is not https.
	checkServerScheme Check = "server-url-scheme"
)

const wantServer = "https://host[:port][/path]"

// inURL are the characters that a server's URL may contain.
const inURL = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._~:/[]@%+,="

// parseServer reads an API server's URL. Whatever it accepts is written in YAML without
// quotes.
func parseServer(s string) (*url.URL, error) {
	u, err := parseURL(s)
	if err != nil {
		return nil, err
	}
	path, port := u.EscapedPath(), u.Port()
	_, err = strconv.ParseUint(port, 10, 16)
	dots := func(segment string) bool { return segment == "." || segment == ".." }
	var why string
	switch other := strings.TrimLeft(s, inURL); {
	case other != "":
		why = "a URL with the character " + refusal.Quote(other[:1])
	case !strings.HasPrefix(s, "https://"):
		why = "a URL that does not begin with https://"
	case port != "" && (err != nil || port[0] == '0'):
		why = "the port " + strconv.Quote(port)
	case strings.HasSuffix(u.Host, ":"):
		why = "an empty port"
	case strings.HasSuffix(s, ":") || strings.Contains(path, "//"), slices.ContainsFunc(strings.Split(u.Path, "/"), dots):
		why = "the path " + strconv.Quote(path)
	default:
		return u, nil
	}
	return nil, &Error{Check: checkServer, Got: why, Want: wantServer}
}

// parseURL reads an https URL of at most 2048 bytes, without a user.
func parseURL(s string) (*url.URL, error) {
	if s == "" || len(s) > maxServerSize {
		return nil, &Error{Check: checkServer, Got: strconv.Itoa(len(s)) + " bytes", Want: wantServer}
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, &Error{Check: checkServer, Got: "a text that is no URL", Want: wantServer}
	}
	return u, checkURL(u)
}

func checkURL(u *url.URL) error {
	switch {
	case u.User != nil:
		return &Error{Check: checkCredentials, Got: "a URL with a user", Want: wantServer}
	case u.Scheme != "https":
		return &Error{Check: checkServerScheme, Got: refusal.Quote(u.Scheme), Want: "https"}
	case !isHost(u.Hostname()):
		return &Error{Check: checkServer, Got: "the host " + refusal.Quote(u.Host), Want: "a DNS name or an IP address"}
	}
	return nil
}

// parseAddress reads an API server's address as people write it: a host or host:port,
// or its URL.
func parseAddress(s string) (*url.URL, error) {
	if strings.Contains(s, "://") {
		return parseServer(s)
	}
	if ip, err := netip.ParseAddr(s); err == nil && ip.Is6() {
		s = "[" + s + "]"
	}
	if strings.Contains(s, "/") {
		return nil, &Error{Check: checkServer, Got: "an address with a path and no scheme", Want: "host[:port] or " + wantServer}
	}
	return parseServer("https://" + s)
}

// dnsName matches what looks like a DNS name: labels separated by dots, and perhaps a trailing
// dot.
var dnsName = pattern(`\A` + dnsLabel + `(\.` + dnsLabel + `)*\.?\z`)

const dnsLabel = `[0-9A-Za-z_]([0-9A-Za-z_-]{0,61}[0-9A-Za-z_])?`

// isHost reports whether s is an IP address without a zone, or looks like a DNS name.
func isHost(s string) bool {
	if strings.Contains(s, ":") {
		ip, err := netip.ParseAddr(s)
		return err == nil && ip.Is6() && ip.Zone() == ""
	}
	return len(s) <= 253 && dnsName().MatchString(s)
}

// withoutQuery returns a server's URL as shown to people.
func withoutQuery(u *url.URL) string { return u.Scheme + "://" + u.Host + u.EscapedPath() }

// sameServer reports whether two server URLs name the same host, port and path.
func sameServer(a, b *url.URL) bool {
	return hostOf(a) == hostOf(b) && cmp.Or(a.Port(), "443") == cmp.Or(b.Port(), "443") &&
		strings.TrimSuffix(a.EscapedPath(), "/") == strings.TrimSuffix(b.EscapedPath(), "/")
}

// hostOf is the one spelling of a URL's host: of a name in lower case without a dot at its end, or
// of an address.
func hostOf(u *url.URL) string {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return host
}
