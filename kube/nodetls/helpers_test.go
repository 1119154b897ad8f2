package nodetls

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
)

// folder is that of the authenticator, with the CA of its certificates.
type folder struct {
	dir string
	ca  *x509.Certificate
	key *ecdsa.PrivateKey

	serial int64
}

func newFolder(t testing.TB) *folder {
	t.Helper()
	f := &folder{dir: t.TempDir(), key: testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))}
	testkit.MustDo(os.Chmod(f.dir, 0o700))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "cluster"}, NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	f.ca = testkit.Must(x509.ParseCertificate(testkit.Must(x509.CreateCertificate(rand.Reader, template, template, f.key.Public(), f.key))))
	return f
}

func (f *folder) path() string { return filepath.Join(f.dir, "client.pem") }

// pair makes a certificate of node-1 for the next hour, with changes.
func (f *folder) pair(t testing.TB, change func(*x509.Certificate)) *certstore.Pair {
	t.Helper()
	f.serial++
	template := &x509.Certificate{SerialNumber: big.NewInt(f.serial), Subject: pkix.Name{CommonName: "system:node:node-1", Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if change != nil {
		change(template)
	}
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	der := testkit.Must(x509.CreateCertificate(rand.Reader, template, f.ca, key.Public(), f.key))
	return testkit.Must(certstore.NewPair(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, template.NotBefore, func(received time.Time, _ *x509.Certificate) time.Time { return received }))
}

// install writes a pair as the authenticator does.
func (f *folder) install(t testing.TB, p *certstore.Pair) *certstore.Pair {
	t.Helper()
	l := testkit.Must(testkit.Must(certstore.Open(f.dir)).Lock(t.Context()))
	defer l.Unlock()
	testkit.MustDo(l.WritePair("client.pem", p))
	return p
}

// write replaces the file by any text.
func (f *folder) write(t testing.TB, text []byte) {
	t.Helper()
	testkit.MustDo(os.WriteFile(f.path()+".new", text, 0o600))
	testkit.MustDo(os.Rename(f.path()+".new", f.path()))
}

// serve starts a service that says which certificate and connection a request came with.
func (f *folder) serve(t testing.TB, handler http.Handler, http2 bool) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = http2
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
	server.TLS.ClientCAs.AddCert(f.ca)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

var named = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%d %s %d %t", r.TLS.PeerCertificates[0].SerialNumber, r.RemoteAddr, r.ProtoMajor, r.TLS.DidResume)
})

// logged is a log that tests read.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) log() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// take returns the lines that were logged since it was called last.
func (l *logged) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}
