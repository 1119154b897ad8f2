package nodetls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// answer is the answer of named.
type answer struct {
	serial     int
	connection string
	proto      int
	resumed    bool
}

func ask(client *http.Client, url string) (a answer, err error) {
	r, err := client.Get(url)
	if err != nil {
		return a, err
	}
	defer r.Body.Close()
	_, err = fmt.Fscan(r.Body, &a.serial, &a.connection, &a.proto, &a.resumed)
	return a, err
}

func clientOf(c *Certificate, roots *x509.Certificate) *http.Client {
	config := &tls.Config{RootCAs: x509.NewCertPool(), ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	config.RootCAs.AddCert(roots)
	return &http.Client{Transport: c.Transport(&http.Transport{TLSClientConfig: config})}
}

// TestTransport: requests share a connection until the file has a new certificate; then there is a new
// connection, and the old one is closed. No session is resumed.
func TestTransport(t *testing.T) {
	for proto := 1; proto <= 2; proto++ {
		t.Run(fmt.Sprintf("HTTP/%d", proto), func(t *testing.T) {
			f := newFolder(t)
			f.install(t, f.pair(t, nil))
			server := f.serve(t, named, proto == 2)
			client := clientOf(testkit.Must(Open(f.path(), Options{})), server.Certificate())
			seen := map[string]bool{}
			for serial := 1; serial <= 3; serial++ {
				first, again := testkit.Must(ask(client, server.URL)), testkit.Must(ask(client, server.URL))
				if first != again || first.serial != serial || first.proto != proto || first.resumed || seen[first.connection] {
					t.Errorf("certificate %d: got %+v, %+v", serial, first, again)
				}
				seen[first.connection] = true
				f.install(t, f.pair(t, nil))
			}
			client.CloseIdleConnections()
			if got := testkit.Must(ask(client, server.URL)); got.serial != 4 || got.resumed {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestTransportOfKubernetes: a base that was set up for HTTP/2 already, and has a connection without a
// certificate, shares none with the transport, nor do the transports of two certificates.
func TestTransportOfKubernetes(t *testing.T) {
	f := newFolder(t)
	f.install(t, f.pair(t, nil))
	server := f.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) > 0 {
			named(w, r)
		}
	}), true)
	server.TLS.ClientAuth = tls.VerifyClientCertIfGiven
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AddCert(server.Certificate())
	base := utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: config})
	if _, err := ask(&http.Client{Transport: base}, server.URL); !errors.Is(err, io.EOF) {
		t.Fatalf("got %v, want an empty answer", err)
	}
	client := &http.Client{Transport: testkit.Must(Open(f.path(), Options{})).Transport(base)}
	for serial := 1; serial <= 3; serial++ {
		if got, err := ask(client, server.URL); err != nil || got.serial != serial || got.proto != 2 {
			t.Errorf("certificate %d: got %+v, %v", serial, got, err)
		}
		f.install(t, f.pair(t, nil))
	}
}

// TestTransportRunning: a request that is running when the certificate is renewed gets its answer.
func TestTransportRunning(t *testing.T) {
	for proto := 1; proto <= 2; proto++ {
		t.Run(fmt.Sprintf("HTTP/%d", proto), func(t *testing.T) {
			f := newFolder(t)
			f.install(t, f.pair(t, nil))
			arrived, leave := make(chan bool), make(chan bool)
			server := f.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					arrived <- true
					<-leave
				}
				named(w, r)
			}), proto == 2)
			client := clientOf(testkit.Must(Open(f.path(), Options{})), server.Certificate())
			done := make(chan error, 1)
			var slow answer
			go func() (err error) {
				defer func() { done <- err }()
				slow, err = ask(client, server.URL+"/slow")
				return err
			}()
			<-arrived
			f.install(t, f.pair(t, nil))
			if got := testkit.Must(ask(client, server.URL)); got.serial != 2 {
				t.Errorf("during it: %+v", got)
			}
			leave <- true
			if err := <-done; err != nil || slow.serial != 1 {
				t.Errorf("the running one: %+v, %v", slow, err)
			}
		})
	}
}

type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error { b.closed = true; return nil }

// TestTransportRefuses: without a usable certificate no request is sent, and a server of TLS 1.1 or an
// unknown CA gets none.
func TestTransportRefuses(t *testing.T) {
	f, now := newFolder(t), time.Now()
	f.install(t, f.pair(t, nil))
	server := f.serve(t, named, true)
	c := testkit.Must(Open(f.path(), Options{Now: func() time.Time { return now }}))
	client := clientOf(c, server.Certificate())
	testkit.Must(ask(client, server.URL))
	if _, err := ask(&http.Client{Transport: c.Transport(nil)}, server.URL); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("another CA: %v", err)
	}
	old := f.serve(t, named, false)
	old.TLS.MinVersion, old.TLS.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if _, err := ask(client, old.URL); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.1: %v", err)
	}

	now = now.Add(2 * time.Hour)
	testkit.MustDo(os.Remove(f.path()))
	sent := &body{Reader: strings.NewReader("x")}
	_, err := client.Post(server.URL, "", sent)
	if !errors.Is(err, os.ErrNotExist) || !sent.closed {
		t.Errorf("no certificate: %v, body closed: %t", err, sent.closed)
	}
}

// TestTransportLimits: a transport without limits gets some, and the caller's limits stay.
func TestTransportLimits(t *testing.T) {
	f := newFolder(t)
	f.install(t, f.pair(t, nil))
	c := testkit.Must(Open(f.path(), Options{}))
	for name, base := range map[string]*http.Transport{"none": nil, "zero": {}} {
		got := c.Transport(base).(*transport).base
		if got.TLSHandshakeTimeout != 10*time.Second || got.IdleConnTimeout != 90*time.Second || got.MaxResponseHeaderBytes != 64<<10 || !got.ForceAttemptHTTP2 ||
			got.HTTP2.SendPingTimeout != 30*time.Second || got.HTTP2.PingTimeout != 15*time.Second {
			t.Errorf("%s: %+v", name, got)
		}
	}
	callers := &http.Transport{TLSHandshakeTimeout: 1, IdleConnTimeout: 2, MaxResponseHeaderBytes: 3, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	if got := c.Transport(callers).(*transport).base; got.TLSHandshakeTimeout != 1 || got.IdleConnTimeout != 2 || got.MaxResponseHeaderBytes != 3 || got.ForceAttemptHTTP2 {
		t.Errorf("the caller's: %+v", got)
	}
	if callers.TLSClientConfig != nil {
		t.Error("the caller's transport was changed")
	}
}
