package bootstraptokentest

import (
	"crypto"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/bootstraptoken"
)

// Options say what cluster is wanted. Each zero field is a sensible default.
type Options struct {
	// Token is the cluster's first token; the zero Token means a new one.
	Token bootstraptoken.Token
	// NoToken has the cluster begin without any.
	NoToken bool
	// CAKey and ServingKey are the keys of the first CA and of the API server; nil
	// means a new P-256 key each.
	CAKey, ServingKey crypto.Signer
	// Hosts are further DNS names and IP addresses of the API server's certificate,
	// which is for 127.0.0.1, ::1 and localhost.
	Hosts []string
	// Server is the API server's URL in the discovery document; "" means that of the
	// listener, https://127.0.0.1:<port>.
	Server string
	// Now is the clock of certificates and of the signer; nil means time.Now.
	Now func() time.Time
}

// Cluster is an API server and what it serves. It is safe for concurrent use.
type Cluster struct {
	address string
	options Options
	token   bootstraptoken.Token // the first
	close   func() error

	mu       sync.Mutex
	cas      []*authority // in the bundle, oldest first
	serving  *tls.Certificate
	key      crypto.Signer // of the API server
	secrets  map[string]*bootstraptoken.Secret
	data     map[string]string // of cluster-info
	fault    *Fault
	requests []Request
}

// New starts a cluster and closes it when the test ends. It fails the test if that does
// not work.
func New(t testing.TB, opts Options) *Cluster {
	t.Helper()
	c, err := Open(opts)
	if err != nil {
		t.Fatalf("bootstraptokentest: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("bootstraptokentest: %v", err)
		}
	})
	return c
}

// Open is [New] for use outside tests; the caller closes the cluster.
func Open(opts Options) (*Cluster, error) {
	c := &Cluster{options: opts, secrets: map[string]*bootstraptoken.Secret{}}
	if c.options.Now == nil {
		c.options.Now = time.Now
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c.address = listener.Addr().String()
	if err := c.prepare(); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	c.serve(listener)
	return c, nil
}

// prepare makes keys, certificates, token and discovery document.
func (c *Cluster) prepare() (err error) {
	if c.key, err = newKey(c.options.ServingKey); err != nil {
		return err
	}
	ca, err := c.newAuthority(c.options.CAKey)
	if err != nil {
		return err
	}
	c.cas = []*authority{ca}
	if c.serving, err = ca.issue(c); err != nil {
		return err
	}
	if err := c.publish(); err != nil {
		return err
	}
	if c.options.NoToken {
		return nil
	}
	c.token = c.options.Token
	if c.token.IsZero() {
		c.token = bootstraptoken.Generate()
	}
	return c.addSecret(&bootstraptoken.Secret{Token: c.token, Expiration: c.options.Now().Add(24 * time.Hour).UTC().Truncate(time.Second),
		Usages: bootstraptoken.Usages{Signing: true, Authentication: true}})
}

func (c *Cluster) serve(listener net.Listener) {
	server := &http.Server{
		Handler: http.HandlerFunc(c.serveHTTP),
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			ClientAuth: tls.RequestClientCert,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.serving, nil
			},
		},
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // clients that hang up on impostors
	}
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(listener, "", "") }()
	c.close = sync.OnceValue(func() error {
		err := server.Close()
		if serveErr := <-done; !errors.Is(serveErr, http.ErrServerClosed) {
			err = errors.Join(err, serveErr)
		}
		return err
	})
}

// Close stops the API server and closes the keys that the cluster made in a TPM.
func (c *Cluster) Close() error { return c.close() }

// Address is where the API server listens, 127.0.0.1:<port>.
func (c *Cluster) Address() string { return c.address }

// URL is the API server's, https://127.0.0.1:<port>.
func (c *Cluster) URL() string { return "https://" + c.address }

// Token is the cluster's first token, the zero Token if there was none.
func (c *Cluster) Token() bootstraptoken.Token { return c.token }

// Info is what the cluster would have clients know: its server and all CAs of its bundle.
func (c *Cluster) Info() *bootstraptoken.ClusterInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info()
}

func (c *Cluster) info() *bootstraptoken.ClusterInfo {
	info := &bootstraptoken.ClusterInfo{Server: c.options.Server}
	if info.Server == "" {
		info.Server = c.URL()
	}
	for _, ca := range c.cas {
		info.CAs = append(info.CAs, ca.certificate)
	}
	return info
}

// DiscoverConfig is what a joining node is given: the first token, the address and the
// pins of the bundle. It gives up after ten seconds, so that a test of an impostor ends.
func (c *Cluster) DiscoverConfig() bootstraptoken.DiscoverConfig {
	return bootstraptoken.DiscoverConfig{
		Token: c.token, Addresses: []string{c.address}, Pins: c.Info().Pins(),
		Network: bootstraptoken.Network{Timeout: 10 * time.Second, MinBackoff: time.Millisecond, MaxBackoff: 50 * time.Millisecond, Now: c.options.Now},
	}
}

// Data is a copy of the data of the cluster-info ConfigMap.
func (c *Cluster) Data() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.data)
}

// SetData has the API server serve other data in its cluster-info ConfigMap, nil for an
// object that is not there, until the next change of tokens or CAs.
func (c *Cluster) SetData(data map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data = maps.Clone(data)
}
