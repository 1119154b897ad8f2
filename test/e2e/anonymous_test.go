package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"slices"
	"testing"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// clusterInfoPath is where the API server serves the discovery document.
const clusterInfoPath = "/api/v1/namespaces/" + bootstraptoken.ClusterInfoNamespace + "/configmaps/" + bootstraptoken.ClusterInfoName

// startAnonymous starts a cluster that authenticates anonymous requests for one path.
func startAnonymous(t *testing.T, path string) *cluster {
	t.Helper()
	config := controlplane.Write(t, t.TempDir(), "authentication.yaml", []byte(`apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous: {enabled: true, conditions: [{path: `+path+`}]}
`))
	return startServer(t, func(flags []string) []string {
		flags = slices.DeleteFunc(flags, func(flag string) bool { return flag == "--anonymous-auth=false" }) // the flag and the file exclude each other
		return append(flags, "--authentication-config="+config)
	})
}

// testAnonymous sends requests without credentials: only the one for the discovery document
// is authenticated. Elsewhere even the paths that Kubernetes' own roles make public are closed.
func (c *cluster) testAnonymous(t *testing.T) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(c.ca.Cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(transport.CloseIdleConnections)
	for path, want := range map[string]int{
		clusterInfoPath: http.StatusOK,
		"/healthz":      http.StatusUnauthorized,
		"/version":      http.StatusUnauthorized,
		"/api/v1/namespaces/" + bootstraptoken.ClusterInfoNamespace + "/configmaps": http.StatusUnauthorized,
	} {
		response, err := (&http.Client{Transport: transport}).Get(c.url + path)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != want {
			t.Errorf("an anonymous request for %s: status %d, want %d", path, response.StatusCode, want)
		}
		t.Logf("an anonymous request for %s: status %d", path, response.StatusCode)
	}
}
