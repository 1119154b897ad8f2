package bootstraptokentest

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/internal/wallclock"
)

// Options configure a [Cluster]. The zero value of each field is a sensible
// default.
type Options struct {
	// Token is the cluster's token; the zero Token means a new one.
	Token bootstraptoken.Token
	// CAKey and ServingKey are the keys of the first CA and of the API server; nil means a new
	// P-256 key.
	CAKey, ServingKey crypto.Signer
	// Hosts are additional DNS names and IP addresses of the API server's certificate, which
	// always has 127.0.0.1, ::1 and localhost.
	Hosts []string
	// Server is the API server's URL in the discovery document; "" means that of the
	// listener, https://127.0.0.1:<port>.
	Server string
	// Now is the clock of certificates and of the signer; nil means time.Now.
	Now func() time.Time
}

// Cluster is an API server with its cluster-info ConfigMap. It is safe for concurrent use.
type Cluster struct {
	opts   Options
	server *httptest.Server

	mu       sync.Mutex
	cas      []*tls.Certificate // in the bundle, oldest first
	serving  *tls.Certificate
	key      crypto.Signer // of the API server
	secret   *bootstraptoken.Object
	data     map[string]string // of cluster-info
	handler  http.Handler      // of the API server, and what intercepts it
	requests []*http.Request
}

// New starts a cluster and closes it when the test ends. If that fails, so does the test.
func New(t testing.TB, opts Options) *Cluster {
	t.Helper()
	return forTest(t)(Open(opts))
}

// forTest takes over a cluster that was opened for a test.
func forTest(t testing.TB) func(*Cluster, error) *Cluster {
	return func(c *Cluster, err error) *Cluster {
		t.Helper()
		if err != nil {
			t.Fatalf("bootstraptokentest: %v", err)
		}
		t.Cleanup(func() { _ = c.Close() }) // which never fails
		return c
	}
}

// Open is [New] for use outside tests; the caller closes the cluster.
func Open(opts Options) (*Cluster, error) {
	opts.Now = wallclock.Or(opts.Now)
	c := &Cluster{opts: opts}
	c.Intercept(nil)
	c.server = httptest.NewUnstartedServer(http.HandlerFunc(c.serveHTTP))
	c.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // clients that hang up on impostors
	c.server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return &tls.Config{ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{*c.serving}}, nil
	}}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.server.StartTLS()
	return c, nil
}

// prepare makes the keys, certificates, token and discovery document.
func (c *Cluster) prepare() (err error) {
	if c.key, err = newKey(c.opts.ServingKey); err != nil {
		return err
	}
	ca, err := c.newAuthority(c.opts.CAKey)
	if err != nil {
		return err
	}
	c.cas = []*tls.Certificate{ca}
	if err = c.serve(); err != nil {
		return err
	}
	secret, err := bootstraptoken.Create(bootstraptoken.CreateOptions{Token: c.opts.Token}, c.opts.Now())
	if err != nil {
		return err
	}
	c.opts.Token = secret.Token
	if c.secret, err = secret.Object(); err != nil {
		return err
	}
	return c.publish(c.info())
}

// Close stops the API server, once the requests under way have ended. It never fails.
func (c *Cluster) Close() error {
	c.server.Close()
	return nil
}

// Address returns where the API server listens, 127.0.0.1:<port>.
func (c *Cluster) Address() string { return c.server.Listener.Addr().String() }

// URL returns the API server's URL, https://127.0.0.1:<port>.
func (c *Cluster) URL() string { return "https://" + c.Address() }

// Token returns the cluster's token.
func (c *Cluster) Token() bootstraptoken.Token { return c.opts.Token }

// Info returns the cluster's server and all CAs of its bundle.
func (c *Cluster) Info() *bootstraptoken.ClusterInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info()
}

func (c *Cluster) info() *bootstraptoken.ClusterInfo {
	info := &bootstraptoken.ClusterInfo{Server: cmp.Or(c.opts.Server, c.URL())}
	for _, ca := range c.cas {
		info.CAs = append(info.CAs, ca.Leaf)
	}
	return info
}

// DiscoverConfig is a joining node's configuration: the token, the address and the pins of the
// bundle. Discovery gives up after ten seconds, so that a test of an impostor ends.
func (c *Cluster) DiscoverConfig() bootstraptoken.DiscoverConfig {
	return bootstraptoken.DiscoverConfig{
		Token: c.Token(), Addresses: []string{c.Address()}, Pins: c.Info().Pins(),
		Network: bootstraptoken.Network{Timeout: 10 * time.Second, MinBackoff: time.Millisecond, MaxBackoff: 50 * time.Millisecond, Now: c.opts.Now},
	}
}

// Data returns a copy of the data of the cluster-info ConfigMap.
func (c *Cluster) Data() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.data)
}

// SetData has the API server serve other data in its cluster-info ConfigMap, nil for a missing
// object, until the next change of CAs.
func (c *Cluster) SetData(data map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data = maps.Clone(data)
}

// Sign brings the signature of the discovery document up to date, as a cluster's bootstrap
// signer does: after the token has expired, or after SetData.
func (c *Cluster) Sign() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sign()
}

func (c *Cluster) sign() error {
	if c.data == nil {
		return nil
	}
	signing, err := bootstraptoken.Sign(c.data, []*bootstraptoken.Object{c.secret}, c.opts.Now())
	if err == nil {
		c.data = signing.Data
	}
	return err
}

// Secret returns the token's Secret as the API would: it is a bootstraptoken.SecretGetter.
func (c *Cluster) Secret(_ context.Context, namespace, name string) (*bootstraptoken.Object, error) {
	if namespace != c.secret.Namespace || name != c.secret.Name {
		return nil, bootstraptoken.ErrNotFound
	}
	o := *c.secret
	return &o, nil
}

// newKey returns the key that was given, or a new one.
func newKey(given crypto.Signer) (crypto.Signer, error) {
	if given != nil {
		return given, nil
	}
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

func (c *Cluster) newAuthority(given crypto.Signer) (*tls.Certificate, error) {
	key, err := newKey(given)
	if err != nil {
		return nil, err
	}
	return c.certify(&x509.Certificate{
		Subject: pkix.Name{CommonName: fmt.Sprintf("bootstraptokentest CA %d", len(c.cas)+1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, NotAfter: c.opts.Now().AddDate(10, 0, 0),
	}, key, nil)
}

// certify makes a certificate that is valid from an hour ago, with a serial number that
// crypto/x509 chooses, by a CA or by the key itself.
func (c *Cluster) certify(template *x509.Certificate, key crypto.Signer, by *tls.Certificate) (*tls.Certificate, error) {
	template.NotBefore = c.opts.Now().Add(-time.Hour)
	if by == nil {
		by = &tls.Certificate{Leaf: template, PrivateKey: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Leaf, key.Public(), by.PrivateKey)
	if err != nil {
		return nil, err
	}
	made, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: made}, err
}

// serve gives the API server a certificate from the newest CA.
func (c *Cluster) serve() error {
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver"}, NotAfter: c.opts.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, host := range append([]string{"127.0.0.1", "::1", "localhost"}, c.opts.Hosts...) {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	serving, err := c.certify(template, c.key, c.cas[len(c.cas)-1])
	if err == nil {
		c.serving = serving
	}
	return err
}

// AddCA begins a rotation of the CA: a new one is added to the bundle, and the document is
// published and signed again. The API server keeps its certificate.
func (c *Cluster) AddCA() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ca, err := c.newAuthority(nil)
	if err != nil {
		return err
	}
	c.cas = append(c.cas, ca)
	return c.publish(c.info())
}

// UseNewCA continues the rotation: the API server gets a certificate from the newest CA.
func (c *Cluster) UseNewCA() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.serve()
}

// DropOldCAs ends the rotation: only the newest CA stays in the bundle, and the document is
// published and signed again.
func (c *Cluster) DropOldCAs() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cas = c.cas[len(c.cas)-1:]
	return c.publish(c.info())
}

// publish makes a discovery document and signs it.
func (c *Cluster) publish(info *bootstraptoken.ClusterInfo) (err error) {
	if c.data, err = info.Data(); err != nil {
		return err
	}
	return c.sign()
}
