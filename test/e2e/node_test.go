package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nodeattest/nodeattest/csr"
)

// authenticates opens a TLS connection with the certificate that the server stored
// and the node's own key, which on one of the roads never leaves the TPM, and compares the
// user that the server states.
func (j *join) authenticates(c *cluster, certificate []byte) {
	t := j.t
	t.Helper()
	chain := tls.Certificate{PrivateKey: j.node.Key}
	for block, rest := pem.Decode(certificate); block != nil; block, rest = pem.Decode(rest) {
		chain.Certificate = append(chain.Certificate, block.Bytes)
	}
	if len(chain.Certificate) == 0 {
		t.Fatal("no certificate in the object's status")
	}
	leaf, err := x509.ParseCertificate(chain.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	node := c.certified(t, chain)
	review, err := node.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	who := review.Status.UserInfo
	if want := csr.NodeUserPrefix + j.node.Name; who.Username != want {
		t.Errorf("got the user %q, want %q", who.Username, want)
	}
	if want := []string{csr.NodesGroup, csr.AuthenticatedGroup}; !slices.Equal(who.Groups, want) {
		t.Errorf("got the groups %q, want %q", who.Groups, want)
	}
	if got, want := who.Extra[csr.ExtraCredentialID], csr.CredentialID(leaf); !slices.Equal(got, []string{want}) {
		t.Errorf("got the credential %q, want %q", got, want)
	}
	t.Logf("the certificate authenticates as %s, groups %q, %q", who.Username, who.Groups, who.Extra[csr.ExtraCredentialID])

	// The node authorizer lets a node get its own Node object and no other.
	for name, want := range map[string]func(error) bool{j.node.Name: apierrors.IsNotFound, "another": apierrors.IsForbidden} {
		if _, err := node.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{}); !want(err) {
			t.Errorf("the node gets the Node %s: unexpected %v", name, err)
		}
	}
}

// certified connects with a certificate whose key may be in a TPM.
func (c *cluster) certified(t *testing.T, chain tls.Certificate) kubernetes.Interface {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(c.ca.Cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{chain}, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := kubernetes.NewForConfigAndClient(c.config(), &http.Client{Transport: transport, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return client
}
