package jws_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/jws"
)

// podTransport makes a pod's requests to its API server: the cluster's CA verifies the
// server, and each request carries the pod's token, read anew since the kubelet replaces
// it. Hosts of the RemoteConfig bound where a redirect can lead the token.
type podTransport struct {
	base      http.RoundTripper
	tokenFile string
}

func newPodClient(folder string) (*http.Client, error) {
	bundle, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, errors.New("no CA in ca.crt")
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return &http.Client{Transport: &podTransport{base, filepath.Join(folder, "token")}}, nil
}

// RoundTrip adds the token to a copy of the request.
func (p *podTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := os.ReadFile(p.tokenFile)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return p.base.RoundTrip(r)
}

// A pod verifies its cluster's service-account tokens. Its folder is
// /var/run/secrets/kubernetes.io/serviceaccount and its JWKSURL
// https://kubernetes.default.svc/openid/v1/jwks, which all service accounts may read (the
// role system:service-account-issuer-discovery). With Issuer in place of JWKSURL the
// document's jwks_uri names the API server's external address, a host for Hosts.
func ExampleRemoteConfig_inCluster() {
	signer, err := newSigner("2026-03")
	if err != nil {
		fmt.Println(err)
		return
	}
	set, err := jws.MarshalJWKS([]*jws.Key{signer.Key()})
	if err != nil {
		fmt.Println(err)
		return
	}
	apiServer := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path, r.Header.Get("Authorization"))
		_, _ = w.Write(set)
	}))
	defer apiServer.Close()

	folder, err := os.MkdirTemp("", "serviceaccount")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(folder) }()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: apiServer.Certificate().Raw})
	for name, content := range map[string][]byte{"ca.crt": ca, "token": []byte("the pod's token")} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			fmt.Println(err)
			return
		}
	}

	client, err := newPodClient(folder)
	if err != nil {
		fmt.Println(err)
		return
	}
	keys, err := jws.NewRemoteKeySet(jws.RemoteConfig{
		Client:  client,
		JWKSURL: apiServer.URL + "/openid/v1/jwks",
		MaxAge:  5 * time.Minute,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	found, err := keys.Keys(context.Background(), "2026-03")
	fmt.Println(len(found), err)
	// Output:
	// GET /openid/v1/jwks Bearer the pod's token
	// 1 <nil>
}
