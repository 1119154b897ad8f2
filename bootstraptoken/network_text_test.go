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
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
	"github.com/nodeattest/nodeattest/refusal"
)

// What a server that nobody knows shows, in its certificate, its headers or its answer,
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
	_, mapErr := bootstraptoken.ParseConfigMap([]byte(`{"apiVersion":"v1","kind":"\n\u001b[2J\u202e"}`))
	for _, err := range []error{refreshErr, discoverErr, caErr, kubeconfigErr, contextErr, mapErr} {
		if err == nil || len(err.Error()) > 2000 || strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("the error is %q", err)
		}
	}
}
