package authenticator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkCredential is the check that an attempt fails if there is no credential at all: the
// certificates have ended, and there is no bootstrap token.
const checkCredential refusal.Check = "no-credential"

// access is a credential for the API server.
type access struct {
	name string // for people
	open func(ctx context.Context) (certificatesclient.CertificateSigningRequestsGetter, func() error, error)
}

// connection says how to reach the API server, without anybody's credentials.
func (a *Authenticator) connection() (bare, own *rest.Config, err error) {
	own, err = a.c.API()
	if err != nil {
		return nil, nil, err
	}
	if own.ExecProvider != nil || own.AuthProvider != nil {
		return nil, nil, refusal.Config("API", "a credential plugin", "a bootstrap token or nothing: the plugin may be this one")
	}
	own = rest.CopyConfig(own)
	own.QPS, own.Timeout = -1, 0 // a handful of calls, each with its own limit
	if own.UserAgent == "" {
		own.UserAgent = "kubelet-authenticator"
	}
	if err := rest.LoadTLSFiles(own); err != nil {
		return nil, nil, err
	}
	if own.Insecure {
		return nil, nil, refusal.Config("API", "without a check of the server's certificate", "the cluster's CA")
	}
	bare = rest.AnonymousClientConfig(own)
	bare.QPS = -1
	return bare, own, nil
}

// clusterID is the configured cluster ID, or else the customary one of the only CA.
func (a *Authenticator) clusterID(c *rest.Config) (string, error) {
	if a.c.ClusterID != "" {
		return a.c.ClusterID, nil
	}
	if len(c.CAData) == 0 {
		return "", refusal.Config("ClusterID", "", "one, as the configuration of the API server names no CA")
	}
	all, err := certutil.ParseCertsPEM(c.CAData)
	if err != nil {
		return "", &refusal.Error{Check: refusal.CheckConfig, Got: "a CA that cannot be read", Err: err}
	}
	if len(all) != 1 {
		return "", refusal.Config("ClusterID", "", fmt.Sprintf("one, as the configuration of the API server names %d CAs", len(all)))
	}
	return attest.ClusterID(all[0])
}

// accesses are the credentials to try, the best first: the client certificate, the recovery
// certificate, the bootstrap token. For anything but a client certificate, only the first can
// be used.
func (a *Authenticator) accesses(bare, own *rest.Config, e attest.Prover, purpose csr.Purpose) []access {
	var all []access
	if p := a.load(ClientFile); p.Usable(a.c.Now()) {
		all = append(all, access{"the client certificate", func(context.Context) (certificatesclient.CertificateSigningRequestsGetter, func() error, error) {
			c := rest.CopyConfig(bare)
			c.CertData, c.KeyData = p.Chain, p.Key
			return client(c)
		}})
	}
	if purpose != csr.PurposeClient {
		return all
	}
	if p := a.load(recoveryFile); p.Usable(a.c.Now()) {
		if keeper, ok := e.(keyKeeper); ok {
			all = append(all, access{"the recovery certificate", func(ctx context.Context) (certificatesclient.CertificateSigningRequestsGetter, func() error, error) {
				return sealedClient(ctx, bare, keeper, p)
			}})
		}
	}
	if own.BearerToken != "" || own.BearerTokenFile != "" || len(own.CertData) != 0 {
		all = append(all, access{"the bootstrap credential", func(context.Context) (certificatesclient.CertificateSigningRequestsGetter, func() error, error) {
			return client(own)
		}})
	}
	return all
}

// client connects with the credentials in the configuration. Each attempt has its own
// connections, which end with it.
func client(c *rest.Config) (certificatesclient.CertificateSigningRequestsGetter, func() error, error) {
	c = rest.CopyConfig(c)
	c.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext // and so the transport is not shared
	h, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, nil, err
	}
	made, err := certificatesclient.NewForConfigAndClient(c, h)
	return made, idle(h), err
}

func idle(h *http.Client) func() error {
	return func() error {
		h.CloseIdleConnections()
		return nil
	}
}

// sealedClient connects with a key that stays in the machine. rest.Config takes keys only in
// PEM, so the transport is built here, with the CA, the server name and the proxy of the
// configuration.
func sealedClient(ctx context.Context, bare *rest.Config, keeper keyKeeper, p *certstore.Pair) (_ certificatesclient.CertificateSigningRequestsGetter, done func() error, err error) {
	key, err := keeper.LoadKey(ctx, p.Key)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, key.Close())
		}
	}()
	if err := p.CheckKey(key.Public()); err != nil {
		return nil, nil, err
	}
	pair := tls.Certificate{PrivateKey: key, Leaf: p.Leaf}
	for block, rest := pem.Decode(p.Chain); block != nil; block, rest = pem.Decode(rest) {
		pair.Certificate = append(pair.Certificate, block.Bytes)
	}
	c, err := rest.TLSConfigFor(bare)
	if err != nil {
		return nil, nil, err
	}
	if c == nil {
		c = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	c.Certificates = []tls.Certificate{pair}
	proxy := bare.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	transport := &http.Transport{TLSClientConfig: c, Proxy: func(r *http.Request) (*url.URL, error) { return proxy(r) }, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: callLimit, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext}
	h := &http.Client{Transport: transport}
	withoutTLS := rest.CopyConfig(bare)
	withoutTLS.TLSClientConfig = rest.TLSClientConfig{}
	made, err := certificatesclient.NewForConfigAndClient(withoutTLS, h)
	if err != nil {
		return nil, nil, err
	}
	return made, func() error {
		h.CloseIdleConnections()
		return key.Close()
	}, nil
}

// checkCertificate checks a new certificate against what was asked for: a signer may return
// another node's certificate, or one for another purpose, which is of no use.
func (a *Authenticator) checkCertificate(i *item, leaf *x509.Certificate) error {
	name, organization := csr.SubjectNames(i.purpose, a.c.NodeName)
	usage := x509.ExtKeyUsageClientAuth
	if i.purpose == csr.PurposeServing {
		usage = x509.ExtKeyUsageServerAuth
	}
	switch {
	case leaf.Subject.CommonName != name || len(leaf.Subject.Organization) != 1 || leaf.Subject.Organization[0] != organization:
		return &refusal.Error{Check: certstore.CheckPair, Got: "a certificate for " + leaf.Subject.String(), Want: "CN=" + name + ",O=" + organization}
	case len(leaf.ExtKeyUsage) != 1 || leaf.ExtKeyUsage[0] != usage:
		return &refusal.Error{Check: certstore.CheckPair, Got: "a certificate for another use", Want: "one for a " + i.purpose.String()}
	}
	return nil
}
