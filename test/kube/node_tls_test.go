package kube

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/boundtokens"
	"github.com/nodeattest/nodeattest/kube/nodetls"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// TestNodeTLS has a program next to the kubelet call a service with a pod's token while
// kubelet-authenticator's daemon renews the certificate twice, of Kubernetes' own signer: 1,000 calls,
// and none is lost.
func TestNodeTLS(t *testing.T) {
	t.Parallel()
	newCalls(t, false).run(t)
}

// TestNodeTLSOwnSigners is the same with certificates of our own signer, over HTTP/2.
func TestNodeTLSOwnSigners(t *testing.T) {
	t.Parallel()
	newCalls(t, true).run(t)
}

// calls is a node whose certificate is renewed, and a service that takes a pod's token from it alone.
type calls struct {
	*rotation
	vault *vault
	own   *nodetls.Certificate
	api   kubernetes.Interface // as the node
	pod   *corev1.Pod
}

func newCalls(t *testing.T, own bool) *calls {
	t.Helper()
	r := newRotation(t, own)
	startAs(t, "daemon", r.node.program, r.node.dir, "--config", r.node.config, "daemon")
	eventually(t, func() error {
		if !r.node.status(t).Certificates[0].Usable {
			return errNotYet
		}
		return nil
	})
	r.makePodAccount(t)
	r.makeNode(t, r.node.name)
	s := &calls{rotation: r, vault: r.startVault(t, own), own: r.node.ownCertificate(t), pod: r.makePod(t, "own", r.node.name, podAccount, vaultAudience)}
	_, s.api = r.node.asNode(t)
	return s
}

func (s *calls) run(t *testing.T) {
	var token string
	eventually(t, func() (err error) { // admission learns of the pod a moment later
		token, err = askToken(t, s.api, s.pod.Name, s.pod.UID, vaultAudience)
		return err
	})
	s.node.example(t, s.pod, s.vault.server.URL, s.vault.server.Certificate(), vaultAudience)
	config := s.own.TLSConfig()
	config.RootCAs = s.vault.roots
	ordinary := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	client := &http.Client{Transport: s.own.Transport(&http.Transport{TLSClientConfig: config.Clone(), MaxIdleConnsPerHost: 4}), Timeout: patience}
	eventually(t, func() error { // the record may be late
		return s.vault.call(ordinary, token)
	})

	const wanted, renewals, pause = 1000, 2, 500 * time.Millisecond
	began, workers := time.Now(), new(sync.WaitGroup)
	var mu sync.Mutex
	accepted, again := 0, 0
	for range 4 {
		workers.Go(func() {
			for time.Since(began) < 6*time.Minute {
				retries, err := s.vault.eventually(client, token)
				mu.Lock()
				if again += retries; err == nil {
					accepted++
				}
				certificates, _ := s.vault.saw()
				done := accepted >= wanted && certificates > renewals
				mu.Unlock()
				if err != nil {
					t.Errorf("a call is lost after %s: %v", time.Since(began).Round(time.Second), err)
				}
				if done || err != nil {
					return
				}
				time.Sleep(pause)
			}
		})
	}
	workers.Wait()
	certificates, connections := s.vault.saw()
	t.Logf("%d calls in %s over %d connections with %d certificates; %d were repeated after 503", accepted, time.Since(began).Round(time.Second), connections, certificates, again)
	if accepted < wanted || certificates <= renewals {
		t.Errorf("want %d calls and %d renewals", wanted, renewals)
	}
	if err := s.vault.call(ordinary, token); err == nil || !strings.Contains(err.Error(), "403 Forbidden: refused: node-certificate") {
		t.Errorf("the connection of the first certificate, which has ended: %v", err)
	}
}

// example runs the example of a caller, a program, against a service with a certificate of a CA, and
// checks that the service knows pod and node.
func (m *nodeMachine) example(t *testing.T, pod *corev1.Pod, service string, ca *x509.Certificate, audience string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), buildFolder(t, "examples/caller"), "-certificate="+m.certificateFile(), "-server="+m.c.url, "-server-ca="+m.c.dir+"/ca.crt",
		"-service="+service, "-service-ca="+controlplane.Write(t, m.dir, "service-ca.crt", controlplane.CertificatePEM(ca)), "-audience="+audience, "-pod="+pod.Namespace+"/"+pod.Name)
	out, err := cmd.CombinedOutput()
	if want := "system:serviceaccount:" + pod.Namespace + ":" + podAccount + " on " + m.name + "\n"; err != nil || string(out) != want {
		t.Errorf("the example: %v: %q, want %q", err, out, want)
	}
}

// vault is a service that takes a pod's token only from the node that the token was issued for.
type vault struct {
	server *httptest.Server
	roots  *x509.CertPool

	mu    sync.Mutex
	seen  map[string]bool // certificates, by credential ID
	peers map[string]bool // connections
}

func (c *cluster) startVault(t *testing.T, http2 bool) *vault {
	t.Helper()
	bound, err := boundtokens.New(c.user(t, "admin", "system:masters"), boundtokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	config := bound.ValidatorConfig(vaultAudience)
	config.InsecureAllowReplay = true // one token for many calls
	validator, err := claims.NewValidator(config)
	if err != nil {
		t.Fatal(err)
	}
	v := &vault{seen: map[string]bool{}, peers: map[string]bool{}, roots: x509.NewCertPool()}
	options := bound.HandlerOptions()
	options.Refused = func(_ *http.Request, err error) { t.Logf("the service refuses: %v", err) }
	handler, err := claims.NewHandler(validator, v, options)
	if err != nil {
		t.Fatal(err)
	}
	v.server = httptest.NewUnstartedServer(handler)
	v.server.EnableHTTP2 = http2
	v.server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool(), SessionTicketsDisabled: true}
	v.server.TLS.ClientCAs.AddCert(c.ca.Cert)
	v.server.StartTLS()
	t.Cleanup(v.server.Close)
	v.roots.AddCert(v.server.Certificate())
	return v
}

func (v *vault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, _ := claims.WorkloadFrom(r.Context())
	v.mu.Lock()
	v.seen[csr.CredentialID(r.TLS.PeerCertificates[0])], v.peers[r.RemoteAddr] = true, true
	v.mu.Unlock()
	fmt.Fprintf(w, "%s on %s\n", who.Result.Username(), who.Node.Name)
}

// saw counts the certificates and connections of the accepted calls.
func (v *vault) saw() (certificates, connections int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.seen), len(v.peers)
}

// errUndecided is a 503.
var errUndecided = errors.New("503")

// call makes one call.
func (v *vault) call(client *http.Client, token string) error {
	request, err := http.NewRequest(http.MethodGet, v.server.URL, http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return err
	case response.StatusCode == http.StatusServiceUnavailable:
		return fmt.Errorf("%w: %s", errUndecided, body)
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	return nil
}

// eventually calls again after each 503, as its Retry-After asks for, at most five times.
func (v *vault) eventually(client *http.Client, token string) (retries int, err error) {
	for err = v.call(client, token); errors.Is(err, errUndecided) && retries < 5; err = v.call(client, token) {
		retries++
		time.Sleep(time.Second)
	}
	return retries, err
}
