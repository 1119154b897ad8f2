package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/controller"
)

// The limits of kubelet-authenticator (packages kube/authenticator and its apiclient): for a call, an
// attempt, the challenge of a hello, and the pauses after failures and denials.
const (
	callLimit     = 30 * time.Second
	attemptLimit  = 15 * time.Minute
	helloPatience = 4*time.Minute + 45*time.Second
	maxHellos     = 3
	firstPause    = time.Second
	lastPause     = 30 * time.Second
	firstDenied   = 5 * time.Second
	lastDenied    = 5 * time.Minute
)

// lifetime is requested by every node: the shortest that the API server accepts. The signer's own limit is
// shorter where a run is.
const lifetime = 10 * time.Minute

type (
	// request is a certificate request, and requests are all of them.
	request  = certificatesv1.CertificateSigningRequest
	requests = certificatesclient.CertificateSigningRequestInterface
)

// A node gets its client certificate and renews it: with evidence or, without a TPM, as a kubelet does by
// itself. Each attempt has a connection of its own, as kubelet-authenticator's.
type node struct {
	name, token string
	fleet       *fleet
	attester    *attest.Attester // nil without evidence
	identity    string           // of the machine, with evidence

	credential *tls.Certificate // nil until it has joined
	failures   int
	kick       chan struct{} // renew now
}

// errDenied says that the control plane denied a request.
var errDenied = errors.New("denied")

// run gets certificates until ctx ends.
func (n *node) run(ctx context.Context) {
	for ctx.Err() == nil {
		pause := time.Duration(0)
		if err := n.attempt(ctx); err == nil {
			n.failures = 0
			pause = time.Until(n.fleet.got(n))
		} else if ctx.Err() == nil {
			pause = n.pause(err)
			n.fleet.failed(n, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-n.kick:
		}
	}
}

// pause doubles with each failure, and is reduced by up to half at random.
func (n *node) pause(err error) time.Duration {
	first, last := firstPause, n.fleet.lastPause
	if errors.Is(err, errDenied) {
		first, last = firstDenied, lastDenied
	}
	d := min(first<<min(n.failures, 10), last)
	n.failures++
	return d/2 + mathrand.N(d/2)
}

// attempt gets one certificate, with the last one as the credential or, where it has ended, with the
// bootstrap token.
func (n *node) attempt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(logr.NewContext(ctx, logr.Discard()), attemptLimit)
	defer cancel()
	api, closeAll, err := n.connect()
	if err != nil {
		return err
	}
	defer closeAll()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	pkcs10, err := csr.Create(csr.PurposeClient, key, n.name, csr.CreateOptions{})
	if err != nil {
		return err
	}
	s := attest.Subject{Request: pkcs10, SignerName: csr.SignerKubeAPIServerClientKubelet, ClusterID: n.fleet.clusterID,
		ExpirationSeconds: int32(lifetime / time.Second)}
	spec, err := n.answer(ctx, api, key, s)
	if err != nil {
		return err
	}
	o, err := n.filed(ctx, api, spec, func(o *request) bool {
		return len(o.Status.Certificate) != 0 || refused(o) != nil
	})
	if err != nil {
		return err
	}
	if r := refused(o); r != nil {
		return fmt.Errorf("%w: %s: %s", errDenied, r.Reason, r.Message)
	}
	return n.take(o.Status.Certificate, key)
}

// answer makes the request: without evidence at once, with evidence after hello and challenge.
func (n *node) answer(ctx context.Context, api requests, key *ecdsa.PrivateKey, s attest.Subject) (*csr.Spec, error) {
	if n.attester == nil {
		return (&csr.Bundle{Request: s.Request}).Spec(s.SignerName, s.ExpirationSeconds)
	}
	for try := 1; ; try++ {
		hello, err := n.attester.Hello(ctx, s)
		if err != nil {
			return nil, err
		}
		waiting, cancel := context.WithTimeout(ctx, helloPatience)
		o, err := n.filed(waiting, api, hello, func(o *request) bool { return len(o.Status.Conditions) != 0 })
		cancel()
		if err != nil {
			return nil, fmt.Errorf("hello: %w", err)
		}
		challenge, err := attest.ChallengeOf(controller.Request(o))
		if err == nil {
			return n.attester.Answer(ctx, challenge, key, s)
		}
		if r := refused(o); r != nil && r.Reason != "HelloExpired" || try == maxHellos {
			return nil, fmt.Errorf("%w: hello: %+v", errDenied, o.Status.Conditions)
		}
	}
}

func refused(o *request) *certificatesv1.CertificateSigningRequestCondition {
	for i, c := range o.Status.Conditions {
		if c.Type != certificatesv1.CertificateApproved {
			return &o.Status.Conditions[i]
		}
	}
	return nil
}

// take keeps a certificate.
func (n *node) take(chain []byte, key *ecdsa.PrivateKey) error {
	block, _ := pem.Decode(chain)
	if block == nil {
		return errors.New("no certificate in PEM")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	if !key.PublicKey.Equal(leaf.PublicKey) || leaf.Subject.CommonName != csr.NodeUserPrefix+n.name {
		return fmt.Errorf("a certificate for %s, or for another key", leaf.Subject)
	}
	n.credential = &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
	return nil
}

// connect returns a client of one connection.
func (n *node) connect() (_ requests, closeAll func(), err error) {
	config := &rest.Config{Host: n.fleet.url, QPS: -1, WarningHandler: rest.NoWarnings{}}
	secured := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: n.fleet.roots}
	if n.credential != nil && time.Now().Before(n.credential.Leaf.NotAfter) {
		secured.Certificates = []tls.Certificate{*n.credential}
	} else {
		config.BearerToken = n.token
	}
	conns := new(connections)
	own := utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: secured, DialContext: conns.dial,
		TLSHandshakeTimeout: callLimit, ResponseHeaderTimeout: callLimit, DisableCompression: true})
	wrapped, err := rest.HTTPWrappersForConfig(config, own)
	if err != nil {
		return nil, nil, err
	}
	api, err := certificatesclient.NewForConfigAndClient(config, &http.Client{Transport: wrapped})
	if err != nil {
		return nil, nil, err
	}
	return api.CertificateSigningRequests(), func() { own.CloseIdleConnections(); conns.close() }, nil
}

// connections are closed with the attempt.
type connections struct {
	mu  sync.Mutex
	all []net.Conn
}

func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, address)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all = append(c.all, conn)
	}
	return conn, err
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		_ = conn.Close() // the server may have closed it
	}
}

// filed files a request and watches it until it is done. A watch that ends is opened again.
func (n *node) filed(ctx context.Context, api requests, spec *csr.Spec, done func(*request) bool) (*request, error) {
	o := &request{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "nodeattest-" + n.name + "-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: spec.Request, SignerName: spec.SignerName,
			ExpirationSeconds: spec.ExpirationSeconds},
	}
	for _, usage := range spec.Usages {
		o.Spec.Usages = append(o.Spec.Usages, certificatesv1.KeyUsage(usage))
	}
	calling, cancel := context.WithTimeout(ctx, callLimit)
	o, err := api.Create(calling, o, metav1.CreateOptions{})
	cancel()
	if err != nil {
		return nil, err
	}
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		if got, err := follow(ctx, api, o, done); err == nil && done(got) {
			return got, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("request %s: %w", o.Name, ctx.Err())
		case <-time.After(pause):
		}
		calling, cancel := context.WithTimeout(ctx, callLimit)
		got, err := api.Get(calling, o.Name, metav1.GetOptions{})
		cancel()
		switch {
		case err != nil && final(err):
			return nil, err
		case err == nil && done(got):
			return got, nil
		case err == nil:
			o = got
		}
	}
}

// follow watches a request until it is done or the watch ends.
func follow(ctx context.Context, api requests, o *request, done func(*request) bool) (*request, error) {
	of := fields.OneTermEqualSelector("metadata.name", o.Name).String()
	w, err := api.Watch(ctx, metav1.ListOptions{FieldSelector: of, ResourceVersion: o.ResourceVersion})
	if err != nil {
		return o, err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if got, ok := event.Object.(*request); ok && event.Type != watch.Deleted {
			if o = got; done(o) {
				break
			}
		}
	}
	return o, nil
}
