package nodetls_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/kube/nodetls"
)

// A program calls a service as the node, with whatever certificate kubelet-authenticator has renewed.
func ExampleCertificate_Transport() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "client.pem") // /var/lib/kubelet-authenticator/client.pem on a node
	renew(file, 1)
	service := startService()
	defer service.Close()

	node, err := nodetls.Open(file, nodetls.Options{})
	if err != nil {
		log.Fatal(err)
	}
	config := node.TLSConfig()
	config.RootCAs = x509.NewCertPool()
	config.RootCAs.AddCert(service.Certificate())
	client := &http.Client{Transport: node.Transport(&http.Transport{TLSClientConfig: config})}
	for serial := int64(1); serial <= 2; serial++ {
		renew(file, serial)
		response, err := client.Get(service.URL)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(response.Header.Get("Caller"))
		_ = response.Body.Close()
	}
	_ = os.Remove(file)
	_, err = nodetls.Open(file, nodetls.Options{})
	fmt.Println("no file:", errors.Is(err, fs.ErrNotExist))
	// Output:
	// CN=system:node:node-1,O=system:nodes, certificate 1
	// CN=system:node:node-1,O=system:nodes, certificate 2
	// no file: true
}

// startService starts a service that says who calls.
func startService() *httptest.Server {
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaf := r.TLS.PeerCertificates[0]
		w.Header().Set("Caller", fmt.Sprintf("%s, certificate %d", leaf.Subject, leaf.SerialNumber))
	}))
	service.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert} // a real one verifies it: package claims
	service.StartTLS()
	return service
}

// renew stands in for kubelet-authenticator and a control plane.
func renew(file string, serial int64) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "system:node:node-1", Organization: []string{"system:nodes"}},
		NotAfter: time.Now().Add(24 * time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		log.Fatal(err)
	}
	pair, err := certstore.NewPair(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, time.Now(),
		func(received time.Time, _ *x509.Certificate) time.Time { return received.Add(16 * time.Hour) })
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(file+".new", pair.Marshal(), 0o600); err != nil {
		log.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		log.Fatal(err)
	}
}
