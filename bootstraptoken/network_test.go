package bootstraptoken_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
	"github.com/nodeattest/nodeattest/refusal"
)

// What speaks, but not as an API server does, may be one later: it is tried again, and
// not believed.
func TestServersThatAreNone(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	old := httptest.NewUnstartedServer(http.NotFoundHandler())
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11}
	old.Config.ErrorLog = nil
	old.StartTLS()
	t.Cleanup(old.Close)
	chatty, _ := web(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", strings.Repeat("x", 1<<20))
	})
	cutOff, _ := web(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"kind":`)
	})
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	for name, address := range map[string]string{
		"no TLS":        plain.Listener.Addr().String(),
		"TLS 1.1":       old.Listener.Addr().String(),
		"large headers": chatty.URL,
		"cut off":       cutOff.URL,
		"no server":     "127.0.0.1:1",
	} {
		t.Run(name, func(t *testing.T) {
			cfg := cluster.DiscoverConfig()
			cfg.Addresses = []string{address}
			once := cfg
			ctx := giveUp(t, &once.Network, 1)
			if found, err := bootstraptoken.Discover(ctx, once); found != nil || !errors.Is(err, refusal.ErrRetry) {
				t.Errorf("%s: %+v, %v, want %v", name, found, err, refusal.ErrRetry)
			} else if name == "cut off" && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: %v, want %v", name, err, io.ErrUnexpectedEOF)
			}
			cfg.Addresses = append(cfg.Addresses, cluster.Address())
			if _, err := bootstraptoken.Discover(t.Context(), cfg); err != nil {
				t.Errorf("%s, then the cluster: %v", name, err)
			}
		})
	}
}

// A compressed answer, which was not asked for, is refused by its name.
func TestContentEncoding(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	for coding, refused := range map[string]bool{"gzip": true, "br": true, "gzip, identity": true, "identity": false, "": false} {
		t.Run(coding, func(t *testing.T) {
			server, network := web(t, func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Accept-Encoding"); got != "identity" {
					t.Errorf("asks for %q", got)
				}
				w.Header().Set("Content-Encoding", coding)
				_, _ = io.WriteString(w, cluster.Data()[bootstraptoken.KubeconfigKey])
			})
			_, err := bootstraptoken.DiscoverURL(t.Context(), server.URL, *network)
			if refused && (!errors.Is(err, bootstraptoken.Check("reply")) || !strings.Contains(err.Error(), strconv.Quote(coding))) || !refused && err != nil {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The caller's proxy is asked for every request, and sees no more than where it goes.
func TestNetworkProxy(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.Host)
		if r.Header.Get("Authorization") != "" {
			t.Error("the proxy was sent a credential")
		}
		to, err := new(net.Dialer).DialContext(r.Context(), "tcp", r.Host)
		if err != nil {
			t.Error(err)
			return
		}
		from, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(to, from); to.Close() }()
		_, _ = io.Copy(from, to)
		from.Close()
	}))
	t.Cleanup(proxy.Close)
	cfg := cluster.DiscoverConfig()
	cfg.Network.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(proxy.URL) }
	if _, err := bootstraptoken.Discover(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if want := "CONNECT " + cluster.Address(); len(asked) != 2 || asked[0] != want || asked[1] != want {
		t.Errorf("asked %q, want %q twice", asked, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	cfg.Network.Proxy = func(*http.Request) (*url.URL, error) {
		if tries++; tries == 2 {
			cancel()
		}
		return nil, errors.New("invalid proxy address http://user:password@[")
	}
	before := len(cluster.Requests())
	if _, err := bootstraptoken.Discover(ctx, cfg); tries != 2 || len(cluster.Requests()) != before || !errors.Is(err, refusal.ErrRetry) || strings.Contains(err.Error(), "password") {
		t.Errorf("%d tries, %v, want %v", tries, err, refusal.ErrRetry)
	}
}

// The waits between rounds grow up to the longest one.
func TestNetworkBackoff(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	var at []time.Time
	cfg := cluster.DiscoverConfig()
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Network.MinBackoff, cfg.Network.MaxBackoff = 10*time.Millisecond, 40*time.Millisecond
	cfg.Network.Dial = func(context.Context, string, string) (net.Conn, error) {
		if at = append(at, time.Now()); len(at) == 6 {
			cancel()
		}
		return nil, errors.New("unreachable")
	}
	if _, err := bootstraptoken.Discover(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if len(at) != 6 {
		t.Fatalf("%d tries", len(at))
	}
	for i, least := range []time.Duration{10, 20, 40, 40, 40} {
		if waited := at[i+1].Sub(at[i]); waited < least*time.Millisecond {
			t.Errorf("wait %d took %v, want at least %d ms", i, waited, least)
		}
	}
}

func TestDiscoverErrorText(t *testing.T) {
	err := &bootstraptoken.DiscoverError{
		Addresses: []bootstraptoken.AddressError{{Address: "https://a", Err: &bootstraptoken.Error{Check: bootstraptoken.CheckPinned, Got: "x", Want: "y"}}, {Address: "https://b", Err: refusal.ErrRetry}},
		Err:       context.DeadlineExceeded,
	}
	const want = "bootstraptoken: no address led to the cluster; https://a: ca-pinned: got x, want y; https://b: could not decide, try again; context deadline exceeded"
	if got := err.Error(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// The text of an unknown server, in its certificate, its headers or its answer,
// writes no line of its own into a log.
func TestServersWriteNoLogLines(t *testing.T) {
	const line = "x\n2026-01-01T00:00:00Z INFO discovery: cluster verified\x1b[2J"
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	forged := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(connection, "HTTP/1.1 200 OK\r\nContent-Type: application/json; \x1b[2J\r\n\r\n")
		_ = connection.Close()
	}))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: line}, DNSNames: []string{line},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	forged.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	forged.StartTLS()
	t.Cleanup(forged.Close)
	known := cluster.Info()
	known.Server = "https://localhost:" + strings.Split(forged.Listener.Addr().String(), ":")[1]
	// Not every machine knows the name localhost.
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, forged.Listener.Addr().String())
	}
	_, refreshErr := bootstraptoken.Refresh(t.Context(), known, bootstraptoken.RefreshOptions{Network: bootstraptoken.Network{Dial: dial}})
	if !errors.Is(refreshErr, bootstraptoken.CheckCertificate) {
		t.Errorf("%v, want %v", refreshErr, bootstraptoken.CheckCertificate)
	}
	cfg := cluster.DiscoverConfig()
	cfg.Addresses = []string{forged.URL}
	_, discoverErr := bootstraptoken.Discover(giveUp(t, &cfg.Network, 1), cfg)
	if !errors.Is(discoverErr, bootstraptoken.Check("reply")) && !errors.Is(discoverErr, refusal.ErrRetry) {
		t.Errorf("%v, want %v", discoverErr, bootstraptoken.Check("reply"))
	}
	_, caErr := bootstraptoken.ParseCAs(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	_, kubeconfigErr := bootstraptoken.ParseKubeconfig([]byte("apiVersion: v1\nkind: " + strconv.Quote(line)))
	_, contextErr := bootstraptoken.ParseKubeconfig([]byte("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: \"https://a\"}}]\ncurrent-context: b\n" +
		"contexts: [{name: b, context: {cluster: " + strconv.Quote(line+strings.Repeat("x", 10000)) + "}}]"))
	for _, err := range []error{refreshErr, discoverErr, caErr, kubeconfigErr, contextErr} {
		if err == nil || len(err.Error()) > 2000 || strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("the error is %q", err)
		}
	}
}
