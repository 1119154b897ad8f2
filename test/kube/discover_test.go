package kube

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// clusterInfoPath is where an API server serves the discovery document.
const clusterInfoPath = "/api/v1/namespaces/" + bootstraptoken.ClusterInfoNamespace + "/configmaps/" + bootstraptoken.ClusterInfoName

// anonymous has an API server take requests without credentials.
func anonymous(*cluster) []string { return []string{"--anonymous-auth=true"} }

// anonymousClusterInfo has an API server take requests without credentials for the discovery document
// alone.
func anonymousClusterInfo(t *testing.T) func(*cluster) []string {
	return func(c *cluster) []string {
		return []string{"--authentication-config=" + controlplane.Write(t, c.dir, "authentication.yaml", []byte("apiVersion: apiserver.config.k8s.io/v1\n"+
			"kind: AuthenticationConfiguration\nanonymous: {enabled: true, conditions: [{path: "+clusterInfoPath+"}]}\n"))}
	}
}

// publish has an operator publish the discovery document with these CAs, and waits until the token has signed
// it.
func (c *cluster) publish(t *testing.T, cas ...*controlplane.Authority) {
	t.Helper()
	info := new(bootstraptoken.ClusterInfo)
	for _, ca := range cas {
		info.CAs = append(info.CAs, ca.Cert)
	}
	bundle := controlplane.Write(t, c.dir, "published.crt", certificatesPEM(info.CAs))
	o := &operator{kubectl: filepath.Join(controlplane.Binaries(t), "kubectl"), dir: filepath.Dir(buildProgram(t, "kubectl-nodeattest")),
		kubeconfig: c.kubeconfig(t, "publisher.kubeconfig", "publisher", "system:masters")}
	eventually(t, func() error { // kube-public comes a moment after the API server
		_, err := o.try(t.Context(), "cluster-info", "publish", "--server", c.url, "--ca", bundle)
		return err
	})
	token, err := bootstraptoken.New(attesttest.TokenID, tokenSecret)
	if err == nil { // once the bootstrap signer has signed it
		_, err = bootstraptoken.Discover(t.Context(), bootstraptoken.DiscoverConfig{Token: token, Addresses: []string{c.url}, Pins: info.Pins(),
			Network: bootstraptoken.Network{Timeout: patience, MaxBackoff: time.Second}})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// insecure is for a client that the test has ask anything.
func insecure() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// signsDiscovery has the bootstrap token sign the discovery document, too, and starts the bootstrap signer.
func (c *cluster) signsDiscovery(t *testing.T) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: bootstraptoken.SecretName(attesttest.TokenID), Namespace: metav1.NamespaceSystem}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"stringData":{"usage-bootstrap-signing":"true"}}`))
	if err := c.admin.Patch(t.Context(), secret, patch); err != nil {
		t.Fatal(err)
	}
	c.startBootstrapSigner(t)
}

// pin returns the pin of a CA.
func pin(ca *controlplane.Authority) string {
	return (&bootstraptoken.ClusterInfo{CAs: []*x509.Certificate{ca.Cert}}).Pins()[0].String()
}

// discover runs the command discover, and returns its exit status and its output.
func discover(t *testing.T, program string, args ...string) (status int, out string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, append([]string{"discover"}, args...)...)
	text, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte(tokenSecret)) {
		t.Errorf("the token is shown: %s", text)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

// tokenFile writes a file with a bootstrap token.
func tokenFile(t *testing.T, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// testDiscoverRefused has discovery fail in each way, with its check and exit status.
func (c *cluster) testDiscoverRefused(t *testing.T, program string) {
	api := &http.Client{Transport: &http.Transport{TLSClientConfig: insecure()}}
	t.Cleanup(api.CloseIdleConnections)
	relay := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // the real document, under a certificate of its own
		answer, err := api.Get(c.url + r.URL.Path)
		if err != nil {
			t.Error(err)
			return
		}
		defer answer.Body.Close()
		w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
		_, _ = io.Copy(w, answer.Body)
	}))
	t.Cleanup(relay.Close)
	redirect := httptest.NewTLSServer(http.RedirectHandler(c.url+clusterInfoPath, http.StatusFound))
	t.Cleanup(redirect.Close)
	token, known := tokenFile(t, attesttest.TokenID+"."+tokenSecret), pin(c.ca)
	document := controlplane.Write(t, t.TempDir(), "discovery.conf", controlplane.Read(t, c.kubeconfig(t, "with-credentials.kubeconfig", "stranger")))
	shared := t.TempDir()
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	by := func(pin, token string, address ...string) []string {
		return append([]string{"--token-file", token, "--ca-cert-hash", pin}, address...)
	}
	for name, row := range map[string]struct {
		args   []string
		status int
		check  string
	}{
		"two sources":               {append([]string{"--discovery-file", document}, by(known, token, c.address())...), 2, "configuration: got two sources"},
		"none":                      {nil, 2, "configuration: got no source"},
		"no pin":                    {[]string{"--token-file", token, c.address()}, 2, "configuration: got no --ca-cert-hash"},
		"http":                      {by(known, token, "http://"+c.address()), 2, "server-url-scheme"},
		"a file with credentials":   {[]string{"--discovery-file", document}, 1, "kubeconfig-credentials"},
		"a folder of others":        {append([]string{"--dir", shared}, by(known, token, c.address())...), 1, "file: got directory " + shared},
		"a wrong pin":               {by(pin(controlplane.NewAuthority(t)), token, c.address()), 3, "ca-pinned"},
		"another secret":            {by(known, tokenFile(t, attesttest.TokenID+".fedcba9876543210"), c.address()), 3, "cluster-info-signature"},
		"an unknown ID":             {by(known, tokenFile(t, "absent."+tokenSecret), c.address()), 3, "cluster-info-no-signature"},
		"a redirect":                {by(known, token, strings.TrimPrefix(redirect.URL, "https://")), 3, "redirect"},
		"a server of another CA":    {by(known, token, strings.TrimPrefix(relay.URL, "https://")), 3, "server-certificate"},
		"a server that is not here": {by(known, token, "127.0.0.1:1"), 3, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "kubernetes")
			status, out := discover(t, program, append([]string{"--timeout", "2s", "--dir", dir}, row.args...)...)
			if status != row.status || !strings.Contains(out, row.check) {
				t.Errorf("status %d, want %d and %s: %s", status, row.status, row.check, out)
			}
			if found, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(found) != 0 {
				t.Errorf("it wrote %q, %v", found, err)
			}
			t.Logf("status %d: %s", status, strings.TrimSpace(out))
		})
	}
}

// checkAnonymous holds that all that discovery asked the API server for was the discovery document, without
// a credential, and that the bootstrap token was not used.
func (c *cluster) checkAnonymous(t *testing.T, from int) {
	t.Helper()
	asked := 0
	for _, r := range c.audit(t)[from:] {
		switch {
		case strings.HasPrefix(r.User.Username, csr.BootstrapUserPrefix):
			t.Errorf("before there is trust, the token is used: %+v", r)
		case r.User.Username == "system:anonymous":
			asked++
			if r.Verb != "get" || r.ObjectRef.Resource != "configmaps" || r.ObjectRef.Namespace != bootstraptoken.ClusterInfoNamespace || r.ObjectRef.Name != bootstraptoken.ClusterInfoName {
				t.Errorf("an anonymous request: %+v", r)
			}
		}
	}
	if t.Logf("%d anonymous requests, all for the discovery document", asked); asked == 0 {
		t.Error("no request is in the audit log")
	}
}

// TestDiscoverAnonymousPath discovers a cluster whose API server takes anonymous requests for the discovery
// document alone.
func TestDiscoverAnonymousPath(t *testing.T) {
	t.Parallel()
	program := buildProgram(t, "kubelet-authenticator")
	c := startCluster(t, anonymousClusterInfo(t))
	c.namespaces(t)
	c.makeToken(t, attesttest.TokenID)
	c.signsDiscovery(t)
	c.publish(t, c.ca)
	from, dir := len(c.audit(t)), t.TempDir()
	began := time.Now()
	status, out := discover(t, program, "--dir", dir, "--token-file", tokenFile(t, attesttest.TokenID+"."+tokenSecret), "--ca-cert-hash", pin(c.ca), c.address())
	if status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	t.Logf("%s, in %s", out, time.Since(began).Round(time.Millisecond))
	c.checkAnonymous(t, from)
	api := &http.Client{Transport: &http.Transport{TLSClientConfig: insecure()}}
	defer api.CloseIdleConnections()
	answer, err := api.Get(c.url + "/version")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("an anonymous request for the version: status %d", answer.StatusCode)
	}
}
