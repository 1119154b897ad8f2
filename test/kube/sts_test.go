package kube

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

const stsHost = "sts.eu-west-1.amazonaws.com"

// serveSTS has the programs that start from now on find a cloud's STS where they look for the real
// one: through a proxy that connects them with it, by the name that a certificate of its own has.
func serveSTS(t *testing.T, dir string, cloud *cloudtest.EC2) {
	t.Helper()
	key := controlplane.NewKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{stsHost}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	template.Raw = der
	sts := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := cloud.RoundTrip(r)
		if err != nil {
			t.Error(err)
			return
		}
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, answer.Body)
	}))
	sts.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	sts.StartTLS()
	t.Cleanup(sts.Close)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != stsHost+":443" {
			t.Errorf("the proxy was asked: %s %s", r.Method, r.Host)
			http.Error(w, "elsewhere", http.StatusForbidden)
			return
		}
		connect(w, sts.Listener.Addr().String())
	}))
	t.Cleanup(proxy.Close)
	t.Setenv("HTTPS_PROXY", proxy.URL)
	t.Setenv("SSL_CERT_FILE", controlplane.Write(t, dir, "sts.pem", controlplane.CertificatePEM(template)))
}

// connect carries bytes between a client and an address until one of the two ends.
func connect(w http.ResponseWriter, address string) {
	server, err := net.Dial("tcp", address)
	if err != nil {
		http.Error(w, "no server", http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusOK)
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = server.Close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(server, buffered)
		_ = server.Close()
	})
	both.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	both.Wait()
}
